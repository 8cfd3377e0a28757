//! Withheld segments: the last ones of a volume that shrinks, which are not opened any more.

use super::clean_queue::CleanQueue;
use super::{UsageTable, WITHHELD_STAMP, is_unused};
use crate::format::{SegmentState, UsageEntry};

impl UsageTable {
    /// Opens none of the segments from `first` on any more. Their stamps put them at the end of the order of allocation,
    /// which roll-forward follows, too: the next checkpoint must be durable before anything else is written.
    pub(crate) fn withhold(&mut self, first: u32) {
        self.withheld_from = Some(first);
        for segment in first..self.layout.segment_count {
            if self.entries[segment as usize].state == SegmentState::Clean {
                self.edit(segment).stamp = WITHHELD_STAMP;
            }
        }
        self.clean = CleanQueue::new(&self.entries);
        self.withheld_clean = self.clean.iter().filter(|segment| *segment >= first).count();
    }

    /// Gives the segments that a shrink has withheld, before a crash or in this mount, a place in the order of allocation: after
    /// all that were freed before chunk number `sequence`. Returns them. As with [`UsageTable::withhold`], the next checkpoint must be
    /// durable before anything else is written.
    pub(crate) fn give_back(&mut self, sequence: u64) -> Vec<u32> {
        (self.withheld_from, self.withheld_clean) = (None, 0);
        let is_withheld = |entry: &UsageEntry| {
            entry.stamp == WITHHELD_STAMP
                && matches!(entry.state, SegmentState::Clean | SegmentState::Drained)
        };
        let numbered = (0..).zip(&self.entries).filter(|(_, entry)| is_withheld(entry));
        let withheld: Vec<u32> = numbered.map(|(segment, _)| segment).collect();
        self.set_stamps(&withheld, sequence);
        withheld
    }

    /// Takes back what [`UsageTable::give_back`] has done, if no checkpoint could be written.
    pub(crate) fn keep_back(&mut self, withheld: &[u32]) {
        self.set_stamps(withheld, WITHHELD_STAMP);
    }

    /// Sets the places of Clean and Drained segments in the order of allocation.
    fn set_stamps(&mut self, segments: &[u32], stamp: u64) {
        for &segment in segments {
            let old = (self.entries[segment as usize].stamp, segment);
            self.edit(segment).stamp = stamp;
            for set in [&mut self.releasable, &mut self.pinned] {
                if set.remove(&old) {
                    set.insert((stamp, segment));
                }
            }
        }
        self.clean = CleanQueue::new(&self.entries);
    }

    /// Returns whether `segment` is not opened any more.
    pub(crate) fn is_withheld(&self, segment: u32) -> bool {
        self.withheld_from.is_some_and(|first| segment >= first)
    }

    /// Returns the withheld segments that are neither Clean nor Bad.
    pub(crate) fn withheld_in_use(&self) -> impl Iterator<Item = (u32, &UsageEntry)> {
        let first = self.withheld_from.unwrap_or(self.layout.segment_count);
        let withheld = (first..).zip(&self.entries[first as usize..]);
        withheld.filter(|(_, entry)| !is_unused(entry))
    }
}
