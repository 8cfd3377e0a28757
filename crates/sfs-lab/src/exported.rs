//! A model of a disk as a disk of this machine: a FUSE directory with a file for its bytes and a file to control it.
//!
//! [`ExportedDisk`] is the disk and the record of its requests, [`serve`] mounts the directory, [`ControlCommand`] is
//! a line that a user may write to the control file. One thread takes the requests in the order in which the kernel sends
//! them. Every request that succeeds is counted by the model and, if wanted, recorded. The commands `sfs-lab ssd`,
//! `hdd` and `pair` make loop devices of the files.

mod control;
mod disk;
mod fuse;
mod status;

pub use control::{ControlCommand, FaultStatus};
pub use disk::{ExportedDisk, ExportedHdd, ExportedSsd, ServedDisk};
pub use fuse::{CONTROL, DISK, serve};
pub use status::{Exportable, ExportedHddStatus, ExportedStatus};
