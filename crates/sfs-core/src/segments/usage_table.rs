//! The usage table: what is in each segment, and which segments may be opened.
//!
//! Owns: every segment's state and sums, the queue of Clean segments, and the write clock.
//! Promises: the states of `docs/DESIGN.md`, no others; a segment leaves Drained only when told to; Clean
//! segments are opened least recently freed first.
//! Never: looks into a segment.

mod in_place_data;

use std::collections::BTreeSet;

use crate::format::{
    Corruption, CorruptionKind, History, Layout, Mapping, SegmentState, Structure, USAGE_PER_ITEM,
    UsageEntry,
};
use crate::segments::{InPlaceAllocator, WriteClock};

pub(crate) use in_place_data::{Extent, SegmentBudget};

/// A segment that is free or will be, in the order of allocation: by stamp.
type Freed = (u64, u32);

/// Usage of all segments.
pub(crate) struct UsageTable {
    layout: Layout,
    pub(crate) clock: WriteClock,
    entries: Vec<UsageEntry>,
    clean: BTreeSet<Freed>,
    /// Drained, and needed for nothing once a flush has covered the deltas that drained them.
    drained: BTreeSet<Freed>,
    /// Drained, but the last checkpoint's nodes or deltas since then are in them.
    pinned: BTreeSet<Freed>,
    /// Segments that were Open at the last checkpoint or since: deltas since then may be in them.
    recent: BTreeSet<u32>,
    /// Items (pages of the table) that differ from what the tree holds.
    dirty_items: BTreeSet<u32>,
    live_blocks: u64,
    /// How many of them are tree nodes.
    live_nodes: u64,
    /// Segments sealed since the last [`UsageTable::settle_sealed`].
    unsettled: Vec<u32>,
    /// Segments that are Placed.
    placed: u32,
    /// What is free in them, once it is known.
    places: Option<InPlaceAllocator>,
}

impl UsageTable {
    /// The table of a volume on which nothing was ever written.
    pub(crate) fn new(layout: Layout, tick_shift: u32) -> Self {
        let entries = vec![UsageEntry::NEW; layout.segment_count as usize];
        Self::from_entries(layout, entries, tick_shift, 0)
    }

    /// The table as a checkpoint has it, one entry a segment, after users have written so many
    /// blocks. The checkpoint is durable, so what it calls Drained is Clean.
    pub(crate) fn from_entries(
        layout: Layout,
        mut entries: Vec<UsageEntry>,
        tick_shift: u32,
        blocks_written: u64,
    ) -> Self {
        for entry in &mut entries {
            if entry.state == SegmentState::Drained {
                entry.state = SegmentState::Clean;
            }
        }
        let in_state = |state: SegmentState| {
            let numbered = (0..).zip(&entries);
            numbered.filter(move |(_, entry)| entry.state == state)
        };
        let clean = in_state(SegmentState::Clean).map(|(no, entry)| (entry.stamp, no)).collect();
        let recent = in_state(SegmentState::Open).map(|(no, _)| no).collect();
        let live = |entry: &UsageEntry| u64::from(entry.live_blocks);
        let live_blocks = entries.iter().map(live).sum();
        let placed = in_state(SegmentState::InPlace).count() as u32;
        let live_nodes = entries.iter().filter(|entry| holds_nodes(entry)).map(live).sum();
        Self {
            layout,
            clock: WriteClock::new(tick_shift, blocks_written),
            entries,
            clean,
            drained: BTreeSet::new(),
            pinned: BTreeSet::new(),
            recent,
            dirty_items: BTreeSet::new(),
            live_blocks,
            live_nodes,
            unsettled: Vec::new(),
            placed,
            places: None,
        }
    }

    /// Whether entries that a device gave agree with themselves.
    pub(crate) fn check(layout: &Layout, entries: &[UsageEntry]) -> Result<(), Corruption> {
        let wrong = |at| Corruption::new(Structure::Usage, at, CorruptionKind::Count);
        if entries.len() != layout.segment_count as usize {
            return Err(wrong(entries.len() as u64));
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
            Some(segment) => Err(wrong(segment as u64)),
            None => Ok(()),
        }
    }

    pub(crate) fn segment_of(&self, address: u64) -> Option<u32> {
        self.layout.segment_of(address)
    }

    pub(crate) fn entry(&self, segment: u32) -> &UsageEntry {
        &self.entries[segment as usize]
    }

    pub(crate) fn entries(&self) -> &[UsageEntry] {
        &self.entries
    }

