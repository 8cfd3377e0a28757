//! Schedule of background work: when each kind of work was last done. Times are in milliseconds since 1970.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::format::Timestamp;

/// Pause in writing after which dirty data is made durable.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Time after which unused memory is returned to the system. Memory that is needed again sooner would only cost more.
const RELEASE_MEMORY_MS: i64 = 10_000;

/// Time between two sweeps of the inode table.
const SWEEP_MS: i64 = 500;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    times: Mutex<Times>,
    /// `true` once the last checkpoint is written.
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Times {
    /// Number of changes at the last step.
    seen_changes: u64,
    /// Time since when something waits to be made durable.
    waiting_since: Option<i64>,
    /// Last step that saw a new change.
    active: i64,
    checkpoint: i64,
    sweep: i64,
    memory_release: i64,
}

impl Schedule {
    /// Starts the clock of checkpoints.
    pub(super) fn start(&self, now: Timestamp) {
        self.times.lock().checkpoint = millis(now);
    }

    /// Returns whether everything has been written by an unmount.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Records that an unmount has written everything.
    pub(super) fn note_closed(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns whether a commit is due: after `interval`, after a pause in writing, or if the clock was set back.
    /// Something waits if data or metadata `is_changed`, or if the log `is_unflushed`; `changes` is the number of
    /// changes so far.
    pub(super) fn is_commit_due(
        &self,
        (is_changed, is_unflushed): (bool, bool),
        changes: u64,
        interval: Duration,
        now: Timestamp,
    ) -> bool {
        let now = millis(now);
        let mut times = self.times.lock();
        if !is_changed && !is_unflushed {
            times.waiting_since = None;
            return false;
        }
        if changes != times.seen_changes {
            times.seen_changes = changes;
            times.active = now;
        }
        let since = *times.waiting_since.get_or_insert(now);
        let has_passed = |from: i64, interval: Duration| {
            now.saturating_sub(from) >= i64::try_from(interval.as_millis()).unwrap_or(i64::MAX)
        };
        let has_paused = is_changed && has_passed(times.active, PAUSE);
        has_paused || has_passed(since, interval) || now < since
    }

    /// Records that a commit was attempted.
    pub(super) fn note_commit(&self) {
        self.times.lock().waiting_since = None;
    }

    /// Returns whether something waits to be made durable.
    pub(super) fn is_waiting(&self) -> bool {
        self.times.lock().waiting_since.is_some()
    }

    /// Returns the time since the background last wrote a due checkpoint, or since the mount. Checkpoints for other
    /// reasons do not count.
    pub(super) fn checkpoint_age_ms(&self, now: Timestamp) -> i64 {
        millis(now).saturating_sub(self.times.lock().checkpoint)
    }

    /// Records that a checkpoint was written.
    pub(super) fn note_checkpoint(&self, now: Timestamp) {
        self.times.lock().checkpoint = millis(now);
    }

    /// Returns whether the inode table should be swept now.
    pub(super) fn is_sweep_due(&self, now: Timestamp) -> bool {
        is_due(&mut self.times.lock().sweep, SWEEP_MS, now)
    }

    /// Returns whether unused memory should be returned to the system now.
    pub(super) fn is_memory_release_due(&self, now: Timestamp) -> bool {
        is_due(&mut self.times.lock().memory_release, RELEASE_MEMORY_MS, now)
    }
}

fn millis(time: Timestamp) -> i64 {
    time.secs.saturating_mul(1000).saturating_add(i64::from(time.nanos / 1_000_000))
}

/// Returns whether `last` is at least `interval` milliseconds ago, or in the future because the clock was set back.
/// `last` is set to `now` then.
fn is_due(last: &mut i64, interval: i64, now: Timestamp) -> bool {
    let now = millis(now);
    let is_due = !(0..interval).contains(&now.saturating_sub(*last));
    if is_due {
        *last = now;
    }
    is_due
}
