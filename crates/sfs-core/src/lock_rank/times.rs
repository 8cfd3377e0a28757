//! Times for which locks are waited for and held, by rank: in debug builds, and with the feature `lock-times`.
//!
//! The counts are those of the process, over all volumes: a static table needs no reference from each lock.
//! Elsewhere the core reads no clock; here the clock changes nothing but the counts.

use super::durations::LockTimes;
use super::rank::Rank;

/// Returns the times of the locks of each rank since the process began; an empty list in a build that does
/// not count.
pub fn lock_times() -> Vec<LockTimes> {
    kept::all()
}

pub(super) use kept::{Hold, Wait};

#[cfg(any(debug_assertions, feature = "lock-times"))]
mod kept {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use super::{LockTimes, Rank};
    use crate::lock_rank::durations::{DurationHistogram, OCTAVES};

    struct AtomicHistogram {
        counts: [AtomicU64; OCTAVES],
        longest_ns: AtomicU64,
    }

    struct AtomicTimes {
        waits: AtomicHistogram,
        holds: AtomicHistogram,
    }

    static TIMES: [AtomicTimes; Rank::ALL.len()] = [const { AtomicTimes::new() }; Rank::ALL.len()];

    impl AtomicTimes {
        const fn new() -> Self {
            Self { waits: AtomicHistogram::new(), holds: AtomicHistogram::new() }
        }
    }

    impl AtomicHistogram {
        const fn new() -> Self {
            let counts = [const { AtomicU64::new(0) }; OCTAVES];
            Self { counts, longest_ns: AtomicU64::new(0) }
        }

        fn add(&self, time: Duration) {
            let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let octave = (ns.max(1).ilog2() as usize).min(OCTAVES - 1);
            self.counts[octave].fetch_add(1, Relaxed);
            self.longest_ns.fetch_max(ns, Relaxed);
        }

        fn read(&self) -> DurationHistogram {
            DurationHistogram {
                counts: std::array::from_fn(|octave| self.counts[octave].load(Relaxed)),
                longest_ns: self.longest_ns.load(Relaxed),
            }
        }
    }

    pub(super) fn all() -> Vec<LockTimes> {
        let ranks = Rank::ALL.iter().zip(&TIMES);
        let times = |(rank, times): (&Rank, &AtomicTimes)| LockTimes {
            name: rank.name(),
            waits: times.waits.read(),
            holds: times.holds.read(),
        };
        ranks.map(times).collect()
    }

    /// A thread that waits for a lock.
    pub(in crate::lock_rank) struct Wait(Rank, Instant);

    impl Wait {
        pub(in crate::lock_rank) fn begin(rank: Rank) -> Self {
            Self(rank, Instant::now())
        }

        /// Ends the wait: the thread has the lock.
        pub(in crate::lock_rank) fn end(self) -> Hold {
            let Self(rank, begin) = self;
            let now = Instant::now();
            TIMES[rank.index()].waits.add(now - begin);
            Hold(rank, now)
        }
    }

    /// A lock that is held. Dropped after the guard.
    #[derive(Debug)]
    pub(in crate::lock_rank) struct Hold(Rank, Instant);

    impl Drop for Hold {
        fn drop(&mut self) {
            TIMES[self.0.index()].holds.add(self.1.elapsed());
        }
    }
}

#[cfg(not(any(debug_assertions, feature = "lock-times")))]
mod kept {
    use super::{LockTimes, Rank};

    pub(super) fn all() -> Vec<LockTimes> {
        Vec::new()
    }

    pub(in crate::lock_rank) struct Wait;

    impl Wait {
        pub(in crate::lock_rank) fn begin(_rank: Rank) -> Self {
            Self
        }

        pub(in crate::lock_rank) fn end(self) -> Hold {
            Hold
        }
    }

    #[derive(Debug)]
    pub(in crate::lock_rank) struct Hold;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn waits_and_holds_are_counted() {
        let of = |name| {
            let times = lock_times().into_iter().find(|times| times.name == name);
            times.expect("a rank of this name")
        };
        let before = of("Cleaner::round").holds.counts.iter().sum::<u64>();
        let hold = Wait::begin(Rank::Cleaner).end();
        std::thread::sleep(std::time::Duration::from_millis(2));
        drop(hold);
        let after = of("Cleaner::round");
        assert!(after.holds.counts.iter().sum::<u64>() > before);
        assert!(after.holds.longest_ns >= 2_000_000 && after.waits.counts.iter().sum::<u64>() > 0);
    }
}
