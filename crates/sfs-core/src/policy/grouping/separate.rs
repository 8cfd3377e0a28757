//! SepGC: what the cleaner moves apart from what users write.
//!
//! Owns: nothing.
//! Promises: group 0 is written by users, group 1 by the cleaner.
//! Never: looks at a block's history.

use super::{Candidate, GroupingPolicy};
use crate::policy::SavedState;

/// What users write apart from what the cleaner moves (SepGC).
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

    fn group(&self, candidate: &Candidate, _now: u32) -> u8 {
        u8::from(candidate.cleaning)
    }
}
