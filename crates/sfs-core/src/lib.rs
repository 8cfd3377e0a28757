//! The SFS filesystem: a log of segments and one tree, without threads, clock, entropy or FUSE.
//!
//! `docs/DESIGN.md` explains it, `docs/FORMAT.md` states the bytes, `docs/SEMANTICS.md` the promises.
#![forbid(unsafe_code)]

mod buffer;
mod clock;
mod counters;
mod error;
pub mod format;
mod log;
mod meta;
pub mod mutant;
mod owners;
mod places;
pub mod policy;
pub mod request;
pub mod tree;
mod usage;
mod volume;

pub use error::{Error, Result};
pub use volume::{Basis, Moved, Rebuild, Volume, make, root_directory};
