//! Placed segments: which segments data may have beside the log, and which blocks of them.
//!
//! Owns: the border between the segments of data and those of the log.
//! Promises: data never takes a segment that the log may need: neither those that it opens next, nor
//! its reserve, nor what its nodes are going to grow into.
//! Never: moves data; a segment is Clean again when all that was in it has died.

use super::UsageTable;
use crate::format::{Layout, SegmentState, UsageEntry};
use crate::segments::InPlaceAllocator;

/// Segments that the log has beside those of its nodes, at least: heads, a checkpoint, room to clean into,
/// and more than the critical watermark, so that it does not clean in vain on a volume full of data.
const LOG_SEGMENTS_MIN: u32 = 20;

/// The share of all segments, likewise: one in so many.
const LOG_SHARE: u32 = 16;

/// The log has so many times the segments that its nodes would fill.
const NODES_SLACK: u64 = 2;

/// Neighbouring blocks of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) address: u64,
    pub(crate) count: u32,
}

/// How a batch shares the Clean segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentBudget {
    /// So many may be opened by its chunks, the first ones.
    pub(crate) log: usize,
    /// So many of the others may be for its data.
    pub(crate) data: usize,
}

/// Segments of the log on any volume.
fn log_segments(layout: &Layout) -> u32 {
    LOG_SEGMENTS_MIN.max(layout.segment_count / LOG_SHARE)
}

impl UsageTable {
    /// Blocks that placed data has at most.
    pub(crate) fn in_place_capacity_blocks(layout: &Layout) -> u64 {
        u64::from(layout.segment_count - log_segments(layout)) * u64::from(layout.segment_blocks)
    }

    /// Segments that may be Placed beside `nodes`.
    fn placed_max(&self, nodes: u64) -> u32 {
        let kept = NODES_SLACK * nodes.div_ceil(u64::from(self.layout.segment_blocks));
        let most = self.layout.segment_count - log_segments(&self.layout);
        most.saturating_sub(kept.try_into().unwrap_or(u32::MAX))
    }

    /// Segments that are Placed.
    pub(crate) fn in_place_segments(&self) -> u32 {
        self.placed
    }

    /// Segments that may become Placed beside `nodes`, as far as the log's share goes.
    pub(crate) fn in_place_segments_left(&self, nodes: u64) -> usize {
        self.placed_max(nodes).saturating_sub(self.placed) as usize
    }

    /// Blocks that new data may have beside `nodes`, those included whose freeing is not durable yet.
    pub(crate) fn in_place_room_blocks(&self, nodes: u64) -> u64 {
        self.placed_blocks(nodes).saturating_sub(self.live_blocks - self.live_nodes)
    }

    /// Blocks of the segments that are Placed, or may be beside `nodes`.
    fn placed_blocks(&self, nodes: u64) -> u64 {
        let segments = self.placed.max(self.placed_max(nodes));
        u64::from(segments) * u64::from(self.layout.segment_blocks)
    }

