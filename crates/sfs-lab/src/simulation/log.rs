//! Segments and the blocks in them.
//!
//! Owns: locations, histories, usage entries, heads, and the queue of clean segments.
//! Promises: usage entries are what the volume's would be; clean segments are opened least recently
//! freed first.
//! Never: chooses a group or a victim.

use std::collections::VecDeque;

use sfs_core::format::{Group, Head, History, SegmentState, UsageEntry};
use sfs_core::policy::VictimPolicy;

use super::counters::{Counters, bin};
use super::space::Space;

/// A block that is not in the log.
const NOWHERE: u32 = u32::MAX;

/// Heads: one for each group, and one for mixed remainders.
pub(super) const MIXED_HEAD: u8 = 8;

#[derive(Clone, Copy)]
struct OpenSegment {
    segment: u32,
    used: u32,
}

/// What the mapping has of a block.
#[derive(Clone, Copy)]
struct Block {
    slot: u32,
    /// Of a block that was never written: without writes.
    history: History,
}

impl Block {
    const NONE: Self = Self { slot: NOWHERE, history: History { writes: 0, modified: 0 } };
}

pub(super) struct Log {
    segment_blocks: u32,
    pub(super) reserve: u32,
    blocks: Vec<Block>,
    /// Block of each slot.
    block: Vec<u32>,
    entries: Vec<UsageEntry>,
    clean: VecDeque<u32>,
    heads: [Option<OpenSegment>; MIXED_HEAD as usize + 1],
}

impl Log {
    pub(super) fn new(space: &Space) -> Self {
        let slots = space.segments as usize * space.segment_blocks as usize;
        Self {
            segment_blocks: space.segment_blocks,
            reserve: space.reserve,
            blocks: vec![Block::NONE; space.blocks as usize],
            block: vec![0; slots],
            entries: vec![UsageEntry::NEW; space.segments as usize],
            clean: (0..space.segments).collect(),
            heads: [None; MIXED_HEAD as usize + 1],
        }
    }

    pub(super) fn entries(&self) -> &[UsageEntry] {
        &self.entries
    }

    pub(super) fn segment_blocks(&self) -> u32 {
        self.segment_blocks
    }

    pub(super) fn clean_count(&self) -> u32 {
        self.clean.len() as u32
    }

    pub(super) fn history(&self, block: u32) -> Option<History> {
        let history = self.blocks[block as usize].history;
        (history.writes != 0).then_some(history)
    }

    /// The group of the segment that it is in, or was in last.
    pub(super) fn group(&self, block: u32) -> Option<u8> {
        let slot = self.blocks[block as usize].slot;
        if slot == NOWHERE {
            return None;
        }
        self.entries[(slot / self.segment_blocks) as usize].data_group()
    }

    /// The segment that it is in, or was in last.
    pub(super) fn segment_of(&self, block: u32) -> Option<u32> {
        let slot = self.blocks[block as usize].slot;
        (slot != NOWHERE).then(|| slot / self.segment_blocks)
    }

    /// The block that was written to `slot` and its history, if it still lives there.
    pub(super) fn live_at(&self, slot: u32) -> Option<(u32, History)> {
        let block = self.block[slot as usize];
        let Block { slot: place, history } = self.blocks[block as usize];
        (place == slot).then_some((block, history))
    }

    /// The copy in the log dies, if there is one that lives.
    pub(super) fn kill(&mut self, block: u32, victims: &mut dyn VictimPolicy, now: u32) {
        let Block { slot, history } = self.blocks[block as usize];
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

    /// It was copied out of a segment that is empty now: nothing of it is in the log.
    pub(super) fn leave(&mut self, block: u32) {
        self.blocks[block as usize].slot = NOWHERE;
    }

    /// It is deleted.
    pub(super) fn forget(&mut self, block: u32) {
        self.blocks[block as usize].history = Block::NONE.history;
    }

    pub(super) fn needs_segment(&self, head: u8) -> bool {
        self.heads[usize::from(head)].is_none()
    }

    pub(super) fn open(&mut self, head: u8, group: u8, now: u32) {
        let segment = self.clean.pop_front().expect("the reserve holds a segment for every head");
        let state = SegmentState::Open;
        self.entries[segment as usize] =
            UsageEntry { state, head: Head::of(Group(group)), opened: now, ..UsageEntry::NEW };
        self.heads[usize::from(head)] = Some(OpenSegment { segment, used: 0 });
    }

    /// The segments that will be opened next.
    pub(super) fn next_clean(&self, count: usize) -> impl Iterator<Item = u32> {
        self.clean.iter().copied().take(count)
    }

    pub(super) fn append(&mut self, block: u32, history: History, head: u8, now: u32) {
        let place = &mut self.heads[usize::from(head)];
        let Some(OpenSegment { segment, used }) = place else {
            unreachable!("the head was opened")
        };
        let slot = *segment * self.segment_blocks + *used;
        let entry = &mut self.entries[*segment as usize];
        entry.live_blocks += 1;
        entry.write_count_sum += u64::from(history.write_count());
        entry.modified_sum += u64::from(history.modified);
        *used += 1;
        if *used == self.segment_blocks {
            entry.state = SegmentState::Sealed;
            entry.sealed = now;
            *place = None;
        }
        self.block[slot as usize] = block;
        self.blocks[block as usize] = Block { slot, history };
    }

    /// A victim is being emptied: it is no longer Sealed.
    pub(super) fn take(&mut self, segment: u32) -> UsageEntry {
        let entry = &mut self.entries[segment as usize];
        let before = *entry;
        entry.state = SegmentState::Drained;
        before
    }

    /// A victim is empty. Its group stays until it is opened: blocks that wait came from it.
    pub(super) fn free(&mut self, segment: u32) {
        let entry = &mut self.entries[segment as usize];
        let head = entry.head;
        *entry = UsageEntry { head, ..UsageEntry::NEW };
        self.clean.push_back(segment);
    }

    pub(super) fn sample(&self, counters: &mut Counters) {
        for entry in self.entries.iter().filter(|entry| entry.state == SegmentState::Sealed) {
            counters.histogram_volume[bin(entry.live_blocks, self.segment_blocks)] += 1;
        }
    }
}
