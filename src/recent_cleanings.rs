//! The last cleaning rounds of a mount, with their times: the volume reports rounds, and has no clock.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;
use sfs_core::{Cleaned, CleaningObserver};

use crate::stat_report::CleaningReport;

/// Number of rounds that are kept.
const ROUNDS_MAX: usize = 32;

/// A round that has ended.
struct Round {
    ended: Instant,
    millis: u64,
    cleaned: Cleaned,
}

/// The last cleaning rounds, the newest first.
pub(crate) struct RecentCleanings {
    /// Numbers for the volume count milliseconds from here.
    start: Instant,
    rounds: Mutex<VecDeque<Round>>,
}

impl Default for RecentCleanings {
    fn default() -> Self {
        let rounds = VecDeque::with_capacity(ROUNDS_MAX);
        Self { start: Instant::now(), rounds: Mutex::new(rounds) }
    }
}

impl RecentCleanings {
    /// Returns the rounds, the newest first.
    pub(crate) fn report(&self) -> Vec<CleaningReport> {
        let rounds = self.rounds.lock();
        let report = |Round { ended, millis, cleaned }: &Round| CleaningReport {
            secs_ago: ended.elapsed().as_secs(),
            victims: cleaned.victims,
            moved_bytes: cleaned.moved_bytes,
            freed_bytes: cleaned.freed_bytes,
            millis: *millis,
        };
        rounds.iter().map(report).collect()
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl CleaningObserver for RecentCleanings {
    fn begun(&self) -> u64 {
        self.millis()
    }

    fn finished(&self, begun: u64, cleaned: Cleaned) {
        let millis = self.millis().saturating_sub(begun);
        let mut rounds = self.rounds.lock();
        rounds.truncate(ROUNDS_MAX - 1);
        rounds.push_front(Round { ended: Instant::now(), millis, cleaned });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rounds_are_kept() {
        let recent = RecentCleanings::default();
        for no in 0..40 {
            let cleaned = Cleaned { victims: no, moved_bytes: 4096, freed_bytes: 8192 };
            recent.finished(recent.begun(), cleaned);
        }
        let victims: Vec<_> = recent.report().iter().map(|round| round.victims).collect();
        assert_eq!(victims, (8..40).rev().collect::<Vec<_>>());
        assert_eq!(recent.report()[0].freed_bytes, 8192);
    }
}
