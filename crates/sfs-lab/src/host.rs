//! Real filesystems on a model: SFS and those of the kernel, each mounted on `sfs-lab ssd`.
//!
//! [`Disk`] starts the process that exports the model and records its requests, [`Filesystem`] makes and
//! mounts a filesystem, and [`overwrite`], [`RandomAccessJobs`], [`Postmark`] and [`Ageing`] load the mount.
//! A disk is detached and a mount unmounted when its value is dropped, after an error too. The module
//! measures no time: the recorded requests are replayed on models.

mod ageing;
mod command;
mod disk;
mod filesystem;
mod overwriting;
mod postmark;
mod random_access;

pub use ageing::{Aged, Ageing};
pub use command::{program, run};
pub use disk::{Disk, DiskRequest, Interrupted};
pub use filesystem::{Filesystem, MountedFilesystem, need_disks};
pub use overwriting::{JobPhases, JobSize, overwrite};
pub use postmark::Postmark;
pub use random_access::RandomAccessJobs;
