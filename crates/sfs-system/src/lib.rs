//! Functions that `sfs-mkfs` and the mount programs share: the kernel's table of mounts, the memory
//! that a process may use, sizes as users write them, and output that may fail.
//!
//! The modules are independent of each other and of the rest of SFS.
#![forbid(unsafe_code)]

pub mod memory_limit;
pub mod mountinfo;
pub mod output;
mod size;

pub use size::{Human, SizeError, parse_size};
