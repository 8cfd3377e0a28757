//! Schedule of background work: when each kind of work was last done. Times are in milliseconds since 1970.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::format::Timestamp;

/// Pause in writing after which dirty data is made durable.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// Pause after which dirty data is made durable where sync(2) does not arrive: the commit follows a sync that
/// no request reports.
const PAUSE_SHORT: Duration = Duration::from_millis(40);

/// Maximum number of consecutive commits after pauses, where sync(2) arrives.
const PAUSES_MAX: u32 = 4;

/// Number of commits after short pauses, where sync(2) does not arrive; [`PAUSES_MAX`] more follow longer pauses.
const SHORT_PAUSES_MAX: u32 = 4;

/// Shortest time after which another commit may follow a pause. Commits after pauses are not more frequent in the long
/// run than those of a program that never pauses: a line a second in a log costs a commit every five seconds.
const PAUSE_EVERY: Duration = Duration::from_secs(5);

/// Time after which unused memory is returned to the system. The return of memory that is needed
/// again sooner would only cost time.
const RELEASE_MEMORY_MS: i64 = 10_000;

/// Time between two sweeps of the inode table.
const SWEEP_MS: i64 = 500;

/// Times of the background work that was done last.
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
    /// Time of the last step that saw a new change.
    active: i64,
    checkpoint: i64,
    sweep: i64,
    memory_release: i64,
    /// Number of commits that still count against those after pauses.
    commits: u32,
    /// Time up to which these commits were discounted.
    discounted: i64,
}

/// How soon dirty data is made durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitPace {
    /// Longest time that it waits.
    pub(super) interval: Duration,
    /// `true` if a short pause suffices: for a mount that sync(2) does not reach.
    pub(super) is_soon: bool,
}

impl Times {
    /// Returns the pause after which a commit is due; `None` if pauses have caused enough commits.
    fn pause(&mut self, pace: CommitPace, now: i64) -> Option<Duration> {
        self.discount(whole_millis(pace.interval.max(PAUSE_EVERY)), now);
        let short = if pace.is_soon { SHORT_PAUSES_MAX } else { 0 };
        match self.commits {
            commits if commits < short => Some(PAUSE_SHORT),
            commits if commits < short + PAUSES_MAX => Some(PAUSE),
            _ => None,
        }
    }

    /// Discounts a commit for each `every` milliseconds that have passed.
    fn discount(&mut self, every: i64, now: i64) {
        let count = now.saturating_sub(self.discounted) / every;
        if count < 0 || count > i64::from(PAUSES_MAX + SHORT_PAUSES_MAX) {
            // A long rest, or the clock was set.
            (self.commits, self.discounted) = (0, now);
        } else {
            self.commits = self.commits.saturating_sub(count as u32);
            self.discounted += count * every;
        }
    }
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

    /// Returns whether a commit is due: after the interval of `pace`, after a pause in writing, or if
    /// the clock was set back. `is_changed` is `true` if data or metadata has to be written, and
    /// `is_unflushed` if the log has to be flushed; `changes` is the number of changes so far.
    pub(super) fn is_commit_due(
        &self,
        (is_changed, is_unflushed): (bool, bool),
        changes: u64,
        pace: CommitPace,
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
        let has_passed = |from: i64, time: Duration| now.saturating_sub(from) >= whole_millis(time);
        let is_overdue = has_passed(since, pace.interval) || now < since;
        let (active, pause) = (times.active, times.pause(pace, now));
        let has_paused = is_changed && pause.is_some_and(|pause| has_passed(active, pause));
        let is_due = has_paused || is_overdue;
        if is_due {
            times.commits = (times.commits + 1).min(SHORT_PAUSES_MAX + PAUSES_MAX);
        }
        is_due
    }

    /// Returns the time until the next check for a due commit, while something waits.
    pub(super) fn next_look(&self, pace: CommitPace, now: Timestamp) -> Duration {
        self.times.lock().pause(pace, millis(now)).unwrap_or(PAUSE) / 2
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
    pub(super) fn restart_checkpoint_interval(&self, now: Timestamp) {
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

fn whole_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
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
