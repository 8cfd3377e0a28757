//! How far a check is.
//!
//! Owns: the stages, and the caller's wish to stop.
//! Promises: the caller is asked at least once for each few MiB read.
//! Never: prints.

use std::ops::ControlFlow;

use crate::FsckError;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the tree; counts nodes. The total is what the usage table says, or 0.
    Tree,
    /// Rolling forward over the chunks past the checkpoint; total 0.
    Log,
    /// Searching every segment for what is left of a damaged tree; counts blocks.
    Salvage,
    /// Writing what was repaired; total 0.
    Writing,
    /// Comparing mappings with summaries; counts blocks that are mapped.
    Summaries,
    /// Reading data blocks; counts them.
    Data,
}

/// How far a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Blocks done.
    pub done: u64,
    /// Blocks to do; 0 if that is not known.
    pub total: u64,
}

/// Where progress is told to; breaking means to stop.
pub(crate) type Listener<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// Tells `listener` how far `stage` is.
pub(crate) fn tell(
    listener: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    stage: Stage,
    done: u64,
    total: u64,
) -> Result<(), FsckError> {
    match listener(Progress { stage, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(FsckError::Cancelled),
    }
}
