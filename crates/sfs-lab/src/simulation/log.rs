//! Segments, the blocks in them, and the open segment of each head.
//!
//! The log keeps the location and history of every block and the usage entry of every segment, as the
//! volume would. Clean segments are opened in LRF order.

use std::collections::VecDeque;

use sfs_core::format::{Group, Head, History, SegmentState, UsageEntry};
use sfs_core::policy::{self, VictimPolicy};

use super::counters::{SimulationCounters, bin};
use super::no_room::NoRoom;
use super::outcome::SegmentRank;
use super::space::VolumeSize;

/// Slot of a block that is not in the log.
const NOWHERE: u32 = u32::MAX;

/// Number of heads that have a group.
pub(super) const GROUP_HEADS: usize = 8;

/// Head of mixed remainders, after the heads of the groups.
pub(super) const MIXED_HEAD: Head = Head(GROUP_HEADS as u8 + 1);

/// Number of heads, the head of metadata included, which the laboratory does not write.
const HEADS: usize = GROUP_HEADS + 2;

/// The open segment of a head.
#[derive(Clone, Copy)]
struct OpenSegment {
    segment: u32,
    used_blocks: u32,
}

/// The mapping of a block.
#[derive(Clone, Copy)]
struct BlockState {
    slot: u32,
    /// History of the writes; its write count is zero before the first.
    history: History,
}

impl BlockState {
    const NONE: Self = Self { slot: NOWHERE, history: History { writes: 0, modified: 0 } };
}

/// The log.
pub(super) struct SegmentLog {
    segment_blocks: u32,
    /// Number of clean segments that the cleaner maintains.
    reserve_segments: u32,
    blocks: Vec<BlockState>,
    /// Block that was last written to each slot.
    block_of_slot: Vec<u32>,
    entries: Vec<UsageEntry>,
    clean: VecDeque<u32>,
    heads: [Option<OpenSegment>; HEADS],
}

impl SegmentLog {
    pub(super) fn new(space: &VolumeSize) -> Self {
        let slots = space.segments as usize * space.segment_blocks as usize;
        Self {
            segment_blocks: space.segment_blocks,
            reserve_segments: space.reserve_segments,
            blocks: vec![BlockState::NONE; space.blocks as usize],
            block_of_slot: vec![0; slots],
            entries: vec![UsageEntry::NEW; space.segments as usize],
            clean: (0..space.segments).collect(),
            heads: [None; HEADS],
        }
    }

    pub(super) fn entries(&self) -> &[UsageEntry] {
        &self.entries
    }

    pub(super) fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    pub(super) fn clean_segments(&self) -> u32 {
        self.clean.len() as u32
    }

    /// Returns whether the reserve is full.
    pub(super) fn has_reserve(&self) -> bool {
        self.clean_segments() >= self.reserve_segments
    }

    pub(super) fn history(&self, block: u32) -> Option<History> {
        let history = self.blocks[block as usize].history;
        (history.writes != 0).then_some(history)
    }

    /// Returns the group of the segment that contains the block, or contained it last.
    pub(super) fn group(&self, block: u32) -> Option<Group> {
        let slot = self.blocks[block as usize].slot;
        if slot == NOWHERE {
            return None;
        }
        self.entries[(slot / self.segment_blocks) as usize].data_group()
    }

    /// Returns the segment that contains the block, or contained it last.
    pub(super) fn segment_of(&self, block: u32) -> Option<u32> {
        let slot = self.blocks[block as usize].slot;
        (slot != NOWHERE).then(|| slot / self.segment_blocks)
    }

    /// Returns the block that was written to `slot` and its history, if the block still lives there.
    pub(super) fn live_at(&self, slot: u32) -> Option<(u32, History)> {
        let block = self.block_of_slot[slot as usize];
        let BlockState { slot: current, history } = self.blocks[block as usize];
        (current == slot).then_some((block, history))
    }

    /// Counts the live copy of the block in the log as dead, if there is one.
    pub(super) fn kill(&mut self, block: u32, victims: &mut dyn VictimPolicy, now: u32) {
        let BlockState { slot, history } = self.blocks[block as usize];
        if slot == NOWHERE {
            return;
        }
        let entry = &mut self.entries[(slot / self.segment_blocks) as usize];
        victims.note_death(entry, now);
        entry.live_blocks -= 1;
        entry.write_count_sum -= u64::from(history.write_count());
        entry.modified_sum -= u64::from(history.modified);
        self.blocks[block as usize].slot = NOWHERE;
    }

    /// Forgets the location of a block whose segment is cleaned. The usage entry does not change.
    pub(super) fn leave(&mut self, block: u32) {
        self.blocks[block as usize].slot = NOWHERE;
    }

    /// Forgets the history of a deleted block.
    pub(super) fn forget(&mut self, block: u32) {
        self.blocks[block as usize].history = BlockState::NONE.history;
    }

    pub(super) fn needs_segment(&self, head: Head) -> bool {
        self.heads[head.index()].is_none()
    }