    /// Free blocks of Placed segments.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.places.as_ref().map_or(0, InPlaceAllocator::free_blocks)
    }

    /// Blocks are given out by `places` from now on, in which all that lives has been marked. Says
    /// whether it is as much as the table counts.
    pub(crate) fn attach_allocator(&mut self, mut places: InPlaceAllocator) -> Result<(), u32> {
        let entries = (0..).zip(&self.entries);
        for (segment, entry) in entries.filter(|(_, entry)| entry.state == SegmentState::InPlace) {
            if places.taken(segment) != entry.live_blocks {
                return Err(segment);
            }
            places.join(segment);
        }
        self.places = Some(places);
        Ok(())
    }

    /// Blocks are given out by `places` from now on, in segments that are Clean so far.
    pub(crate) fn attach_allocator_of_clean(&mut self, mut places: InPlaceAllocator) {
        let entries = (0..).zip(&self.entries);
        for (segment, _) in entries.filter(|(_, entry)| entry.state == SegmentState::InPlace) {
            places.fill(segment);
        }
        self.places = Some(places);
    }

    /// Gives out `count` blocks for file `ino`, at the expense of `share`. Panics if there are not so
    /// many. The chunk that says so has number `sequence` or a later one.
    pub(crate) fn allocate(
        &mut self,
        ino: u64,
        count: usize,
        share: &mut SegmentBudget,
        sequence: u64,
    ) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut left = count as u32;
        let mut places = self.places.take().expect("data is placed");
        while left > 0 {
            let clean = self.clean.iter().nth(share.log).filter(|_| share.data > 0).copied();
            let load = self.load();
            let segment = places.choose(&self.entries, clean, load, ino).expect("there is room");
            if self.entries[segment as usize].state == SegmentState::Clean {
                self.place(segment, sequence);
                places.begin(segment);
                share.data -= 1;
            }
            let (address, count) = places.take(segment, left).expect("it was chosen for its room");
            extents.push(Extent { address, count });
            left -= count;
        }
        self.places = Some(places);
        extents
    }

    /// Share of the blocks for data that live, in thousandths.
    fn load(&self) -> u32 {
        let blocks = self.placed_blocks(self.live_nodes).max(1);
        ((self.live_blocks - self.live_nodes) * 1000 / blocks) as u32
    }

    /// A Clean segment becomes Placed.
    fn place(&mut self, segment: u32, sequence: u64) {
        let opened = self.clock.now();
        let entry = self.edit(segment);
        assert!(entry.state == SegmentState::Clean && entry.live_blocks == 0);
        let freed = (entry.stamp, segment);
        *entry = UsageEntry {
            state: SegmentState::InPlace,
            group: UsageEntry::FIRST_GROUP,
            opened,
            stamp: sequence,
            ..UsageEntry::NEW
        };
        assert!(self.clean.remove(&freed));
        self.placed += 1;
    }

    /// Roll-forward found that blocks of `segment` are mapped; says whether they can be.
    pub(crate) fn replay_in_place(&mut self, segment: u32, sequence: u64) -> bool {
        match self.entries[segment as usize].state {
            SegmentState::InPlace => true,
            SegmentState::Clean => {
                self.place(segment, sequence);
                true
            }
            _ => false,
        }
    }

    /// A block of `segment` has died: it is free when that is durable.
    pub(super) fn free_later(&mut self, segment: u32, address: u64, sequence: u64) {
        let is_placed = self.entries[segment as usize].state == SegmentState::InPlace;
        if let Some(places) = self.places.as_mut().filter(|_| is_placed) {
            places.free_later(address, sequence);
        }
    }

    /// Nothing lives any more in `segment`, which was Placed.
    pub(super) fn note_emptied(&mut self, segment: u32) {
        self.placed -= 1;
        if let Some(places) = &mut self.places {
            places.leave(segment);
        }
    }

    /// Whether dead blocks wait for their freeing to be durable.
    pub(crate) fn has_pending_frees(&self) -> bool {
        self.places.as_ref().is_some_and(InPlaceAllocator::is_waiting)
    }

    /// Chunks before number `flushed` are durable: what they say is dead is free.
    pub(crate) fn apply_durable_frees(&mut self, flushed: u64) {
        let Self { places, entries, .. } = self;
        if let Some(places) = places {
            let state = |segment: u32| entries[segment as usize].state;
            places.settle(flushed, |segment| state(segment) == SegmentState::InPlace);
        }
    }

    /// Whether what is taken is what lives, or waits.
    pub(super) fn is_allocator_coherent(&self) -> bool {
        let placed = || {
            let entries = (0..).zip(&self.entries);
            entries.filter(|(_, entry)| entry.state == SegmentState::InPlace)
        };
        let agrees = |places: &InPlaceAllocator| {
            placed().all(|(segment, entry)| {
                places.taken(segment) == entry.live_blocks + places.waiting(segment)
            })
        };
        placed().count() == self.placed as usize && self.places.as_ref().is_none_or(agrees)
    }
}
