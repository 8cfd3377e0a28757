//! The allocator: the taken blocks, the scheme, and the queue of pending frees.

use std::collections::VecDeque;

use super::bitmap::Bitmap;
use super::clock::{ClockSpace, ThresholdRule};
use super::greedy::GreedySpace;
use super::group::BlockGroups;
use super::scheme::{FreeSpaceView, Scheme};
use crate::format::{DataLayout, Layout, UsageEntry};
use crate::mutant::{Mutant, mutated};

/// Dead blocks that become free when a chunk is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingFree {
    /// Number of the first chunk that may record the deaths.
    sequence: u64,
    segment: u32,
    first: u32,
    count: u32,
}

/// Returns the scheme of a layout; `None` for a volume whose data goes to the log.
fn scheme(data_layout: DataLayout, segment_count: u32) -> Option<Box<dyn Scheme>> {
    Some(match data_layout {
        DataLayout::Log => return None,
        DataLayout::GreedySpace => Box::new(GreedySpace::new(segment_count)),
        DataLayout::ClockSpace => Box::new(ClockSpace::new(ThresholdRule::Table)),
        DataLayout::ClockSpaceExact => Box::new(ClockSpace::new(ThresholdRule::Exact)),
        DataLayout::BlockGroup => Box::new(BlockGroups),
    })
}

/// Memory of the allocation of data in place, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationMemory {
    /// State of the scheme.
    pub scheme: usize,
    /// Bitmap of the taken blocks, which every scheme has.
    pub bitmap: usize,
}

impl AllocationMemory {
    /// Returns the memory for `segment_count` segments of `segment_blocks`, a power of two of at least 32; `None` for a volume
    /// whose data goes to the log.
    pub fn of(data_layout: DataLayout, segment_count: u32, segment_blocks: u32) -> Option<Self> {
        let scheme = scheme(data_layout, segment_count)?.state_len();
        Some(Self { scheme, bitmap: Bitmap::new(segment_count, segment_blocks).state_len() })
    }
}

/// The allocator of blocks in InPlace segments.
pub(crate) struct InPlaceAllocator {
    layout: Layout,
    bitmap: Bitmap,
    scheme: Box<dyn Scheme>,
    /// Segment that is being filled up.
    current: Option<u32>,
    /// Ascending by sequence number.
    pending: VecDeque<PendingFree>,
    /// Number of free blocks of all InPlace segments.
    free_blocks: u64,
}

impl InPlaceAllocator {
    /// Returns an allocator without taken blocks; `None` for a volume whose data goes to the log.
    pub(crate) fn new(data_layout: DataLayout, layout: Layout) -> Option<Self> {
        let Layout { segment_count, segment_blocks, .. } = layout;
        let scheme = scheme(data_layout, segment_count)?;
        let bitmap = Bitmap::new(segment_count, segment_blocks);
        let pending = VecDeque::new();
        Some(Self { layout, bitmap, scheme, current: None, pending, free_blocks: 0 })
    }

    /// Takes over a layout with other segments at the end. Segments that are left out have no taken block.
    pub(crate) fn resize(&mut self, layout: Layout) {
        self.layout = layout;
        self.bitmap.resize(layout.segment_count);
        self.scheme.resize(layout.segment_count);
        self.current = self.current.filter(|current| *current < layout.segment_count);
        self.pending.retain(|freed| freed.segment < layout.segment_count);
    }

    /// Marks `count` blocks of one segment, from `address` on, as taken. Returns whether all of
    /// them were free.
    pub(crate) fn mark(&mut self, address: u64, count: u32) -> bool {
        let (segment, block) = self.locate(address);
        self.bitmap.take(segment, block, count)
    }

    /// Marks all blocks of the InPlace segment `segment` as taken.
    pub(crate) fn fill(&mut self, segment: u32) {
        self.bitmap.take(segment, 0, self.bitmap.segment_blocks());
    }

    /// Returns the number of free blocks of all InPlace segments.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Returns the number of taken blocks of `segment`: live blocks and blocks with a pending free.
    pub(crate) fn taken(&self, segment: u32) -> u32 {
        self.bitmap.segment_blocks() - self.bitmap.free(segment)
    }

