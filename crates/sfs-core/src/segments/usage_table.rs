//! The usage table: the state of each segment, its live blocks and sums, and the order of allocation.
//!
//! The table is in memory; a checkpoint stores its changed items in the tree. Its methods are the only way
//! from one state to another while the volume is mounted:
//!
//! ```text
//!            open             seal               drain_if_empty
//!   Clean ----------> Open ----------> Sealed ------------------> Drained
//!     |  \                                                          ^  |
//!     |   \  convert_to_in_place             drain_if_empty         |  |
//!     |    +----------------------> InPlace ------------------------+  |
//!     |                                                                |
//!     +<---------------------------------------------------------------+
//!        make_clean, replay_release; from_entries for a durable checkpoint
//! ```
//!
//! A Drained segment has no live block. Such a segment is *releasable* once a flush has covered the deltas that drained it.
//! A Drained segment is *pinned* while the last checkpoint's nodes or the deltas since then are in it. [`UsageTable::make_clean`]
//! makes either kind Clean; the caller knows that nothing on the device depends on the segment. Clean segments
//! are opened least recently freed first.
//!
//! `Bad` has no arrow: nothing sets it, and a segment whose entry on the device says Bad stays Bad
//! and is never opened.

mod changed_segments;
mod clean_queue;
mod coherence;
mod in_place_data;
mod withheld;

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{
    COUNT_MAX, Head, History, Layout, Mapping, SegmentState, USAGE_PER_ITEM, UsageEntry,
};
use crate::mutant::{Mutant, mutated};
use crate::segments::{InPlaceAllocator, WriteClock};

use changed_segments::ChangedSegments;
use clean_queue::CleanQueue;
pub(crate) use in_place_data::{Extent, SegmentBudget};

/// Stamp and number of a Drained or Clean segment: the order of allocation.
type Freed = (u64, u32);

/// Stamp of the withheld segments: they come after all others. No sequence number reaches this stamp.
const WITHHELD_STAMP: u64 = COUNT_MAX;

/// The usage of all segments of a volume.
pub(crate) struct UsageTable {
    layout: Layout,
    pub(crate) clock: WriteClock,
    entries: Vec<UsageEntry>,
    clean: CleanQueue,
    /// Drained segments that are free once a flush has covered the deltas that drained them.
    releasable: BTreeSet<Freed>,
    /// Drained segments that hold nodes of the last checkpoint or deltas since then.
    pinned: BTreeSet<Freed>,
    /// Segments that were Open at the last checkpoint or since then, and so may hold deltas since then.
    recent: BTreeSet<u32>,
    /// Items of the table that differ from those in the tree.
    dirty_items: BTreeSet<u32>,
    live_blocks: u64,
    /// Tree nodes among the live blocks.
    live_nodes: u64,
    /// Segments that have changed since the last [`UsageTable::take_changed`].
    changed: ChangedSegments,
    /// Segments sealed since the last [`UsageTable::settle_sealed`].
    unsettled: Vec<u32>,
    /// First of the segments at the end that are not opened any more, while the volume shrinks.
    withheld_from: Option<u32>,
    /// Number of the withheld segments that are Clean: the last ones of the queue.
    withheld_clean: usize,
    /// Number of InPlace segments.
    in_place_segments: u32,
    /// Number of times that a segment was opened since the mount.
    opened_count: u64,
    /// Numbers of blocks that were overwritten in InPlace segments since the last whole segment of them was counted.
    overwritten: BTreeMap<u32, u32>,
    /// Allocator of the blocks of InPlace segments; `None` until their live blocks are known.
    allocator: Option<InPlaceAllocator>,
}

impl UsageTable {
    /// Returns the table of an empty volume.
    pub(crate) fn new(layout: Layout, tick_shift: u32) -> Self {
        let entries = vec![UsageEntry::NEW; layout.segment_count as usize];
        Self::from_entries(layout, entries, tick_shift, 0)
    }

