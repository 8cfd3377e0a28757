//! InPlace segments: their maximum number beside the segments of the log, and the allocation of
//! their blocks.
//!
//! A Clean segment becomes InPlace when data takes its first block, and Drained when its last block dies.
//! Data gets only segments that the log does not need. The segments of the batch's chunks, the log's minimum,
//! and room for the tree nodes to grow come first.

use super::UsageTable;
use crate::format::{Group, Head, Layout, SegmentState, UsageEntry};
use crate::segments::InPlaceAllocator;

/// Minimum number of segments of the log beside the segments of its nodes. These segments cover the
/// heads, a checkpoint and room to clean into, and exceed the critical watermark: the cleaner must
/// not run without progress on a volume full of data.
const LOG_SEGMENTS_MIN: u32 = 20;

/// Divisor of the number of segments: the log keeps at least this part of the volume.
const LOG_SHARE: u32 = 16;

/// Number of segments of the log for each segment that its nodes would fill.
const NODES_SLACK: u64 = 2;

/// A run of blocks in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) address: u64,
    pub(crate) count: u32,
}

/// Clean segments that one batch may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentBudget {
    /// Number of segments for the chunks of the batch: the first Clean segments.
    pub(crate) log: usize,
    /// Number of the other Clean segments for data in place.
    pub(crate) data: usize,
}

/// Returns the number of segments that the log of an empty volume keeps.
fn log_segments(layout: &Layout) -> u32 {
    LOG_SEGMENTS_MIN.max(layout.segment_count / LOG_SHARE)
}

impl UsageTable {
    /// Returns the maximum number of data blocks on a volume without tree nodes.
    pub(crate) fn in_place_capacity_blocks(layout: &Layout) -> u64 {
        u64::from(layout.segment_count - log_segments(layout)) * u64::from(layout.segment_blocks)
    }

    /// Returns the maximum number of InPlace segments beside `nodes` tree nodes.
    fn in_place_segments_max(&self, nodes: u64) -> u32 {
        let kept = NODES_SLACK * nodes.div_ceil(u64::from(self.layout.segment_blocks));
        let most = self.layout.segment_count - log_segments(&self.layout);
        most.saturating_sub(kept.try_into().unwrap_or(u32::MAX))
    }

    /// Returns the number of InPlace segments.
    pub(crate) fn in_place_segments(&self) -> u32 {
        self.in_place_segments
    }

    /// Returns the number of segments that may still become InPlace beside `nodes` tree nodes.
    pub(crate) fn in_place_segments_left(&self, nodes: u64) -> usize {
        self.in_place_segments_max(nodes).saturating_sub(self.in_place_segments) as usize
    }

    /// Returns the number of blocks that new data may have beside `nodes` tree nodes, blocks with a
    /// pending free included.
    pub(crate) fn in_place_room_blocks(&self, nodes: u64) -> u64 {
        self.in_place_blocks(nodes).saturating_sub(self.live_blocks - self.live_nodes)
    }

    /// Returns the number of blocks of the segments that are or may become InPlace beside `nodes`
    /// tree nodes.
    fn in_place_blocks(&self, nodes: u64) -> u64 {
        let segments = self.in_place_segments.max(self.in_place_segments_max(nodes));
        u64::from(segments) * u64::from(self.layout.segment_blocks)
    }

