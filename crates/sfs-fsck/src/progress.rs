//! Progress of a check or repair, and its cancellation.
//!
//! Long loops call [`report`] at least once for every few MiB that they read. The caller's listener answers
//! whether to continue.

use std::ops::ControlFlow;

use crate::error::FsckError;

/// Stage of a check or repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the tree; counts nodes. The total is that of the usage table, or 0.
    Tree,
    /// Rolling forward over the chunks past the checkpoint; counts their blocks, total 0.
    Log,
    /// Searching every segment for the rest of a damaged tree; counts blocks.
    Salvage,
    /// Writing the repaired tree; counts nodes, total 0.
    Writing,
    /// Comparing mappings with summaries; counts mapped blocks.
    Summaries,
    /// Reading data blocks; counts them.
    Data,
}

/// Progress of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Present stage.
    pub stage: Stage,
    /// Number of blocks done.
    pub done: u64,
    /// Number of all blocks; 0 if the number is not known.
    pub total: u64,
}

/// Callback for progress; `Break` cancels.
pub(crate) type ProgressListener<'a> = &'a mut dyn FnMut(CheckProgress) -> ControlFlow<()>;

/// Reports to `listener` that `done` of `total` blocks of `stage` are done.
///
/// # Errors
///
/// [`FsckError::Cancelled`] if the listener breaks.
pub(crate) fn report(
    listener: &mut dyn FnMut(CheckProgress) -> ControlFlow<()>,
    stage: Stage,
    done: u64,
    total: u64,
) -> Result<(), FsckError> {
    match listener(CheckProgress { stage, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(FsckError::Cancelled),
    }
}
