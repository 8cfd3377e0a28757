//! One group: a log as LFS writes it, user and cleaned blocks as they come.
//!
//! Owns: nothing.
//! Promises: every block goes to group 0.
//! Never: looks at a block.

use super::{Candidate, GroupingPolicy};
use crate::policy::SavedState;

/// Everything in one group.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleGroup;

impl SavedState for SingleGroup {
    const STATE_LEN_MAX: usize = 0;
}

impl GroupingPolicy for SingleGroup {
    fn name(&self) -> &'static str {
        "none"
    }

    fn group_count(&self) -> u8 {
        1
    }

    fn group(&self, _candidate: &Candidate, _now: u32) -> u8 {
        0
    }
}
