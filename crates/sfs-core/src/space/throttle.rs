//! Marks at which a writer is slowed down, and the pace of cleaning.
//!
//! | mark | consequence for the writer |
//! |---|---|
//! | dirty blocks reach half of the write buffer, or its memory 7/8 | it writes an eighth back, unless another thread does so already |
//! | memory reaches the whole write buffer | it waits for the log, and writes back until less is used, or nothing more can be written |
//! | memory reaches twice the write buffer | it is refused if writing back fails, unless its file was truncated and waits for its data |

use std::sync::atomic::{AtomicU64, Ordering};

use sfs_device::BLOCK_SIZE;

/// Parts of the write buffer, one of which is written back at once.
const WRITE_BACK_PARTS: usize = 8;

/// Blocks that a writer may owe before it cleans for them.
const CLEAN_DEBT_BLOCKS: u64 = 64;

/// Marks of a write buffer: see the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteBufferMarks {
    budget_bytes: usize,
}

impl WriteBufferMarks {
    /// Returns the marks of a write buffer of `budget_bytes`.
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self { budget_bytes }
    }

    /// Returns whether data should be written back: `dirty_blocks` wait, in `memory_bytes` of memory.
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

    /// Returns the number of blocks to write back at once.
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
    /// Blocks written that no cleaning was done for.
    debt_blocks: AtomicU64,
}

impl CleaningPace {
    /// Counts a request by a user: the background yields to it.
    pub(super) fn note_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
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

    /// Adds `blocks` to the debt; returns whether it is high enough to clean for it.
    pub(super) fn add_debt(&self, blocks: u64) -> bool {
        self.debt_blocks.fetch_add(blocks, Ordering::Relaxed) + blocks >= CLEAN_DEBT_BLOCKS
    }

    /// Subtracts the debt that one step of cleaning pays.
    pub(super) fn pay_debt(&self) {
        self.debt_blocks.fetch_sub(CLEAN_DEBT_BLOCKS, Ordering::Relaxed);
    }
}