    /// Whether sums and queues say what the entries say.
    pub(crate) fn is_coherent(&self) -> bool {
        let mut stamps = vec![None; self.entries.len()];
        let freed = self.drained.iter().chain(&self.pinned);
        let clean = self.clean.iter().map(|freed| (freed, SegmentState::Clean));
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

    /// Blocks that the tree refers to, nodes included.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live_blocks
    }

    /// Those of them that are tree nodes.
    pub(crate) fn live_nodes(&self) -> u64 {
        self.live_nodes
    }

    pub(crate) fn clean_count(&self) -> usize {
        self.clean.len()
    }

    /// Segments that can become Clean without a checkpoint.
    pub(crate) fn releasable_count(&self) -> usize {
        self.drained.len()
    }

    /// Segments that wait for a checkpoint to become Clean.
    pub(crate) fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    /// The segments that will be opened next, in order.
    pub(crate) fn clean(&self) -> impl Iterator<Item = u32> {
        self.clean.iter().map(|(_, segment)| *segment)
    }

    fn edit(&mut self, segment: u32) -> &mut UsageEntry {
        self.dirty_items.insert(segment / USAGE_PER_ITEM);
        &mut self.entries[segment as usize]
    }

    /// Opens the least recently freed Clean segment for head `group`.
    pub(crate) fn open(&mut self, group: u8, sequence: u64) -> Option<u32> {
        let (_, segment) = self.clean.pop_first()?;
        self.recent.insert(segment);
        let opened = self.clock.now();
        let entry = self.edit(segment);
        assert!(entry.state == SegmentState::Clean && entry.live_blocks == 0);
        let state = SegmentState::Open;
        *entry = UsageEntry { state, group, opened, stamp: sequence, ..UsageEntry::NEW };
        Some(segment)
    }

    /// No more appends to `segment`. What was appended last may not be counted yet: see
    /// [`UsageTable::settle_sealed`].
    pub(crate) fn seal(&mut self, segment: u32) {
        let sealed = self.clock.now();
        let entry = self.edit(segment);
        assert_eq!(entry.state, SegmentState::Open);
        entry.state = SegmentState::Sealed;
        entry.sealed = sealed;
        self.unsettled.push(segment);
    }

    /// All that has been appended is counted: what was sealed and holds nothing is Drained.
    pub(crate) fn settle_sealed(&mut self, sequence: u64) {
        for segment in std::mem::take(&mut self.unsettled) {
            self.drain_if_empty(segment, sequence);
        }
    }

    fn drain_if_empty(&mut self, segment: u32, sequence: u64) {
        let entry = &mut self.entries[segment as usize];
        let was_placed = entry.state == SegmentState::InPlace;
        if (was_placed || entry.state == SegmentState::Sealed) && entry.live_blocks == 0 {
            entry.state = SegmentState::Drained;
            entry.stamp = sequence;
            let pinned = holds_nodes(entry) || self.recent.contains(&segment);
            let drained = if pinned { &mut self.pinned } else { &mut self.drained };
            drained.insert((sequence, segment));
            if was_placed {
                self.note_emptied(segment);
            }
        }
    }

    /// Everything that lives has been counted: every segment that is Sealed and holds nothing is
    /// Drained.
    pub(crate) fn drain_empty(&mut self, sequence: u64) {
        for segment in 0..self.layout.segment_count {
            self.drain_if_empty(segment, sequence);
        }
    }

    /// A data block lives now.
    pub(crate) fn add(&mut self, mapping: &Mapping) {
        let segment = self.layout.segment_of(mapping.address).expect("we placed it in a segment");
        self.add_live(segment);
        let entry = self.edit(segment);
        entry.write_count_sum += u64::from(mapping.history.write_count());
        entry.modified_sum += u64::from(mapping.history.modified);
    }

    /// A data block died. Where the table of a forged image does not count it, nothing more is
    /// lost than the count.
    pub(crate) fn remove(&mut self, mapping: &Mapping, sequence: u64) {
        let Some(segment) = self.layout.segment_of(mapping.address) else { return };
        let entry = self.edit(segment);
        let History { modified, .. } = mapping.history;
        let write_count = u64::from(mapping.history.write_count());
        entry.write_count_sum = entry.write_count_sum.saturating_sub(write_count);
        entry.modified_sum = entry.modified_sum.saturating_sub(modified.into());
        self.free_later(segment, mapping.address, sequence);
        self.drop_live(segment, sequence);
    }

