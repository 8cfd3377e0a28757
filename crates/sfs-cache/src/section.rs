//! A part of the cache device with extents of one size, written as a log of segments.
//!
//! A segment is filled in memory and written by one request, aligned to the erase blocks of the SSD. An extent is the unit of
//! eviction; its blocks lie anywhere in the section, so no room is lost to extents that are cached in part. Evicting turns
//! the extent off in memory and writes nothing. The segment with the fewest live blocks is written next: its extents that were
//! used since they were written move on, and the others leave.

mod segments;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use sfs_device::Block;

use crate::bitmap::LiveMap;
use crate::header::{CacheHeader, SectionPlan};
use crate::memory::IndexMemory;
use crate::policy::{EvictionPolicy, ExtentKey};
use crate::summary::{BlockKey, Summary, summary_blocks};

/// Slot of a block that is not cached.
const NONE: u32 = u32::MAX;

/// Percentage of the blocks of the section that are live at most. The rest is the room in which segments become empty.
const LIVE_PERCENT_MAX: u64 = 85;

/// Number of a block of the section, the blocks of summaries included.
pub(crate) type Slot = u32;

/// Where a cached block is.
pub(crate) enum Found<'a> {
    /// In a segment that is being filled or written.
    Memory(&'a Block),
    /// On the device.
    Device(Slot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentState {
    Free,
    Filling,
    Written,
}

struct Segment {
    state: SegmentState,
    /// Number of live blocks.
    live: u32,
    /// Number of readers that read blocks from the device now.
    readers: u32,
    sequence: u64,
}

struct Extent {
    /// Slots of its blocks.
    slots: Box<[Slot]>,
    /// `true` if it was used since its segment was written.
    is_used: bool,
}

/// A segment in memory.
pub(crate) struct FilledSegment {
    pub(crate) no: u32,
    pub(crate) summary: Summary,
    pub(crate) blocks: Box<[Block]>,
}

/// One section of a cache.
pub(crate) struct Section {
    plan: SectionPlan,
    segment_blocks: u32,
    summary_blocks: u32,
    index: FxHashMap<ExtentKey, Extent>,
    policy: Box<dyn EvictionPolicy>,
    /// Largest number of extents in the index.
    extents_max: u64,
    segments: Vec<Segment>,
    free: VecDeque<u32>,
    filling: Option<FilledSegment>,
    writing: Option<Arc<FilledSegment>>,
    live_blocks: u64,
    evicted_extents: u64,
}

impl Section {
    /// Returns section `no` of the cache with this header, without any block.
    pub(crate) fn new(header: &CacheHeader, no: usize, memory: IndexMemory) -> Self {
        let plan = header.sections[no];
        let summary_blocks = summary_blocks(header.segment_blocks);
        let data_blocks = plan.segment_count * (header.segment_blocks - summary_blocks);
        let extents_max = memory.extents_max(header, no);
        let extents = u64::from(data_blocks / plan.extent_blocks).clamp(1, extents_max) as usize;
        let empty = || Segment { state: SegmentState::Free, live: 0, readers: 0, sequence: 0 };
        Self {
            plan,
            segment_blocks: header.segment_blocks,
            summary_blocks,
            index: FxHashMap::default(),
            policy: header.policy.policy(extents),
            extents_max,
            segments: (0..plan.segment_count).map(|_| empty()).collect(),
            free: (0..plan.segment_count).collect(),
            filling: None,
            writing: None,
            live_blocks: 0,
            evicted_extents: 0,
        }
    }

    /// Returns the plan.
    pub(crate) fn plan(&self) -> &SectionPlan {
        &self.plan
    }

    /// Returns the number of live blocks.
    pub(crate) fn live_blocks(&self) -> u64 {
        self.live_blocks
    }

    /// Returns the number of cached extents.
    pub(crate) fn extent_count(&self) -> u64 {
        self.index.len() as u64
    }

    /// Returns the number of extents that have left to make room.
    pub(crate) fn evicted_extents(&self) -> u64 {
        self.evicted_extents
    }

    /// Returns the number of the segment that was opened last; 0 for none.
    pub(crate) fn newest_sequence(&self) -> u64 {
        self.filling.as_ref().map_or(0, |segment| segment.summary.sequence)
    }

    /// Returns the number of blocks of a summary.
    pub(crate) fn summary_blocks(&self) -> u32 {
        self.summary_blocks
    }

    /// Returns the number of blocks of a segment that hold content.
    pub(crate) fn data_blocks(&self) -> u32 {
        self.segment_blocks - self.summary_blocks
    }

    /// Returns the address of a slot on the cache device.
    pub(crate) fn address(&self, slot: Slot) -> u64 {
        self.plan.first + u64::from(slot)
    }

    /// Returns the address of a segment on the cache device.
    pub(crate) fn segment_address(&self, no: u32) -> u64 {
        self.plan.first + u64::from(no) * u64::from(self.segment_blocks)
    }

    /// Returns the number of extents that the blocks `range` belong to.
    pub(crate) fn extents_of(&self, range: &Range<u64>) -> u64 {
        let size = u64::from(self.plan.extent_blocks);
        range.end.saturating_sub(1) / size - range.start / size + 1
    }

    fn extent_of(&self, key: BlockKey) -> (ExtentKey, usize) {
        let size = u64::from(self.plan.extent_blocks);
        (ExtentKey { object: key.object, no: key.block / size }, (key.block % size) as usize)
    }

    fn segment_of(&self, slot: Slot) -> usize {
        (slot / self.segment_blocks) as usize
    }

    /// Looks a block up, which counts as a use of its extent.
    pub(crate) fn find(&mut self, key: BlockKey) -> Option<Found<'_>> {
        let (extent_key, at) = self.extent_of(key);
        let extent = self.index.get_mut(&extent_key)?;
        let slot = extent.slots[at];
        if slot == NONE {
            return None;
        }
        extent.is_used = true;
        self.policy.touch(extent_key);
        Some(self.memory(slot).map_or(Found::Device(slot), Found::Memory))
    }

    /// Returns the slot of a block, which does not count as a use.
    pub(crate) fn slot_of(&self, key: BlockKey) -> Option<Slot> {
        let (extent_key, at) = self.extent_of(key);
        let slot = self.index.get(&extent_key)?.slots[at];
        (slot != NONE).then_some(slot)
    }

    /// Returns the block in a slot, if its segment is in memory.
    pub(crate) fn memory(&self, slot: Slot) -> Option<&Block> {
        let no = slot / self.segment_blocks;
        let at = (slot % self.segment_blocks).checked_sub(self.summary_blocks)? as usize;
        let of = |segment: &'_ FilledSegment| segment.no == no;
        let filling = self.filling.as_ref().filter(|segment| of(segment));
        let segment = filling.or(self.writing.as_deref().filter(|segment| of(segment)))?;
        segment.blocks.get(at)
    }

    /// Notes a reader of the segment with `slot`: nobody writes the segment until [`Section::unpin`].
    pub(crate) fn pin(&mut self, slot: Slot) {
        let no = self.segment_of(slot);
        self.segments[no].readers += 1;
    }

    /// Notes that a reader is done.
    pub(crate) fn unpin(&mut self, slot: Slot) {
        let no = self.segment_of(slot);
        self.segments[no].readers -= 1;
    }

    /// Returns the address of the summary with the entry of `slot`, and the number of the entry.
    pub(crate) fn entry_of(&self, slot: Slot) -> (u64, usize) {
        let no = slot / self.segment_blocks;
        let at = slot % self.segment_blocks - self.summary_blocks;
        (self.segment_address(no), at as usize)
    }

    /// Forgets the blocks `range` of an object. Returns their number.
    pub(crate) fn forget(&mut self, object: u64, range: Range<u64>) -> u64 {
        if range.is_empty() || self.index.is_empty() {
            return 0;
        }
        let before = self.live_blocks;
        let size = u64::from(self.plan.extent_blocks);
        let numbers = range.start / size..=(range.end - 1) / size;
        let keys: Vec<ExtentKey> = if self.extents_of(&range) > self.index.len() as u64 {
            let is_in = |key: &&ExtentKey| key.object == object && numbers.contains(&key.no);
            self.index.keys().filter(is_in).copied().collect()
        } else {
            numbers.map(|no| ExtentKey { object, no }).collect()
        };
        for key in keys {
            let first = key.no * size;
            let from = range.start.saturating_sub(first) as usize;
            let to = (range.end - first).min(size) as usize;
            self.forget_part(key, from..to);
        }
        before - self.live_blocks
    }

    fn forget_part(&mut self, key: ExtentKey, part: Range<usize>) {
        let Some(extent) = self.index.get_mut(&key) else { return };
        for slot in &mut extent.slots[part] {
            if *slot != NONE {
                self.segments[(*slot / self.segment_blocks) as usize].live -= 1;
                self.live_blocks -= 1;
                *slot = NONE;
            }
        }
        if extent.slots.iter().all(|slot| *slot == NONE) {
            self.index.remove(&key);
            self.policy.remove(key);
        }
    }

    /// Evicts extents until there is room for another block of `incoming`.
    fn make_room(&mut self, incoming: ExtentKey) {
        let all = u64::from(self.plan.segment_count) * u64::from(self.data_blocks());
        let live_max = all * LIVE_PERCENT_MAX / 100;
        let extents_max = self.extents_max;
        let is_new = !self.index.contains_key(&incoming);
        while self.live_blocks >= live_max || is_new && self.index.len() as u64 >= extents_max {
            let Some(key) = self.policy.evict(incoming) else { return };
            self.evicted_extents += 1;
            self.turn_off(key);
        }
    }

    /// Forgets an extent that the policy has evicted.
    fn turn_off(&mut self, key: ExtentKey) {
        let Some(extent) = self.index.remove(&key) else { return };
        for slot in extent.slots.iter().filter(|slot| **slot != NONE) {
            self.segments[(slot / self.segment_blocks) as usize].live -= 1;
            self.live_blocks -= 1;
        }
    }

    /// Enters a cached block into the index.
    fn add(&mut self, key: BlockKey, slot: Slot) {
        let (extent_key, at) = self.extent_of(key);
        let extent = self.index.entry(extent_key).or_insert_with(|| {
            self.policy.insert(extent_key);
            let slots = vec![NONE; self.plan.extent_blocks as usize].into();
            Extent { slots, is_used: false }
        });
        let before = std::mem::replace(&mut extent.slots[at], slot);
        self.segments[(slot / self.segment_blocks) as usize].live += 1;
        match before {
            NONE => self.live_blocks += 1,
            _ => self.segments[(before / self.segment_blocks) as usize].live -= 1,
        }
    }

    /// Enters the blocks of a segment that was found on the device, as far as `is_live` says.
    pub(crate) fn load(&mut self, no: u32, summary: &Summary, is_live: impl Fn(Slot) -> bool) {
        let segment = &mut self.segments[no as usize];
        (segment.state, segment.sequence) = (SegmentState::Written, summary.sequence);
        for (at, entry) in (0..).zip(&summary.entries) {
            let slot = no * self.segment_blocks + self.summary_blocks + at;
            if !is_live(slot) || entry.key.block == u64::MAX {
                continue;
            }
            // The later copy of a block counts, in a later segment or further back in this one.
            if let Some(other) = self.slot_of(entry.key) {
                if self.segments[self.segment_of(other)].sequence > summary.sequence {
                    continue;
                }
                self.forget(entry.key.object, entry.key.block..entry.key.block + 1);
            }
            let is_new = !self.index.contains_key(&self.extent_of(entry.key).0);
            if !is_new || (self.index.len() as u64) < self.extents_max {
                self.add(entry.key, slot);
            }
        }
    }

    /// Ends loading: the segments without content are free.
    pub(crate) fn end_loading(&mut self) {
        let segments = (0..).zip(&self.segments);
        let free = segments.filter(|(_, segment)| segment.state == SegmentState::Free);
        self.free = free.map(|(no, _)| no).collect();
    }

    /// Marks the live blocks in `map`, of which those of this section begin at `first_bit`.
    pub(crate) fn mark_live(&self, map: &mut LiveMap, first_bit: u64) {
        let slots = self.index.values().flat_map(|extent| extent.slots.iter());
        for slot in slots.filter(|slot| **slot != NONE) {
            map.set(first_bit + u64::from(*slot));
        }
    }

    /// Returns the keys and slots of all blocks.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (BlockKey, Slot)> {
        let size = u64::from(self.plan.extent_blocks);
        self.index.iter().flat_map(move |(key, extent)| {
            let blocks = (key.no * size..).zip(extent.slots.iter());
            let key = |block| BlockKey { object: key.object, block };
            blocks.filter(|(_, slot)| **slot != NONE).map(move |(block, slot)| (key(block), *slot))
        })
    }
}
