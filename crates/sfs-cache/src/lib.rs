//! An SSD as a persistent, write-through cache before a large hard drive.
//!
//! The disk alone is always a whole volume. [`Cache`] keeps copies of blocks on the SSD, and everything that it has to know
//! about them. [`CachedDevice`] joins a disk and a cache to one [`Device`](sfs_device::Device): writes go to the disk, and
//! reads whose content the caller can verify are answered from the cache. A cache that is missing, old, half written, lying or
//! dying costs speed and nothing else: a copy is used only if it has the checksum that the volume expects, and the first
//! error of the SSD ends its use.
//!
//! The crate has no threads, clock or entropy. The owner calls [`Cache::work`] on a thread of its own, and draws the random
//! epochs. `docs/decisions/0044-an-ssd-before-a-hard-drive.md` has the reasons, `docs/FORMAT.md` the bytes.
#![forbid(unsafe_code)]

mod bitmap;
mod cache;
mod cached_device;
mod check;
mod error;
mod header;
mod loading;
mod making;
mod memory;
pub mod mutant;
mod policy;
mod recent_writes;
mod section;
mod state;
mod streams;
mod summary;

pub use cache::{Cache, CacheStat, Identity, Warmth};
pub use cached_device::CachedDevice;
pub use check::{CacheReport, check};
pub use error::CacheError;
pub use header::{CacheHeader, HEADER_BLOCKS, SectionPlan};
pub use making::{MakeOptions, SECTIONS_MAX, SectionWish, empty, make, plan};
pub use memory::IndexMemory;
pub use policy::{EvictionPolicy, ExtentKey, PolicyName};

/// Number of the object that the blocks of the volume's disk belong to. A cache before an object store gives each of the
/// objects a number.
pub const DISK_OBJECT: u64 = 0;
