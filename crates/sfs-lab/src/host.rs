//! Real filesystems on a model: SFS and those of the kernel, each mounted on `sfs-lab ssd`.
//!
//! [`Disk`] starts the process that exports the model and records its requests, [`DiskPair`] that of a hard drive and a
//! flash device with one clock. [`Filesystem`] makes and mounts a filesystem, and [`overwrite`], [`RandomAccessJobs`],
//! [`Postmark`], [`Bonnie`], [`RandomReads`], [`SizedFiles`] and [`Ageing`] load the mount. A disk is detached and a mount unmounted when its value is
//! dropped, after an error too. The module measures no time: the recorded requests are replayed on models, or the clock
//! of a pair shows it.

mod ageing;
mod bonnie;
mod command;
mod disk;
mod disk_pair;
mod exporter;
mod filesystem;
mod overwriting;
mod page_cache;
mod postmark;
mod random_access;
mod random_reads;
mod sized_files;

pub use ageing::{Aged, Ageing};
pub use bonnie::{Bonnie, BonnieFigures, BonniePhase};
pub use command::{program, run};
pub use disk::{Disk, DiskRequest};
pub use disk_pair::{DiskPair, Medium, PairRequest};
pub use exporter::Interrupted;
pub use filesystem::{Filesystem, MountedFilesystem, need_disks};
pub use overwriting::{JobPhases, JobSize, overwrite};
pub use page_cache::drop_pages;
pub use postmark::Postmark;
pub use random_access::RandomAccessJobs;
pub use random_reads::RandomReads;
pub use sized_files::{FileOperation, FileOrder, SizedFiles};
