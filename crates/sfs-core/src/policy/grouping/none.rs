//! One group for all blocks: the log of LFS, without separation.

use super::{Candidate, GroupingPolicy};
use crate::format::Group;
use crate::policy::SavedState;

/// Writes all blocks to group 0.
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

    fn group(&self, _candidate: &Candidate, _now: u32) -> Group {
        Group(0)
    }
}