    /// Opens the next clean segment for `head`, and gives it `group`.
    pub(super) fn open(&mut self, head: Head, group: Group, now: u32) -> Result<(), NoRoom> {
        let segment = self.clean.pop_front().ok_or(NoRoom)?;
        let state = SegmentState::Open;
        self.entries[segment as usize] =
            UsageEntry { state, head: Head::of(group), opened: now, ..UsageEntry::NEW };
        self.heads[head.index()] = Some(OpenSegment { segment, used_blocks: 0 });
        Ok(())
    }

    /// Returns the segments that will be opened next.
    pub(super) fn next_clean(&self, count: usize) -> impl Iterator<Item = u32> {
        self.clean.iter().copied().take(count)
    }

    /// Writes a block to the open segment of `head`, and seals the segment if it is full then.
    pub(super) fn append(&mut self, block: u32, history: History, head: Head, now: u32) {
        let open = &mut self.heads[head.index()];
        let Some(OpenSegment { segment, used_blocks }) = open else {
            unreachable!("the head was opened")
        };
        let slot = *segment * self.segment_blocks + *used_blocks;
        let entry = &mut self.entries[*segment as usize];
        entry.live_blocks += 1;
        entry.write_count_sum += u64::from(history.write_count());
        entry.modified_sum += u64::from(history.modified);
        *used_blocks += 1;
        if *used_blocks == self.segment_blocks {
            entry.state = SegmentState::Sealed;
            entry.sealed = now;
            *open = None;
        }
        self.block_of_slot[slot as usize] = block;
        self.blocks[block as usize] = BlockState { slot, history };
    }

    /// Seals the open segments of groups that are not in use.
    pub(super) fn close_unused(&mut self, is_in_use: impl Fn(Group) -> bool, now: u32) {
        for group in Group::first(GROUP_HEADS as u8).filter(|group| !is_in_use(*group)) {
            if let Some(open) = self.heads[Head::of(group).index()].take() {
                let entry = &mut self.entries[open.segment as usize];
                (entry.state, entry.sealed) = (SegmentState::Sealed, now);
            }
        }
    }

    /// Returns the Sealed segments with live blocks, the hottest first.
    pub(super) fn ranks(&self, now: u32) -> Vec<SegmentRank> {
        let is_live =
            |entry: &&UsageEntry| entry.state == SegmentState::Sealed && entry.live_blocks > 0;
        let rank = |entry: &UsageEntry| SegmentRank {
            hotness: policy::segment_hotness(entry, now),
            utilization: f64::from(entry.live_blocks) / f64::from(self.segment_blocks),
            group: entry.data_group().map_or(0, |group| group.0),
        };
        let mut ranks: Vec<_> = self.entries.iter().filter(is_live).map(rank).collect();
        ranks.sort_by(|a, b| b.hotness.total_cmp(&a.hotness));
        ranks
    }

    /// Returns the Sealed segment with the highest score above zero.
    pub(super) fn best_victim(&self, victims: &dyn VictimPolicy, now: u32) -> Result<u32, NoRoom> {
        let mut best = (0.0, None);
        for (segment, entry) in (0..).zip(&self.entries) {
            if entry.state == SegmentState::Sealed {
                let score = victims.score(entry, self.segment_blocks, now);
                if score > best.0 {
                    best = (score, Some(segment));
                }
            }
        }
        best.1.ok_or(NoRoom)
    }

    /// Takes a victim out of the Sealed segments. Returns its usage entry.
    pub(super) fn take(&mut self, segment: u32) -> UsageEntry {
        let entry = &mut self.entries[segment as usize];
        let before = *entry;
        entry.state = SegmentState::Drained;
        before
    }

    /// Frees an empty victim. Its group stays until the segment is opened, for blocks in the buffer that
    /// came from it.
    pub(super) fn free(&mut self, segment: u32) {
        let entry = &mut self.entries[segment as usize];
        let head = entry.head;
        *entry = UsageEntry { head, ..UsageEntry::NEW };
        self.clean.push_back(segment);
    }

    /// Adds the Sealed segments to the histogram of the volume, and counts the room that holds no data.
    pub(super) fn sample(&self, counters: &mut SimulationCounters) {
        let unwritten =
            self.heads.iter().flatten().map(|open| self.segment_blocks - open.used_blocks);
        let clean = self.clean_segments() * self.segment_blocks;
        counters.withheld_blocks += u64::from(clean + unwritten.sum::<u32>());
        counters.samples += 1;
        for entry in self.entries.iter().filter(|entry| entry.state == SegmentState::Sealed) {
            counters.histogram_volume[bin(entry.live_blocks, self.segment_blocks)] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a head is one higher than its group, because head 0 is metadata. If
    /// `close_unused` confuses the two, it closes a segment that is in use, and a simulation does
    /// not end.
    #[test]
    fn only_segments_of_unused_groups_are_closed() {
        let space = VolumeSize { blocks: 64, segments: 16, segment_blocks: 8, reserve_segments: 2 };
        let mut log = SegmentLog::new(&space);
        for group in Group::first(3) {
            log.open(Head::of(group), group, 1).expect("a Clean segment");
        }
        log.close_unused(|group| group != Group(1), 2);
        let needs = Group::first(3).map(|group| log.needs_segment(Head::of(group)));
        assert_eq!(needs.collect::<Vec<_>>(), [false, true, false]);
    }
}
