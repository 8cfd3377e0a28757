//! Heads: one open segment for each group, and one for metadata.

use crate::format::{Group, HEADS_MAX, Head, HeadRecord, Layout};
use crate::segments::UsageTable;

/// Minimum number of blocks left in a segment for a new chunk: a summary, and data or more delta.
pub(crate) const CHUNK_BLOCKS_MIN: u32 = 2;

/// Position at which a head appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadPosition {
    /// The open segment.
    pub(crate) segment: u32,
    /// Next block in the segment.
    pub(crate) next_block: u32,
}

/// Heads of the log, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads([Option<HeadPosition>; HEADS_MAX]);

impl Heads {
    pub(crate) fn get(&self, head: Head) -> Option<HeadPosition> {
        self.0[head.index()]
    }

    pub(crate) fn set(&mut self, head: Head, position: HeadPosition) {
        self.0[head.index()] = Some(position);
    }

    /// Returns the open heads with their positions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Head, HeadPosition)> {
        Head::first(HEADS_MAX as u8).zip(self.0).filter_map(|(head, at)| Some((head, at?)))
    }

    pub(crate) fn records(&self) -> Vec<HeadRecord> {
        self.iter()
            .map(|(head, at)| HeadRecord { head, segment: at.segment, next_block: at.next_block })
            .collect()
    }

    /// Returns the number of blocks that `head` can append before it needs another segment.
    pub(crate) fn room_blocks(&self, head: Head, layout: &Layout) -> u32 {
        self.get(head).map_or(0, |at| layout.segment_blocks - at.next_block)
    }

    /// Opens a segment for `head` if the open one has no room for a chunk. Returns the address of the next chunk
    /// and the blocks left in the segment; `None` if no segment is Clean.
    pub(crate) fn ready(
        &mut self,
        head: Head,
        layout: &Layout,
        usage: &mut UsageTable,
        sequence: u64,
    ) -> Option<(u64, u32)> {
        if self.room_blocks(head, layout) < CHUNK_BLOCKS_MIN {
            let segment = usage.open(head, sequence)?;
            self.switch(head, segment, usage);
        }
        let at = self.get(head)?;
        let address = layout.segment_address(at.segment) + u64::from(at.next_block);
        Some((address, layout.segment_blocks - at.next_block))
    }

    /// Seals the segment that `head` was writing to and goes on at the start of `segment`.
    pub(crate) fn switch(&mut self, head: Head, segment: u32, usage: &mut UsageTable) {
        if let Some(old) = self.get(head) {
            usage.seal(old.segment);
        }
        self.set(head, HeadPosition { segment, next_block: 0 });
    }

    /// Returns the open heads of groups that are not in use.
    pub(crate) fn unused(
        &self,
        is_in_use: impl Fn(Group) -> bool,
    ) -> impl Iterator<Item = (Head, HeadPosition)> {
        self.iter().filter(move |(head, _)| head.group().is_some_and(|group| !is_in_use(group)))
    }

    /// Seals the segment that `head` was writing to, if there is one. The rest of the segment is lost until it is
    /// cleaned.
    pub(crate) fn close(&mut self, head: Head, usage: &mut UsageTable) {
        if let Some(old) = self.0[head.index()].take() {
            usage.seal(old.segment);
        }
    }

    /// Advances `head` by `blocks`, the number of blocks that it has appended.
    pub(crate) fn advance(&mut self, head: Head, blocks: u32, layout: &Layout) {
        let at = self.0[head.index()].as_mut().expect("an appending head is open");
        at.next_block += blocks;
        assert!(at.next_block <= layout.segment_blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SegmentState;

    #[test]
    fn only_heads_of_unused_groups_are_unused() {
        let layout = Layout::new(2100, 32, 0).expect("the layout fits");
        let mut usage = UsageTable::new(layout, 0);
        let mut heads = Heads::default();
        for head in Head::first(4) {
            heads.ready(head, &layout, &mut usage, 1).expect("a Clean segment");
        }
        let (head, at) = heads.unused(|group| group != Group(1)).next().expect("group 1 is unused");
        assert_eq!((head, heads.unused(|group| group != Group(1)).count()), (Head(2), 1));
        heads.close(head, &mut usage);
        assert_eq!(heads.iter().map(|(no, _)| no).collect::<Vec<_>>(), [Head(0), Head(1), Head(3)]);
        assert_eq!(usage.entry(at.segment).state, SegmentState::Sealed);
    }
}
