//! The SFS filesystem: a log of segments and one tree, without threads, clock, entropy or FUSE.
//!
//! Layers from the bottom to the top; a module imports only from those before it: `lock_rank`,
//! `mutant`; `format`; `error`; `memory`; `request`; `counters`; `wear`; `policy`; `segments`; `tree`;
//! `health`; `io`; `metadata`; `files`; `log`; `reserves`; `writeback`; `clean`; `space`;
//! `recovery`; `volume`. `cargo xtask imports` checks the order. `docs/ARCHITECTURE.md` describes
//! the layers, `docs/DESIGN.md` the design, `docs/FORMAT.md` the bytes, and `docs/SEMANTICS.md` the
//! promises.
#![forbid(unsafe_code)]

mod clean;
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
mod memory;
mod metadata;
pub mod mutant;
pub mod policy;
mod recovery;
pub mod request;
mod reserves;
mod segments;
mod space;
pub mod tree;
mod volume;
mod wear;
mod writeback;

pub use clean::{Cleaned, CleaningObserver, Trim};
pub use error::{Error, Result};
pub use lock_rank::{DurationHistogram, LockTimes, lock_times};
pub use log::WholeSyncTicket;
pub use recovery::{Basis, Moved, Rebuild, make, read_superblock, root_directory};
pub use segments::AllocationMemory;
pub use volume::{
    AheadRead, COPY_PIECE_LEN_MAX, ContentAhead, FileReferences, ResizeError, Resized, Scrub,
    Volume,
};
