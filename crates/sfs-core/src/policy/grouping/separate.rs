//! SepGC: separates the blocks that users write from those that the cleaner moves.

use super::{Candidate, GroupingPolicy};
use crate::format::Group;
use crate::policy::SavedState;

/// Group 0 for blocks that users write, group 1 for blocks that the cleaner moves (SepGC).
#[derive(Clone, Copy, Debug, Default)]
pub struct SeparateCleaning;

impl SavedState for SeparateCleaning {
    const STATE_LEN_MAX: usize = 0;
}

impl GroupingPolicy for SeparateCleaning {
    fn name(&self) -> &'static str {
        "sep-gc"
    }

    fn group_count(&self) -> u8 {
        2
    }

    fn group(&self, candidate: &Candidate, _now: u32) -> Group {
        Group(candidate.cleaning.into())
    }
}
