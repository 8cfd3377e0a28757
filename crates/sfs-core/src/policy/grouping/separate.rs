//! SepGC: separates the blocks that users write from the blocks that the cleaner moves.

use super::{Candidate, GroupingPolicy};
use crate::format::Group;
use crate::policy::SavedState;

/// Assigns group 0 to blocks that users write, and group 1 to blocks that the cleaner moves
/// (SepGC).
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
