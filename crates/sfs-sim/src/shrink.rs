//! Shrinking: the search for a smaller case that still fails.
//!
//! The result violates the contract as well, perhaps in another way. The search ends after a fixed number of
//! checked states.

use sfs_core::format::DataLayout;

use crate::ace;
use crate::case::Case;
use crate::explore::{CaseFailure, explore_case};

/// Maximum number of states that the search checks.
const STATES_MAX: u64 = 30_000;

/// Returns a failure of the smallest failing case that was found.
pub fn shrink(failure: CaseFailure) -> CaseFailure {
    let mut search = Search { left: STATES_MAX, best: failure };
    match search.best.case.clone() {
        Case::Sequence { data_layout, seed, index } => search.shorten(data_layout, seed, index),
        Case::Scenario { data_layout, seed, steps } => search.drop_steps(data_layout, seed, steps),
    }
    search.best
}

struct Search {
    /// Number of states that may still be checked.
    left: u64,
    best: CaseFailure,
}

impl Search {
    /// Returns whether `case` fails as well; the failure of a failing case becomes the best one.
    fn fails(&mut self, case: &Case) -> bool {
        let mut left = self.left;
        let outcome = explore_case(case, None, |checked| {
            left = left.saturating_sub(checked);
            left > 0
        });
        self.left = left;
        outcome.map_err(|failure| self.best = failure).is_err()
    }

    /// Tries each operation of the sequence alone.
    fn shorten(&mut self, data_layout: DataLayout, seed: u64, index: u64) {
        let steps = ace::sequence(index);
        let simpler = (0..ace::SINGLES).filter(|single| {
            let (recipe, _) = ace::sequence(*single)[0];
            steps.len() > 1 && steps.iter().any(|(of, _)| *of == recipe)
        });
        for index in simpler {
            if self.fails(&Case::Sequence { data_layout, seed, index }) {
                return;
            }
        }
    }

    /// Removes runs of steps, long ones first (delta debugging).
    fn drop_steps(&mut self, data_layout: DataLayout, seed: u64, mut steps: Vec<u32>) {
        let mut len = steps.len().div_ceil(2);
        while len > 0 && self.left > 0 {
            let mut at = 0;
            while at < steps.len() && self.left > 0 {
                let mut fewer = steps.clone();
                fewer.drain(at..(at + len).min(steps.len()));
                match self.fails(&Case::Scenario { data_layout, seed, steps: fewer.clone() }) {
                    true => steps = fewer,
                    false => at += len,
                }
            }
            len /= 2;
        }
    }
}
