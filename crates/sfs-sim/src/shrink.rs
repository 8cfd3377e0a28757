//! Shrinking: a failure's case is made smaller as long as something is still wrong.
//!
//! Owns: the search.
//! Promises: what it gives violates the contract, too, though perhaps in another way; it ends.
//! Never: takes longer than so many states.

use sfs_core::format::DataLayout;

use crate::ace;
use crate::case::Case;
use crate::explore::{Failure, run};

/// States that the search may look at.
const STATES_MAX: u64 = 30_000;

/// A failure like `failure`, of a case that is as small as could be found.
pub fn shrink(failure: Failure) -> Failure {
    let mut search = Search { left: STATES_MAX, best: failure };
    match search.best.case.clone() {
        Case::Sequence { data_layout, seed, index } => search.shorten(data_layout, seed, index),
        Case::World { data_layout, seed, steps } => search.drop_steps(data_layout, seed, steps),
    }
    search.best
}

struct Search {
    left: u64,
    best: Failure,
}

impl Search {
    /// Whether something is wrong with `case`, too, which then is the best so far.
    fn fails(&mut self, case: &Case) -> bool {
        let mut left = self.left;
        let outcome = run(case, None, |looked| {
            left = left.saturating_sub(looked);
            left > 0
        });
        self.left = left;
        outcome.map_err(|failure| self.best = failure).is_err()
    }

    /// Either operation alone.
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

    /// Leaves out runs of steps, long ones first (delta debugging).
    fn drop_steps(&mut self, data_layout: DataLayout, seed: u64, mut steps: Vec<u32>) {
        let mut len = steps.len().div_ceil(2);
        while len > 0 && self.left > 0 {
            let mut at = 0;
            while at < steps.len() && self.left > 0 {
                let mut fewer = steps.clone();
                fewer.drain(at..(at + len).min(steps.len()));
                match self.fails(&Case::World { data_layout, seed, steps: fewer.clone() }) {
                    true => steps = fewer,
                    false => at += len,
                }
            }
            len /= 2;
        }
    }
}
