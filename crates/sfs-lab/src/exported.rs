//! A model of a flash device as a disk: a FUSE directory with a file for its bytes and a file for its
//! counters.
//!
//! [`ExportedSsd`] is the disk and the record of its requests, [`serve`] mounts the directory. One thread
//! serves the requests in the order in which the kernel sends them. Every request that succeeds is
//! counted by the model and, if wanted, recorded. The command `sfs-lab ssd` makes a loop device of the
//! file.

mod fuse;
mod ssd;

pub use fuse::{CONTROL, DISK, serve};
pub use ssd::{ExportedSsd, ExportedStatus};
