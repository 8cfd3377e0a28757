//! Counters of a mounted volume, which all threads add to.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::request::Counters;

/// The atomic form of [`Counters`], which describes each counter.
#[derive(Debug, Default)]
pub(crate) struct AtomicCounters {
    pub(crate) user_bytes_written: AtomicU64,
    pub(crate) device_bytes_written: AtomicU64,
    pub(crate) data_bytes: AtomicU64,
    pub(crate) cleaning_bytes: AtomicU64,
    pub(crate) defragmentation_bytes: AtomicU64,
    pub(crate) metadata_bytes: AtomicU64,
    pub(crate) summary_bytes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) segments_cleaned: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) nodes_read: AtomicU64,
}

impl AtomicCounters {
    /// Returns the current values.
    pub(crate) fn snapshot(&self) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            user_bytes_written: get(&self.user_bytes_written),
            device_bytes_written: get(&self.device_bytes_written),
            data_bytes: get(&self.data_bytes),
            cleaning_bytes: get(&self.cleaning_bytes),
            defragmentation_bytes: get(&self.defragmentation_bytes),
            metadata_bytes: get(&self.metadata_bytes),
            summary_bytes: get(&self.summary_bytes),
            commits: get(&self.commits),
            syncs: get(&self.syncs),
            checkpoints: get(&self.checkpoints),
            segments_cleaned: get(&self.segments_cleaned),
            stalls: get(&self.stalls),
            nodes_read: get(&self.nodes_read),
        }
    }
}