    /// Returns the number of free blocks of InPlace segments.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.allocator.as_ref().map_or(0, InPlaceAllocator::free_blocks)
    }

    /// Allocates from `allocator` from now on; the caller has marked every live block in it.
    ///
    /// # Errors
    ///
    /// The first InPlace segment whose marked blocks are not as many as the table counts.
    pub(crate) fn attach_allocator(&mut self, mut allocator: InPlaceAllocator) -> Result<(), u32> {
        let entries = (0..).zip(&self.entries);
        for (segment, entry) in entries.filter(|(_, entry)| entry.state == SegmentState::InPlace) {
            if allocator.taken(segment) != entry.live_blocks {
                return Err(segment);
            }
            allocator.add(segment);
        }
        self.allocator = Some(allocator);
        Ok(())
    }

    /// Allocates from `allocator` from now on, but only in segments that are still Clean.
    pub(crate) fn attach_allocator_of_clean(&mut self, mut allocator: InPlaceAllocator) {
        let entries = (0..).zip(&self.entries);
        for (segment, _) in entries.filter(|(_, entry)| entry.state == SegmentState::InPlace) {
            allocator.fill(segment);
        }
        self.allocator = Some(allocator);
    }

    /// Allocates `count` blocks for file `ino` and takes the Clean segments that this needs out of `budget`. The
    /// chunk with number `sequence`, or a later one, records the allocation.
    ///
    /// # Panics
    ///
    /// If `budget` and the free blocks do not suffice.
    pub(crate) fn allocate(
        &mut self,
        ino: u64,
        count: usize,
        budget: &mut SegmentBudget,
        sequence: u64,
    ) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut left = count as u32;
        let mut allocator = self.allocator.take().expect("the volume overwrites in place");
        while left > 0 {
            let clean = self.clean.get(budget.log).filter(|_| budget.data > 0);
            let clean = clean.map(|segment| (self.entry(segment).stamp, segment));
            let load = self.load();
            let segment =
                allocator.choose(&self.entries, clean, load, ino).expect("the plan left room");
            if self.entries[segment as usize].state == SegmentState::Clean {
                self.convert_to_in_place(segment, sequence);
                allocator.add_empty(segment);
                budget.data -= 1;
            }
            let (address, count) =
                allocator.take(segment, left).expect("a chosen segment has a free block");
            extents.push(Extent { address, count });
            left -= count;
        }
        self.allocator = Some(allocator);
        extents
    }

    /// Returns the live share of the blocks for data, in thousandths.
    fn load(&self) -> u32 {
        let blocks = self.in_place_blocks(self.live_nodes).max(1);
        ((self.live_blocks - self.live_nodes) * 1000 / blocks) as u32
    }

    /// Makes a Clean segment InPlace.
    fn convert_to_in_place(&mut self, segment: u32, sequence: u64) {
        let opened = self.clock.now();
        assert!(self.clean.remove(&self.entries, segment));
        let entry = self.edit(segment);
        assert!(entry.state == SegmentState::Clean && entry.live_blocks == 0);
        *entry = UsageEntry {
            state: SegmentState::InPlace,
            head: Head::of(Group(0)),
            opened,
            stamp: sequence,
            erases: entry.erases.saturating_add(1),
            ..UsageEntry::NEW
        };
        self.in_place_segments += 1;
    }

    /// Counts an overwritten block. As many of them as a segment has are an erase cycle of that segment; what is left at the
    /// unmount is not counted.
    pub(crate) fn note_overwrite(&mut self, address: u64) {
        let Some(segment) = self.layout.segment_of(address) else { return };
        let blocks = self.overwritten.entry(segment).or_insert(0);
        *blocks += 1;
        if *blocks >= self.layout.segment_blocks {
            *blocks = 0;
            let entry = self.edit(segment);
            entry.erases = entry.erases.saturating_add(1);
        }
    }

    /// Makes `segment` InPlace because roll-forward found a mapping into it. Returns `false` if its state does
    /// not allow that.
    pub(crate) fn replay_in_place(&mut self, segment: u32, sequence: u64) -> bool {
        match self.entries[segment as usize].state {
            SegmentState::InPlace => true,
            SegmentState::Clean => {
                self.convert_to_in_place(segment, sequence);
                true
            }
            _ => false,
        }
    }

    /// Frees a dead block of `segment` once chunk `sequence` is durable. Has no effect on a segment
    /// of the log.
    pub(super) fn free_later(&mut self, segment: u32, address: u64, sequence: u64) {
        let is_in_place = self.entries[segment as usize].state == SegmentState::InPlace;
        if let Some(allocator) = self.allocator.as_mut().filter(|_| is_in_place) {
            allocator.free_later(address, sequence);
        }
    }

    /// Notes that the last block of `segment`, which was InPlace, is dead.
    pub(super) fn note_emptied(&mut self, segment: u32) {
        self.in_place_segments -= 1;
        if let Some(allocator) = &mut self.allocator {
            allocator.remove(segment);
        }
    }

    /// Returns whether dead blocks wait for their free to be durable.
    pub(crate) fn has_pending_frees(&self) -> bool {
        self.allocator.as_ref().is_some_and(InPlaceAllocator::has_pending_frees)
    }

    /// Frees the blocks whose deaths are recorded by chunks before number `flushed`, which are durable.
    pub(crate) fn apply_durable_frees(&mut self, flushed: u64) {
        let Self { allocator, entries, .. } = self;
        if let Some(allocator) = allocator {
            let state = |segment: u32| entries[segment as usize].state;
            allocator
                .apply_durable_frees(flushed, |segment| state(segment) == SegmentState::InPlace);
        }
    }

    /// Returns an InPlace segment whose number of taken blocks is not the sum of its live blocks
    /// and pending frees.
    pub(super) fn first_misallocated(&self) -> Option<u32> {
        let allocator = self.allocator.as_ref()?;
        let mut in_place =
            (0..).zip(&self.entries).filter(|(_, entry)| entry.state == SegmentState::InPlace);
        let wrong = in_place.find(|(segment, entry)| {
            allocator.taken(*segment) != entry.live_blocks + allocator.pending_blocks(*segment)
        });
        wrong.map(|(segment, _)| segment)
    }
}
