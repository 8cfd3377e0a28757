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

/// Returns the name of this machine, for others.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "a machine without a name".to_owned(),
        name => name.to_owned(),
    }
}
