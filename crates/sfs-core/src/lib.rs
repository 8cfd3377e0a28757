//! The SFS filesystem: a log of segments and one tree, without threads, clock, entropy or FUSE.
//!
//! `docs/DESIGN.md` explains it, `docs/FORMAT.md` states the bytes, `docs/SEMANTICS.md` the promises.
#![forbid(unsafe_code)]

mod counters;
mod error;
pub mod format;
mod log;
mod memory;
mod meta;
pub mod mutant;
mod owners;
pub mod policy;
pub mod request;
mod segments;
pub mod tree;
mod volume;

pub use error::{Error, Result};
pub use volume::{Basis, Moved, Rebuild, Volume, make, root_directory};
