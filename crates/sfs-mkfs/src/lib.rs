//! Makes an SFS volume on a block device or in an image file, empty or with the content of a directory or an archive.
//!
//! [`make`] refuses a device that is in use or holds other content, chooses the segment size, wipes
//! the old content, and has `sfs_core::make` write the empty log. The first write comes after every check has
//! passed. An interrupted run leaves neither the old superblocks nor the new ones.
//!
//! Other crates also use three modules: [`signatures`] finds the signatures of other filesystems,
//! [`measure`] finds the erase block size of a device, and [`probe`] finds fake capacity.
#![forbid(unsafe_code)]

mod cache;
mod detect;
mod error;
mod fill;
mod fit;
mod identity;
mod in_use;
mod make;
pub mod measure;
mod object;
mod options;
mod plan;
mod probe;
pub mod signatures;
mod wipe;

pub use cache::{CacheDevice, MadeCache, SectionSize};
pub use error::MkfsError;
pub use fill::{FillError, FillReason, Filled};
pub use in_use::{refuse_in_use, refuse_in_use_by_loop};
pub use make::{Made, make, make_on, make_with};
pub use options::{MkfsOptions, SegmentSize};
pub use plan::{Identity, VolumePlan, segment_size_for};
pub use probe::{Fault, Verdict, probe};
pub use sfs_system::{Human, output, parse_size};
pub use wipe::erase_volume;