    /// Returns the table of a durable checkpoint, one entry a segment, when users have written
    /// `blocks_written` blocks. Its Drained segments become Clean: no older checkpoint can need them.
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
        let clean = CleanQueue::new(&entries);
        let recent = in_state(SegmentState::Open).map(|(no, _)| no).collect();
        let live = |entry: &UsageEntry| u64::from(entry.live_blocks);
        let live_blocks = entries.iter().map(live).sum();
        let in_place_segments = in_state(SegmentState::InPlace).count() as u32;
        let live_nodes = entries.iter().filter(|entry| holds_nodes(entry)).map(live).sum();
        Self {
            layout,
            clock: WriteClock::new(tick_shift, blocks_written),
            entries,
            clean,
            releasable: BTreeSet::new(),
            pinned: BTreeSet::new(),
            recent,
            dirty_items: BTreeSet::new(),
            live_blocks,
            live_nodes,
            changed: ChangedSegments::default(),
            unsettled: Vec::new(),
            withheld_from: None,
            withheld_clean: 0,
            in_place_segments,
            opened_count: 0,
            overwritten: BTreeMap::new(),
            allocator: None,
        }
    }

    /// Takes over a layout with other segments at the end. New segments are Clean with stamp 0. Segments that are
    /// left out must be Clean or Bad.
    pub(crate) fn resize(&mut self, layout: Layout) {
        let (old, new) = (self.layout.segment_count, layout.segment_count);
        let dropped = self.entries.iter().skip(new as usize);
        assert!({ dropped }.all(is_unused));
        self.layout = layout;
        self.entries.resize(new as usize, UsageEntry::NEW);
        (self.withheld_from, self.withheld_clean) = (None, 0);
        self.clean = CleanQueue::new(&self.entries);
        self.recent.retain(|segment| *segment < new);
        self.overwritten.retain(|segment, _| *segment < new);
        self.dirty_items.retain(|item| *item < new.div_ceil(USAGE_PER_ITEM));
        if old != new {
            // The last old item has more or fewer entries now.
            self.mark_items_from((old.min(new) - 1) / USAGE_PER_ITEM);
        }
        if let Some(allocator) = &mut self.allocator {
            allocator.resize(layout);
        }
    }

    /// Marks all items from number `first` on as different from those in the tree.
    pub(crate) fn mark_items_from(&mut self, first: u32) {
        self.dirty_items.extend(first..self.item_count());
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

    /// Returns how often a segment was opened since the mount.
    pub(crate) fn opened_count(&self) -> u64 {
        self.opened_count
    }

    /// Returns the number of live blocks, tree nodes included.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live_blocks
    }

    /// Returns the number of live tree nodes.
    pub(crate) fn live_nodes(&self) -> u64 {
        self.live_nodes
    }

    /// Returns the number of Clean segments that can be opened.
    pub(crate) fn clean_count(&self) -> usize {
        self.clean.len() - self.withheld_clean
    }

    /// Returns the number of Drained segments that can become Clean without a checkpoint.
    pub(crate) fn releasable_count(&self) -> usize {
        self.releasable.len()
    }

    /// Returns the number of Drained segments that become Clean only with a checkpoint.
    pub(crate) fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    /// Returns the Clean segments in the order in which they will be opened.
    pub(crate) fn clean(&self) -> impl Iterator<Item = u32> {
        self.clean.iter()
    }

    /// Changes the entry of `segment` without its effects on sets and totals.
    #[cfg(test)]
    pub(crate) fn forge(&mut self, segment: u32, change: impl FnOnce(&mut UsageEntry)) {
        change(&mut self.entries[segment as usize]);
    }

    fn edit(&mut self, segment: u32) -> &mut UsageEntry {
        self.dirty_items.insert(segment / USAGE_PER_ITEM);
        self.changed.add(segment);
        &mut self.entries[segment as usize]
    }

    /// Keeps the numbers of the segments that change from now on.
    pub(crate) fn keep_changed(&mut self) {
        self.changed = ChangedSegments::new(self.entries.len());
    }

    /// Returns the segments that have changed since the last call, each once; none without
    /// [`UsageTable::keep_changed`].
    pub(crate) fn take_changed(&mut self) -> Vec<u32> {
        self.changed.take()
    }

    /// Opens the least recently freed Clean segment for `head`; the first chunk in it has number `sequence`.
    pub(crate) fn open(&mut self, head: Head, sequence: u64) -> Option<u32> {
        if self.clean_count() == 0 {
            return None;
        }
        let segment = self.clean.pop_first()?;
        self.recent.insert(segment);
        self.opened_count += 1;
        let opened = self.clock.now();
        let entry = self.edit(segment);
        assert!(entry.state == SegmentState::Clean && entry.live_blocks == 0);
        let state = SegmentState::Open;
        let erases = entry.erases.saturating_add(1);
        *entry = UsageEntry { state, head, opened, stamp: sequence, erases, ..UsageEntry::NEW };
        Some(segment)
    }

    /// Takes back an erase cycle: a deliberate bug.
    pub(crate) fn uncount_erase(&mut self, segment: u32) {
        self.edit(segment).erases -= 1;
    }

    /// Ends the appends to `segment`. Blocks of the last batch may not be counted yet, so the segment is not
    /// drained before [`UsageTable::settle_sealed`].
    pub(crate) fn seal(&mut self, segment: u32) {
        let sealed = self.clock.now();
        let entry = self.edit(segment);
        assert_eq!(entry.state, SegmentState::Open);
        entry.state = SegmentState::Sealed;
        entry.sealed = sealed;
        self.unsettled.push(segment);
    }

    /// Drains the segments sealed since the last call that have no live block. The caller has counted every
    /// appended block.
    pub(crate) fn settle_sealed(&mut self, sequence: u64) {
        for segment in std::mem::take(&mut self.unsettled) {
            self.drain_if_empty(segment, sequence);
        }
    }

    fn drain_if_empty(&mut self, segment: u32, sequence: u64) {
        let sequence = if self.is_withheld(segment) { WITHHELD_STAMP } else { sequence };
        let pinned = self.is_pinned_once_drained(segment);
        let entry = &mut self.entries[segment as usize];
        let was_in_place = entry.state == SegmentState::InPlace;
        if (was_in_place || entry.state == SegmentState::Sealed) && entry.live_blocks == 0 {
            entry.state = SegmentState::Drained;
            entry.stamp = sequence;
            self.changed.add(segment);
            let set = if pinned { &mut self.pinned } else { &mut self.releasable };
            set.insert((sequence, segment));
            if was_in_place {
                self.note_emptied(segment);
            }
        }
    }

    /// Drains every Sealed or InPlace segment without a live block. The caller has counted all live blocks.
    pub(crate) fn drain_empty(&mut self, sequence: u64) {
        for segment in 0..self.layout.segment_count {
            self.drain_if_empty(segment, sequence);
        }
    }

    /// Counts a data block as live.
    pub(crate) fn add(&mut self, mapping: &Mapping) {
        let segment = self.layout.segment_of(mapping.address).expect("a new block is in a segment");
        self.add_live(segment);
        let entry = self.edit(segment);
        entry.write_count_sum += u64::from(mapping.history.write_count());
        entry.modified_sum += u64::from(mapping.history.modified);
    }

    /// Counts a data block as dead. On a forged image the table may not have counted it; then only the counts
    /// are wrong. The chunk with number `sequence`, or a later one, records the death.
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

    /// Counts a tree node as live.
    pub(crate) fn add_node(&mut self, address: u64) {
        let segment = self.layout.segment_of(address).expect("a new block is in a segment");
        self.add_live(segment);
    }

    /// Counts a tree node as dead, as [`UsageTable::remove`] does for a data block.
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

    /// Returns whether a delta can release `segment` once `blocks` of its live blocks are moved. The volume may have shrunk since
    /// the segment was chosen.
    pub(crate) fn is_emptied_for_delta(&self, segment: u32, blocks: usize) -> bool {
        self.entries.get(segment as usize).is_some_and(|entry| {
            entry.state == SegmentState::Sealed
                && entry.live_blocks as usize <= blocks
                && !self.is_pinned_once_drained(segment)
        })
    }

    /// Returns whether only a checkpoint makes `segment` Clean once it is Drained.
    fn is_pinned_once_drained(&self, segment: u32) -> bool {
        holds_nodes(self.entry(segment)) || self.recent.contains(&segment)
    }

    /// Returns all Drained segments in the order in which they were freed.
    pub(crate) fn all_drained(&self) -> Vec<u32> {
        self.releasable.union(&self.pinned).map(|(_, segment)| *segment).collect()
    }

    /// Returns the first `most` releasable segments when all chunks before number `flushed` are durable. A flush
    /// has covered the deltas that drained them, and roll-forward does not read them.
    pub(crate) fn releasable(&self, flushed: u64, most: usize) -> Vec<u32> {
        self.releasable.range(..(flushed, 0)).map(|(_, segment)| *segment).take(most).collect()
    }

    /// Makes the Drained `segments` Clean. The caller knows that nothing on the device depends on them.
    pub(crate) fn make_clean(&mut self, segments: &[u32]) {
        for &segment in segments {
            let entry = &mut self.entries[segment as usize];
            assert_eq!(entry.state, SegmentState::Drained);
            entry.state = SegmentState::Clean;
            let freed = (entry.stamp, segment);
            assert!(self.releasable.remove(&freed) || self.pinned.remove(&freed));
            self.clean.insert(&self.entries, segment);
            self.withheld_clean += usize::from(self.is_withheld(segment));
        }
    }

    /// Applies a release that roll-forward found in a delta. Returns `false` if `segment` is not releasable.
    pub(crate) fn replay_release(&mut self, segment: u32, stamp: u64) -> bool {
        let Some(entry) = self.entries.get(segment as usize) else { return false };
        if !self.releasable.remove(&(entry.stamp, segment)) {
            return false;
        }
        let entry = self.edit(segment);
        entry.state = SegmentState::Clean;
        entry.stamp = stamp;
        if mutated(Mutant::EraseLostByRelease) {
            entry.erases = 0;
        }
        self.clean.insert(&self.entries, segment);
        true
    }

    /// Notes that a checkpoint is durable. Deltas before it are no longer needed, so pinned segments without
    /// tree nodes become releasable.
    pub(crate) fn unpin_after_checkpoint(&mut self) {
        let open = (0..).zip(&self.entries).filter(|(_, entry)| entry.state == SegmentState::Open);
        self.recent = open.map(|(segment, _)| segment).collect();
        let (pinned, releasable) = std::mem::take(&mut self.pinned)
            .into_iter()
            .partition(|(_, segment)| holds_nodes(&self.entries[*segment as usize]));
        self.pinned = pinned;
        self.releasable.append(&mut { releasable });
    }

    /// Marks the item of `segment` as different from the one in the tree.
    pub(crate) fn mark_dirty(&mut self, segment: u32) {
        self.dirty_items.insert(segment / USAGE_PER_ITEM);
    }

    /// Returns the items that differ from those in the tree, ascending.
    pub(crate) fn dirty_items(&self) -> impl Iterator<Item = u32> {
        self.dirty_items.iter().copied()
    }

    /// Notes that the tree holds the current table.
    pub(crate) fn clear_dirty(&mut self) {
        self.dirty_items.clear();
    }

    /// Returns the first segment of item `item`, and the item's value.
    pub(crate) fn encode_item(&self, item: u32) -> (u32, Vec<u8>) {
        let first = item * USAGE_PER_ITEM;
        let last = (first + USAGE_PER_ITEM).min(self.layout.segment_count);
        (first, UsageEntry::encode_item(&self.entries[first as usize..last as usize]))
    }

    /// Returns the number of items.
    pub(crate) fn item_count(&self) -> u32 {
        self.layout.segment_count.div_ceil(USAGE_PER_ITEM)
    }
}

/// Returns whether nothing is in the segment of `entry`, and nothing on the device depends on it.
fn is_unused(entry: &UsageEntry) -> bool {
    matches!(entry.state, SegmentState::Clean | SegmentState::Bad)
}

/// Returns whether the segment was written by the metadata head.
fn holds_nodes(entry: &UsageEntry) -> bool {
    entry.head == Head::METADATA
}
