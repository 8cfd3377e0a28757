//! Marks at which a writer is slowed down.
//!
//! | mark | consequence |
//! |---|---|
//! | dirty blocks reach half of the write buffer, or its memory 7/8 | the writer writes an eighth back, unless another thread does so already |
//! | memory reaches the whole write buffer | the writer waits for the log, and writes back until less memory is used or nothing more can be written |
//! | memory reaches twice the write buffer | the writer is refused if writing back fails, unless its file was truncated and waits for its data |
//!
//! Where the caller has a thread for the log, that thread writes back from the first mark on, or from 3/4 of the memory on, and
//! only the last mark above holds for writers. The caller lets writes wait:
//!
//! | mark | writes that wait |
//! |---|---|
//! | memory reaches 3/4 of the write buffer | those to a file whose dirty data is more than its share, until they have waited long |
//! | memory reaches 9/8 | all |
//!
//! The share of a file is the write buffer, divided by the number of dirty files and one.

use std::time::Duration;

use sfs_device::BLOCK_SIZE;

/// Divisor of the write buffer: one such part is written back at a time.
const WRITE_BACK_PARTS: usize = 8;

/// Wait after which a write need not stay within the share of its file: many small writers do not starve a large one. So long that
/// such writes do not take the room of the small ones on a slow device.
const PATIENCE: Duration = Duration::from_secs(2);

/// Marks of a write buffer: see the module documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteBufferMarks {
    budget_bytes: usize,
}

impl WriteBufferMarks {
    /// Returns the marks of a write buffer of `budget_bytes`.
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self { budget_bytes }
    }

    /// Returns whether data should be written back if `dirty_blocks` blocks are dirty and dirty
    /// data takes `memory_bytes` bytes.
    pub(super) fn is_high(self, dirty_blocks: usize, memory_bytes: usize) -> bool {
        let budget = self.budget_bytes;
        dirty_blocks * BLOCK_SIZE >= budget / 2
            || memory_bytes >= budget - budget / WRITE_BACK_PARTS
    }

    /// Returns whether writers have to wait.
    pub(super) fn is_full(self, memory_bytes: usize) -> bool {
        memory_bytes >= self.budget_bytes
    }

    /// Returns whether writers have to be refused if nothing can be written back.
    pub(super) fn is_overrun(self, memory_bytes: usize) -> bool {
        memory_bytes >= 2 * self.budget_bytes
    }

    /// Returns whether any write has room, while dirty data takes `memory_bytes`.
    pub(super) fn has_room_for_all(self, memory_bytes: usize) -> bool {
        memory_bytes < self.budget_bytes - self.budget_bytes / 4
    }

    /// Returns whether a write within the share of its file has room.
    pub(super) fn has_room_for_some(self, memory_bytes: usize) -> bool {
        memory_bytes < self.budget_bytes + self.budget_bytes / WRITE_BACK_PARTS
    }

    /// Returns whether a write of `len_bytes` leaves a file with `file_blocks` dirty blocks within its share, while `files`
    /// files are dirty.
    pub(super) fn is_within_share(
        self,
        len_bytes: usize,
        file_blocks: usize,
        files: usize,
    ) -> bool {
        let share = self.budget_bytes / (files + 1);
        (file_blocks * BLOCK_SIZE).saturating_add(len_bytes) <= share.max(BLOCK_SIZE)
    }

    /// Returns whether a write that has waited for `waited` need not stay within the share of its file.
    pub(super) fn is_patient(self, waited: Duration) -> bool {
        waited >= PATIENCE
    }

    /// Returns the number of blocks to write back at a time.
    pub(super) fn write_back_blocks(self) -> usize {
        (self.budget_bytes / WRITE_BACK_PARTS / BLOCK_SIZE).max(1)
    }
}
