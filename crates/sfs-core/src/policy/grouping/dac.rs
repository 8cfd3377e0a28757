//! Dynamic data clustering: a write by the user moves a block up one group, a move by the cleaner down one.
//!
//! The block's current group is the only state.

use super::{Candidate, GroupingPolicy};
use crate::format::Group;
use crate::policy::{GROUPS_MAX, SavedState};

/// Dynamic data clustering (Chiang, Lee, Chang 1999). Group 0 is the coldest; new blocks begin in it.
#[derive(Clone, Copy, Debug)]
pub struct Dac {
    groups: u8,
}

impl Dac {
    /// Number of groups that comparisons in the literature use.
    pub const GROUPS: u8 = 6;

    /// Returns the policy with `groups` groups, clamped to 1..=[`GROUPS_MAX`].
    pub fn new(groups: u8) -> Self {
        Self { groups: groups.clamp(1, GROUPS_MAX) }
    }
}

impl SavedState for Dac {
    const STATE_LEN_MAX: usize = 0;
}

impl GroupingPolicy for Dac {
    fn name(&self) -> &'static str {
        "dac"
    }

    fn group_count(&self) -> u8 {
        self.groups
    }

    fn group(&self, candidate: &Candidate, _now: u32) -> Group {
        let hottest = self.groups - 1;
        match candidate.group {
            None => Group(0),
            Some(Group(group)) if candidate.cleaning => Group(group.min(hottest).saturating_sub(1)),
            Some(Group(group)) => Group(group.saturating_add(1).min(hottest)),
        }
    }
}
