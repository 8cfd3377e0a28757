//! Deaths of the programs of a mount, and when it is given up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of deaths in a row, of programs that have not come to serve, or have ended by themselves within [`SERVED_MIN`], after which
/// the mount is taken away.
const IN_A_ROW_MAX: u32 = 8;

/// Time for which a program must have served so that its death is no sign of a defect that lasts.
pub(super) const SERVED_MIN: Duration = Duration::from_secs(1);

/// Number of programs within [`DEFECTS_TIME`] that have ended by themselves, after which the mount is taken away, however long they
/// have served. One that was killed has no defect.
const DEFECTS_MAX: usize = 20;

/// See [`DEFECTS_MAX`].
const DEFECTS_TIME: Duration = Duration::from_secs(600);

/// Pause after a program that has not come to serve; twice as long after each one that follows.
const PAUSE: Duration = Duration::from_millis(25);

/// Deaths so far.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// Number of deaths in a row of programs that have not served for long.
    in_a_row: u32,
    /// Times of the last deaths of programs that nobody has killed.
    defects: VecDeque<Instant>,
}

impl Deaths {
    /// Notes the death of a program at `now`. It had served for `served`, if it had come to that.
    pub(super) fn note(&mut self, now: Instant, served: Option<Duration>, is_killed: bool) {
        // Someone who kills a program that serves shows no defect of it, however often.
        let has_served = served.is_some_and(|time| time >= SERVED_MIN || is_killed);
        self.in_a_row = if has_served { 1 } else { self.in_a_row + 1 };
        if !is_killed {
            self.defects.push_back(now);
        }
        while self.defects.front().is_some_and(|first| now - *first > DEFECTS_TIME) {
            self.defects.pop_front();
        }
    }

    /// Returns why the program is not to be started again; `None` if it is.
    pub(super) fn too_many(&self) -> Option<&'static str> {
        if self.in_a_row > IN_A_ROW_MAX {
            Some("nine in a row have not come to serve for a second")
        } else if self.defects.len() > DEFECTS_MAX {
            Some("it has ended more than twenty times in ten minutes")
        } else {
            None
        }
    }

    /// Returns the pause before the next program, after one that has not come to serve.
    pub(super) fn pause(&self) -> Duration {
        PAUSE * (1 << self.in_a_row.min(IN_A_ROW_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a program with a defect that served for a second each time was started for ever.
    #[test]
    fn programs_that_end_by_themselves_are_given_up() {
        let begun = Instant::now();
        let lives = |seconds: u64, is_killed| {
            let mut deaths = Deaths::default();
            let is_too_many = |count: &u64| {
                let life = Duration::from_secs(seconds);
                deaths.note(begun + life * *count as u32, Some(life), is_killed);
                deaths.too_many().is_some()
            };
            (1..1000).find(is_too_many)
        };
        assert_eq!(lives(1, false), Some(21));
        assert_eq!(lives(29, false), Some(21));
        assert_eq!(lives(31, false), None, "twenty in ten minutes");
        assert_eq!(lives(1, true), None, "someone has killed them");
        assert_eq!(lives(0, false), Some(9));
    }

    /// Regression: kills beside a load took the mount away, as soon as nine in a row came within a second of the one before.
    #[test]
    fn kills_of_programs_that_serve_are_no_defect() {
        let die = |served: Option<Duration>| {
            let mut deaths = Deaths::default();
            (1..1000).find(|_| {
                deaths.note(Instant::now(), served, true);
                deaths.too_many().is_some()
            })
        };
        assert_eq!(die(Some(Duration::ZERO)), None);
        assert_eq!(die(None), Some(9), "none has come to serve");
    }

    #[test]
    fn a_life_that_is_long_enough_begins_anew() {
        let mut deaths = Deaths::default();
        for _ in 0..8 {
            deaths.note(Instant::now(), None, true);
            assert_eq!(deaths.too_many(), None);
        }
        assert_eq!(deaths.pause(), PAUSE * 256);
        deaths.note(Instant::now(), Some(SERVED_MIN), true);
        assert_eq!(deaths.pause(), PAUSE * 2);
    }
}
