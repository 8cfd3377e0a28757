//! Bytes written to a device, by origin.

use sfs_device::BLOCK_SIZE;

use super::{COUNT_KEPT_MAX, ChunkSummary, SummaryEntry};

/// Number of origins.
pub(super) const ORIGINS: usize = 4;

/// Written bytes by origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WearBytes {
    /// File data that was written for users.
    pub user: u64,
    /// File data that cleaning moved.
    pub cleaning: u64,
    /// Tree nodes, checkpoints, summaries and deltas.
    pub metadata: u64,
    /// File data that defragmentation moved.
    pub defragmentation: u64,
}

impl WearBytes {
    /// Returns the bytes of a chunk. Its summary does not tell moved data from other data.
    pub fn of_chunk(chunk: &ChunkSummary) -> Self {
        let is_data = |entry: &&SummaryEntry| matches!(entry, SummaryEntry::Data { .. });
        let data = chunk.entries.iter().filter(is_data).count() as u64;
        let bytes = |blocks: u64| blocks * BLOCK_SIZE as u64;
        let metadata = bytes(chunk.block_count() - data);
        Self { user: bytes(data), metadata, ..Self::default() }
    }

    /// Returns the sum over all origins.
    pub fn sum(&self) -> u64 {
        self.values().into_iter().fold(0, u64::saturating_add)
    }

    /// Adds `other`. Each sum stays below 2^61.
    pub fn add(&mut self, other: Self) {
        let mut values = self.values();
        for (value, more) in values.iter_mut().zip(other.values()) {
            *value = value.saturating_add(more).min(COUNT_KEPT_MAX - 1);
        }
        *self = Self::of_values(values);
    }

    /// Returns the bytes that `self` has more than `before`.
    pub fn since(&self, before: Self) -> Self {
        let mut values = self.values();
        for (value, less) in values.iter_mut().zip(before.values()) {
            *value = value.saturating_sub(less);
        }
        Self::of_values(values)
    }

    pub(super) fn values(&self) -> [u64; ORIGINS] {
        [self.user, self.cleaning, self.metadata, self.defragmentation]
    }

    pub(super) fn of_values([user, cleaning, metadata, defragmentation]: [u64; ORIGINS]) -> Self {
        Self { user, cleaning, metadata, defragmentation }
    }
}
