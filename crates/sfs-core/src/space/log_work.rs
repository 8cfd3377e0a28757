//! Requests to the thread for the log, and the bound of its batches.

use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Requests to the thread for the log.
#[derive(Debug)]
pub(super) struct LogWork {
    /// `true` if changes of metadata ask for a delta, a checkpoint or Clean segments.
    pub(super) is_asked: AtomicBool,
    /// Maximum number of dirty blocks that are written back under one hold of the log.
    pub(super) batch_blocks: AtomicUsize,
}

impl Default for LogWork {
    fn default() -> Self {
        Self { is_asked: AtomicBool::new(false), batch_blocks: AtomicUsize::new(usize::MAX) }
    }
}