    /// A tree node lives now.
    pub(crate) fn add_node(&mut self, address: u64) {
        let segment = self.layout.segment_of(address).expect("we placed it in a segment");
        self.add_live(segment);
    }

    /// A tree node died; as for [`UsageTable::remove`].
    pub(crate) fn remove_node(&mut self, address: u64, sequence: u64) {
        let Some(segment) = self.layout.segment_of(address) else { return };
        self.drop_live(segment, sequence);
    }

    fn add_live(&mut self, segment: u32) {
        let entry = self.edit(segment);
        entry.live_blocks += 1;
        let of_nodes = holds_nodes(entry);
        self.live_blocks += 1;
        self.live_nodes += u64::from(of_nodes);
    }

    fn drop_live(&mut self, segment: u32, sequence: u64) {
        let entry = self.edit(segment);
        if entry.live_blocks > 0 {
            entry.live_blocks -= 1;
            let of_nodes = holds_nodes(entry);
            self.live_blocks -= 1;
            self.live_nodes -= u64::from(of_nodes);
        }
        if !self.unsettled.contains(&segment) {
            self.drain_if_empty(segment, sequence);
        }
    }

    /// All Drained segments, in the order in which they were freed.
    pub(crate) fn all_drained(&self) -> Vec<u32> {
        self.drained.union(&self.pinned).map(|(_, segment)| *segment).collect()
    }

    /// The first `most` segments that nothing depends on when all chunks before number `flushed` are
    /// durable: a flush has covered the deltas that drained them, and roll-forward does not read
    /// them.
    pub(crate) fn releasable(&self, flushed: u64, most: usize) -> Vec<u32> {
        self.drained.range(..(flushed, 0)).map(|(_, segment)| *segment).take(most).collect()
    }

    /// Nothing depends on `segments` any more, which are Drained.
    pub(crate) fn release(&mut self, segments: &[u32]) {
        for &segment in segments {
            let entry = &mut self.entries[segment as usize];
            assert_eq!(entry.state, SegmentState::Drained);
            entry.state = SegmentState::Clean;
            let freed = (entry.stamp, segment);
            assert!(self.drained.remove(&freed) || self.pinned.remove(&freed));
            self.clean.insert(freed);
        }
    }

    /// Roll-forward found that `segment` was released with `stamp`; says whether it was Drained.
    pub(crate) fn replay_release(&mut self, segment: u32, stamp: u64) -> bool {
        let Some(entry) = self.entries.get(segment as usize) else { return false };
        if !self.drained.remove(&(entry.stamp, segment)) {
            return false;
        }
        let entry = self.edit(segment);
        entry.state = SegmentState::Clean;
        entry.stamp = stamp;
        self.clean.insert((stamp, segment));
        true
    }

    /// A checkpoint is durable, and roll-forward would begin there.
    pub(crate) fn note_checkpoint(&mut self) {
        let open = (0..).zip(&self.entries).filter(|(_, entry)| entry.state == SegmentState::Open);
        self.recent = open.map(|(segment, _)| segment).collect();
        let (pinned, drained) = std::mem::take(&mut self.pinned)
            .into_iter()
            .partition(|(_, segment)| holds_nodes(&self.entries[*segment as usize]));
        self.pinned = pinned;
        self.drained.append(&mut { drained });
    }

    /// The entry of `segment` will differ from what the tree holds.
    pub(crate) fn mark_dirty(&mut self, segment: u32) {
        self.dirty_items.insert(segment / USAGE_PER_ITEM);
    }

    /// Items that differ from what the tree holds.
    pub(crate) fn dirty_items(&self) -> impl Iterator<Item = u32> {
        self.dirty_items.iter().copied()
    }

    /// The tree holds the table now.
    pub(crate) fn clear_dirty(&mut self) {
        self.dirty_items.clear();
    }

    /// The value of item `item`, and its first segment.
    pub(crate) fn encode_item(&self, item: u32) -> (u32, Vec<u8>) {
        let first = item * USAGE_PER_ITEM;
        let last = (first + USAGE_PER_ITEM).min(self.layout.segment_count);
        (first, UsageEntry::encode_item(&self.entries[first as usize..last as usize]))
    }

    /// Number of items.
    pub(crate) fn item_count(&self) -> u32 {
        self.layout.segment_count.div_ceil(USAGE_PER_ITEM)
    }
}

/// Whether the segment is the metadata head's.
fn holds_nodes(entry: &UsageEntry) -> bool {
    entry.group == UsageEntry::METADATA_HEAD
}
