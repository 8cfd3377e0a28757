//! The SFS filesystem: a log of segments and one tree, without threads, clock, entropy or FUSE.
//!
//! From top to bottom: `volume`; `log`, `meta` and `owners`; `segments`; `memory`, `policy` and `tree`; `format`. A
//! module imports from its own level and from those below. `docs/DESIGN.md` explains the design, `docs/FORMAT.md` the
//! bytes, and `docs/SEMANTICS.md` the guarantees.
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