    /// Returns the number of blocks of `segment` with a pending free.
    pub(crate) fn pending_blocks(&self, segment: u32) -> u32 {
        self.pending.iter().filter(|freed| freed.segment == segment).map(|freed| freed.count).sum()
    }

    /// Returns whether any free is pending.
    pub(crate) fn has_pending_frees(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds `segment`, which was Clean, with all its blocks free.
    pub(crate) fn add_empty(&mut self, segment: u32) {
        self.bitmap.clear(segment, 0, self.bitmap.segment_blocks());
        self.add(segment);
    }

    /// Adds the InPlace segment `segment`, whose taken blocks have been marked.
    pub(crate) fn add(&mut self, segment: u32) {
        let free = self.bitmap.free(segment);
        self.free_blocks += u64::from(free);
        self.scheme.note_free(segment, free);
    }

    /// Removes `segment`, which is no longer InPlace.
    pub(crate) fn remove(&mut self, segment: u32) {
        self.free_blocks -= u64::from(self.bitmap.free(segment));
        self.scheme.note_free(segment, 0);
        self.current = self.current.filter(|current| *current != segment);
    }

    /// Returns the segment for the next new block of file `ino`; `None` if no block is free.
    pub(crate) fn choose(
        &mut self,
        entries: &[UsageEntry],
        clean: Option<(u64, u32)>,
        load: u32,
        ino: u64,
    ) -> Option<u32> {
        let space = FreeSpaceView { bitmap: &self.bitmap, entries, clean, load };
        if let Some(current) = self.current
            && space.free(current) > 0
        {
            return Some(current);
        }
        let chosen = self.scheme.choose(&space, ino);
        self.current = chosen.filter(|_| self.scheme.fills_up());
        chosen
    }

    /// Takes the first run of free blocks of the InPlace segment `segment`, at most `most`. Returns the address of
    /// the first block and the length of the run; `None` if the segment is full.
    pub(crate) fn take(&mut self, segment: u32, most: u32) -> Option<(u64, u32)> {
        let (first, count) = self.bitmap.first_free(segment, most)?;
        assert!(self.bitmap.take(segment, first, count), "the run of blocks was free");
        self.free_blocks -= u64::from(count);
        self.scheme.note_free(segment, self.bitmap.free(segment));
        Some((self.layout.segment_address(segment) + u64::from(first), count))
    }

    /// Frees the block at `address`, of an InPlace segment, once its death is durable. The chunk with number
    /// `sequence`, or a later one, records the death.
    pub(crate) fn free_later(&mut self, address: u64, sequence: u64) {
        let (segment, first) = self.locate(address);
        if mutated(Mutant::FreedReused) {
            return self.free(&PendingFree { sequence, segment, first, count: 1 });
        }
        match self.pending.back_mut() {
            Some(last)
                if (last.sequence, last.segment) == (sequence, segment)
                    && last.first + last.count == first =>
            {
                last.count += 1;
            }
            _ => self.pending.push_back(PendingFree { sequence, segment, first, count: 1 }),
        }
    }

    /// Frees the blocks whose deaths are recorded by chunks before number `flushed`, which are durable.
    /// `is_in_place` returns whether a segment is still InPlace.
    pub(crate) fn apply_durable_frees(&mut self, flushed: u64, is_in_place: impl Fn(u32) -> bool) {
        while self.pending.front().is_some_and(|freed| freed.sequence < flushed) {
            let freed = self.pending.pop_front().expect("the queue has a front");
            // A segment that was removed is cleared as a whole when it is added again.
            if is_in_place(freed.segment) {
                self.free(&freed);
            }
        }
    }

    fn free(&mut self, freed: &PendingFree) {
        let PendingFree { segment, first, count, .. } = *freed;
        // On a forged volume two mappings may have owned a block: `clear` counts only blocks that
        // were taken.
        self.free_blocks += u64::from(self.bitmap.clear(segment, first, count));
        self.scheme.note_free(segment, self.bitmap.free(segment));
    }

    /// Returns the segment of `address`, and the block in it.
    fn locate(&self, address: u64) -> (u32, u32) {
        let segment = self.layout.segment_of(address).expect("a data block is in a segment");
        (segment, (address - self.layout.segment_address(segment)) as u32)
    }
}
