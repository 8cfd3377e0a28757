//! Small pieces of the running system that every program of SFS needs: the kernel's table of mounts, the memory that a
//! process may use, sizes as users write them, and output that may fail.
//!
//! The modules are independent of each other and of the rest of SFS. `sfs-mkfs` and the mount programs use them.
#![forbid(unsafe_code)]

pub mod memory_limit;
pub mod mountinfo;
pub mod output;
mod size;

pub use size::{Human, SizeError, parse_size};
