//! Checks of the usage table: of entries that were read from a device, and of the totals and sets in memory.

use super::{Freed, UsageTable, holds_nodes};
use crate::format::{Corruption, CorruptionKind, History, Layout, SegmentState, UsageEntry};

impl UsageTable {
    /// Checks that the entries read from a device are consistent: their number, live blocks and sums.
    pub(crate) fn check(layout: &Layout, entries: &[UsageEntry]) -> Result<(), Corruption> {
        let wrong = |at| Corruption::in_usage_entry(at, CorruptionKind::Count);
        if entries.len() != layout.segment_count as usize {
            // The first entry that is missing or beyond the last segment.
            return Err(wrong(layout.segment_count.min(entries.len() as u32)));
        }
        let sums = |entry: &UsageEntry| {
            let live = u64::from(entry.live_blocks);
            entry.write_count_sum <= live * u64::from(History::WRITE_COUNT_MAX)
                && entry.modified_sum <= live * u64::from(u32::MAX)
        };
        let sound = |entry: &UsageEntry| {
            sums(entry)
                && match entry.state {
                    SegmentState::Open | SegmentState::Sealed | SegmentState::InPlace => {
                        entry.live_blocks <= layout.segment_blocks
                    }
                    SegmentState::Clean | SegmentState::Drained | SegmentState::Bad => {
                        entry.live_blocks == 0
                    }
                }
        };
        match entries.iter().position(|entry| !sound(entry)) {
            Some(segment) => Err(wrong(segment as u32)),
            None => Ok(()),
        }
    }

    /// Returns whether totals, sets and allocator agree with the entries.
    pub(crate) fn is_coherent(&self) -> bool {
        let mut stamps = vec![None; self.entries.len()];
        let freed = self.releasable.iter().chain(&self.pinned);
        let clean: Vec<Freed> =
            self.clean.iter().map(|no| (self.entries[no as usize].stamp, no)).collect();
        if !clean.is_sorted() {
            return false;
        }
        let clean = clean.iter().map(|freed| (freed, SegmentState::Clean));
        for ((stamp, no), state) in clean.chain(freed.map(|freed| (freed, SegmentState::Drained))) {
            if stamps[*no as usize].replace((*stamp, state)).is_some() {
                return false;
            }
        }
        let queued = |entry: &UsageEntry| match entry.state {
            SegmentState::Clean | SegmentState::Drained => Some((entry.stamp, entry.state)),
            SegmentState::Open
            | SegmentState::Sealed
            | SegmentState::Bad
            | SegmentState::InPlace => None,
        };
        let live = |entry: &UsageEntry| u64::from(entry.live_blocks);
        let nodes = self.entries.iter().filter(|entry| holds_nodes(entry)).map(live).sum();
        let (live_blocks, live_nodes): (u64, u64) = (self.entries.iter().map(live).sum(), nodes);
        self.entries.iter().map(queued).eq(stamps)
            && (self.live_blocks, self.live_nodes) == (live_blocks, live_nodes)
            && self.is_allocator_coherent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_another_length_names_the_first_entry_that_is_missing_or_too_much() {
        let layout = Layout::new(1 << 16, 256, 0).expect("a layout");
        let count = layout.segment_count;
        for (len, first_wrong) in [(count - 2, count - 2), (count + 9, count)] {
            let entries = vec![UsageEntry::NEW; len as usize];
            let wrong = Corruption::in_usage_entry(first_wrong, CorruptionKind::Count);
            assert_eq!(UsageTable::check(&layout, &entries), Err(wrong));
        }
    }
}
