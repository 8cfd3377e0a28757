//! The pace of cleaning: requests of users, to which the background yields, and the cleaning that writers owe.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Number of blocks, written without finding as much garbage, at which a writer has to clean.
const CLEAN_DEBT_BLOCKS: u64 = 64;

/// Number of blocks of a victim for each block of garbage that makes cleaning worthwhile for a writer.
const GARBAGE_WORTHWHILE: u64 = 10;

/// Largest debt: the writes of a few requests, so that no request pays for a long time in which nothing could be cleaned.
const DEBT_BLOCKS_MAX: u64 = 1024;

/// Time in seconds after the last write until which more writes are expected.
const WRITING_SECS: i64 = 2;

/// Requests of users, and the cleaning that writers owe.
#[derive(Debug, Default)]
pub(super) struct CleaningPace {
    /// Number of requests by users.
    requests: AtomicU64,
    /// Value of `requests` when the background last looked.
    seen_requests: AtomicU64,
    /// Number of reads of content that are under way for users.
    reads_under_way: AtomicU64,
    /// Number of writes and changes of metadata by users.
    writes: AtomicU64,
    /// Value of `writes` when the background last looked.
    seen_writes: AtomicU64,
    /// Time in seconds since 1970 at which the background last saw a write; 0 before the first.
    last_write_secs: AtomicI64,
    /// Number of blocks written for which cleaning has found no garbage yet.
    debt_blocks: AtomicU64,
}

impl CleaningPace {
    /// Counts a request by a user: the background yields to it.
    pub(super) fn note_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a write by a user.
    pub(super) fn note_write(&self) {
        self.note_change();
        self.note_request();
    }

    /// Counts a change of metadata. It needs segments as a write does, but the background does not yield to it.
    pub(super) fn note_change(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes a read that the device has to answer; it ends when the returned value is dropped.
    pub(super) fn begin_read(&self) -> ReadUnderWay<'_> {
        self.reads_under_way.fetch_add(1, Ordering::Relaxed);
        ReadUnderWay(self)
    }

    /// Returns the number of requests by users.
    pub(super) fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns whether users made requests since the last call, or wait for a read.
    pub(super) fn is_busy(&self) -> bool {
        let now = self.requests.load(Ordering::Relaxed);
        let has_more = self.seen_requests.swap(now, Ordering::Relaxed) != now;
        has_more || self.reads_under_way.load(Ordering::Relaxed) > 0
    }

    /// Returns whether users are writing at time `now` in seconds since 1970: they wrote since the last call, or shortly before it.
    pub(super) fn is_written(&self, now: i64) -> bool {
        let writes = self.writes.load(Ordering::Relaxed);
        if self.seen_writes.swap(writes, Ordering::Relaxed) != writes {
            self.last_write_secs.store(now, Ordering::Relaxed);
        }
        let last = self.last_write_secs.load(Ordering::Relaxed);
        (0..WRITING_SECS).contains(&now.saturating_sub(last))
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

/// A read of content that is under way.
pub(crate) struct ReadUnderWay<'a>(&'a CleaningPace);

impl Drop for ReadUnderWay<'_> {
    fn drop(&mut self) {
        self.0.reads_under_way.fetch_sub(1, Ordering::Relaxed);
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

    #[test]
    fn writes_are_expected_for_two_seconds_after_the_last() {
        let pace = CleaningPace::default();
        assert!(!pace.is_written(100));
        pace.note_write();
        assert!(pace.is_written(100) && pace.is_written(101) && !pace.is_written(102));
        pace.note_write();
        assert!(pace.is_written(200), "a write that the background sees late");
        assert!(!pace.is_written(50), "the clock was set back");
    }

    #[test]
    fn a_read_under_way_keeps_the_background_waiting() {
        let pace = CleaningPace::default();
        let first = pace.begin_read();
        let second = pace.begin_read();
        drop(first);
        assert!(pace.is_busy() && pace.is_busy());
        drop(second);
        assert!(!pace.is_busy());
    }
}
