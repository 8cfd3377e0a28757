//! Actions of a repair that are not edits of the tree.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::repair::loss::Loss;

/// Actions of a repair besides the edits of its tree.
#[derive(Default)]
pub(crate) struct RepairPlan {
    /// Blocks of files that get a copy of their own, by inode and block.
    pub(crate) copies: BTreeSet<(u64, u32)>,
    /// Addresses of leaves that are written again with the same items.
    pub(crate) rewrites: BTreeSet<u64>,
    /// Lowest inode number for new files.
    pub(crate) next_ino: u64,
    /// Losses so far.
    pub(crate) losses: BTreeSet<Loss>,
}

impl RepairPlan {
    /// Returns whether the plan fixes `finding` without an edit.
    pub(crate) fn covers(&self, finding: &Finding) -> bool {
        match *finding {
            Finding::MappingUnknown { ino, block, .. }
            | Finding::MappingShared { ino, block, .. } => self.copies.contains(&(ino, block)),
            Finding::NodeUnknown { address } | Finding::NodeShared { address } => {
                self.rewrites.contains(&address)
            }
            // Every repair writes the usage table and the totals anew, and adds the features that are missing.
            Finding::UsageExcess { .. }
            | Finding::FlagFeature { .. }
            | Finding::ReservationTotals { .. } => true,
            _ => false,
        }
    }
}
