//! Marks at which a writer is slowed down, and the pace of cleaning.
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

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sfs_device::BLOCK_SIZE;

/// Divisor of the write buffer: one such part is written back at a time.
const WRITE_BACK_PARTS: usize = 8;

/// Wait after which a write need not stay within the share of its file: many small writers do not starve a large one. So long that
/// such writes do not take the room of the small ones on a slow device.
const PATIENCE: Duration = Duration::from_secs(2);

/// Number of blocks, written without finding as much garbage, at which a writer has to clean.
const CLEAN_DEBT_BLOCKS: u64 = 64;

/// Number of blocks of a victim for each block of garbage that makes cleaning worthwhile for a writer.
const GARBAGE_WORTHWHILE: u64 = 10;

/// Largest debt: the writes of a few requests, so that no request pays for a long time in which nothing could be cleaned.
const DEBT_BLOCKS_MAX: u64 = 1024;

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

/// Requests of users, and the cleaning that writers owe.
#[derive(Debug, Default)]
pub(super) struct CleaningPace {
    /// Number of requests by users.
    requests: AtomicU64,
    /// Value of `requests` when the background last looked.
    seen_requests: AtomicU64,
    /// Number of blocks written for which cleaning has found no garbage yet.
    debt_blocks: AtomicU64,
}

impl CleaningPace {
    /// Counts a request by a user: the background yields to it.
    pub(super) fn note_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests by users.
    pub(super) fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns whether users made requests since the last call.
    pub(super) fn is_busy(&self) -> bool {
        let now = self.requests.load(Ordering::Relaxed);
        self.seen_requests.swap(now, Ordering::Relaxed) != now
    }

    /// Forgets the debt: segments are not short.
    pub(super) fn clear_debt(&self) {
        self.debt_blocks.store(0, Ordering::Relaxed);
    }

    /// Adds `blocks` to the debt, up to [`DEBT_BLOCKS_MAX`]; returns whether it is high enough to clean for it.
    pub(super) fn add_debt(&self, blocks: u64) -> bool {
        let grown = |debt: u64| Some((debt + blocks).min(DEBT_BLOCKS_MAX));
        let _ = self.debt_blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        self.is_in_debt()
    }

    /// Returns whether the debt is high enough to clean for it.
    pub(super) fn is_in_debt(&self) -> bool {
        self.debt_blocks.load(Ordering::Relaxed) >= CLEAN_DEBT_BLOCKS
    }

    /// Returns whether the debt would be high enough to clean for it with `blocks` more.
    pub(super) fn would_be_in_debt(&self, blocks: u64) -> bool {
        self.debt_blocks.load(Ordering::Relaxed).saturating_add(blocks) >= CLEAN_DEBT_BLOCKS
    }

    /// Subtracts the debt that a step pays which found `garbage_blocks` among `blocks`. Where all segments are nearly full,
    /// moving gains little more than its own summaries take, and only spreads the garbage: a step pays for
    /// [`CLEAN_DEBT_BLOCKS`] then.
    pub(super) fn pay_debt(&self, garbage_blocks: u64, blocks: u64) {
        let is_worthwhile = garbage_blocks * GARBAGE_WORTHWHILE >= blocks.max(1);
        let payment = if is_worthwhile { garbage_blocks } else { CLEAN_DEBT_BLOCKS };
        // Another thread may have paid or cleared the same debt.
        let paid = |debt: u64| Some(debt.saturating_sub(payment));
        let _ = self.debt_blocks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a debt that two threads paid wrapped around, and every write had to clean.
    #[test]
    fn a_debt_that_is_paid_twice_is_no_debt() {
        let pace = CleaningPace::default();
        assert!(!pace.add_debt(CLEAN_DEBT_BLOCKS - 1));
        assert!(pace.add_debt(1) && pace.add_debt(1), "both threads clean");
        pace.pay_debt(CLEAN_DEBT_BLOCKS, 256);
        pace.pay_debt(0, 256);
        assert!(!pace.add_debt(CLEAN_DEBT_BLOCKS - 1));
    }
}
