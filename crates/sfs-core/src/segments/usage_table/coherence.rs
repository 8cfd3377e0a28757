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

    /// Checks that sets, allocator and totals agree with the entries. The error names the first segment that does not
    /// agree; wrong totals are an error of inode 0, whose items are the table.
    pub(crate) fn check_coherence(&self) -> Result<(), Corruption> {
        let segment = self.first_misqueued().or_else(|| self.first_misallocated());
        if let Some(segment) = segment {
            return Err(Corruption::in_usage_entry(segment, CorruptionKind::Count));
        }
        match self.has_right_totals() {
            true => Ok(()),
            false => Err(Corruption::in_item(0, CorruptionKind::Count)),
        }
    }

    /// Returns a segment that is in the wrong set of Clean or Drained segments, at the wrong place, or in none.
    fn first_misqueued(&self) -> Option<u32> {
        let clean: Vec<Freed> =
            self.clean.iter().map(|no| (self.entries[no as usize].stamp, no)).collect();
        if let Some(pair) = clean.windows(2).find(|pair| pair[0] > pair[1]) {
            return Some(pair[1].1);
        }
        let clean = clean.into_iter().map(|freed| (freed, SegmentState::Clean));
        let drained = self.releasable.iter().chain(&self.pinned);
        let drained = drained.map(|freed| (*freed, SegmentState::Drained));
        let mut queued = vec![None; self.entries.len()];
        for ((stamp, no), state) in clean.chain(drained) {
            if queued[no as usize].replace((stamp, state)).is_some() {
                return Some(no);
            }
        }
        let expected = |entry: &UsageEntry| match entry.state {
            SegmentState::Clean | SegmentState::Drained => Some((entry.stamp, entry.state)),
            SegmentState::Open
            | SegmentState::Sealed
            | SegmentState::Bad
            | SegmentState::InPlace => None,
        };
        let position =
            self.entries.iter().zip(queued).position(|(entry, at)| expected(entry) != at);
        position.map(|segment| segment as u32)
    }

    /// Returns whether the totals are the sums of the entries.
    fn has_right_totals(&self) -> bool {
        let live = |entry: &UsageEntry| u64::from(entry.live_blocks);
        let nodes = self.entries.iter().filter(|entry| holds_nodes(entry)).map(live);
        let in_place = self.entries.iter().filter(|entry| entry.state == SegmentState::InPlace);
        self.live_blocks == self.entries.iter().map(live).sum::<u64>()
            && self.live_nodes == nodes.sum::<u64>()
            && self.in_place_segments as usize == in_place.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Head;

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

    /// Returns a table with segments in all states and sets: 0 is Sealed, 1 is Drained and releasable, 2 is Drained and
    /// pinned, the others are Clean.
    fn table() -> UsageTable {
        let layout = Layout::new(1 << 16, 256, 0).expect("a layout");
        let mut table = UsageTable::new(layout, 0);
        let [data, nodes] = [Head(1), Head::METADATA];
        for (head, live_blocks) in [(data, 1), (data, 0), (nodes, 0)] {
            let segment = table.open(head, 1).expect("a Clean segment");
            (0..live_blocks).for_each(|_| table.add_node(layout.segment_address(segment)));
            table.seal(segment);
        }
        table.recent.clear();
        table.settle_sealed(7);
        table
    }

    #[test]
    fn an_incoherent_table_names_the_segment() {
        assert_eq!(table().check_coherence(), Ok(()));
        type Forge = fn(&mut UsageEntry);
        let cases: [(u32, Forge); 5] = [
            (0, |entry| entry.state = SegmentState::Drained),
            (1, |entry| entry.stamp += 1),
            (2, |entry| entry.state = SegmentState::Clean),
            (9, |entry| entry.state = SegmentState::Sealed),
            (40, |entry| entry.state = SegmentState::Drained),
        ];
        for (segment, change) in cases {
            let mut table = table();
            table.forge(segment, change);
            let wrong = Corruption::in_usage_entry(segment, CorruptionKind::Count);
            assert_eq!(table.check_coherence(), Err(wrong));
        }
    }

    #[test]
    fn a_clean_segment_out_of_order_is_named() {
        let mut table = table();
        table.forge(20, |entry| entry.stamp = 1);
        let wrong = Corruption::in_usage_entry(21, CorruptionKind::Count);
        assert_eq!(table.check_coherence(), Err(wrong), "segment 21 comes after a higher stamp");
    }

    #[test]
    fn wrong_totals_are_an_error_of_the_whole_table() {
        let changes: [fn(&mut UsageTable); 3] = [
            |table| table.live_blocks += 1,
            |table| table.live_nodes += 1,
            |table| table.in_place_segments += 1,
        ];
        for change in changes {
            let mut table = table();
            change(&mut table);
            let wrong = Corruption::in_item(0, CorruptionKind::Count);
            assert_eq!(table.check_coherence(), Err(wrong));
        }
    }
}
