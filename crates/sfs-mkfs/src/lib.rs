//! Makes an SFS volume.
//!
//! Owns: what may be overwritten and what not, the choice of the segment size, and the order in
//! which an old content is wiped.
//! Promises: nothing is written before every check has passed; an interrupted run leaves nothing
//! that looks like a volume, neither the old nor the new.
//! Never: writes the log or the tree itself; `sfs_core::make` does.
#![forbid(unsafe_code)]

mod detect;
mod error;
mod in_use;
mod make;
pub mod measure;
mod options;
mod plan;
mod probe;
pub mod signatures;
mod wipe;

pub use error::MkfsError;
pub use in_use::{refuse_in_use, refuse_in_use_by_loop};
pub use make::{Made, make, make_on, make_with};
pub use options::{Options, SegmentSize};
pub use plan::{Identity, Plan, segment_size_for};
pub use probe::{Fault, probe};
pub use sfs_system::{Human, output, parse_size};
