//! The SFS filesystem: a log of segments and one tree, without threads, clock, entropy or FUSE.
//!
//! `docs/DESIGN.md` explains it, `docs/FORMAT.md` states the bytes, `docs/SEMANTICS.md` the promises.
#![forbid(unsafe_code)]

mod buffer;
mod clean;
mod clock;
mod counters;
mod error;
mod files;
#[cfg(test)]
mod fixture;
pub mod format;
mod health;
mod io;
mod lock_rank;
mod log;
mod metadata;
pub mod mutant;
mod places;
pub mod policy;
mod recovery;
pub mod request;
mod reserves;
mod space;
pub mod tree;
mod usage;
mod volume;
mod writeback;

pub use error::{Error, Result};
pub use recovery::{Basis, Moved, Rebuild, make, root_directory};
pub use volume::Volume;
