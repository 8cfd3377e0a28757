//! Places: which blocks of Placed segments are free, and which of them come next.
//!
//! Owns: a bit for each block of the volume, the blocks whose freeing is not durable yet, and the scheme
//! that chooses segments.
//! Promises: no block is given out twice, nor before its freeing is durable. A scheme is told all that
//! it goes by, and chooses only what has a free block.
//! Never: knows which file a block belongs to, or opens a segment (see `usage`).

mod bitmap;
mod clock;
mod greedy;
mod group;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub(crate) use bitmap::Bitmap;
use clock::{ClockSpace, ThresholdRule};
use greedy::GreedySpace;
use group::BlockGroups;

use crate::format::{DataLayout, Layout, SegmentState, UsageEntry};
use crate::mutant::{Mutant, mutated};

/// What a scheme chooses from.
#[derive(Clone, Copy)]
pub(crate) struct SpaceView<'a> {
    pub(crate) bitmap: &'a Bitmap,
    pub(crate) entries: &'a [UsageEntry],
    /// Stamp and number of the first Clean segment that may be taken; those after it may be, too.
    pub(crate) clean: Option<(u64, u32)>,
    /// Share of the blocks for data that hold some, in thousandths.
    pub(crate) load: u32,
}

impl SpaceView<'_> {
    /// Number of segments.
    fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Free blocks of `segment`; none if it is not for data.
    fn free(&self, segment: u32) -> u32 {
        let entry = &self.entries[segment as usize];
        match entry.state {
            SegmentState::InPlace => self.bitmap.free(segment),
            SegmentState::Clean if self.clean.is_some_and(|c| c <= (entry.stamp, segment)) => {
                self.bitmap.segment_blocks()
            }
            _ => 0,
        }
    }

    /// The segments from `first` on, once around, that have a free block, and how many they have.
    fn around(&self, first: u32) -> impl Iterator<Item = (u32, u32)> {
        let segments = (first..self.count()).chain(0..first);
        segments.map(|segment| (segment, self.free(segment))).filter(|(_, free)| *free > 0)
    }
}

/// Says which segment new blocks go to.
trait Scheme: Send + Sync {
    /// The segment for new blocks of file `ino`; none if no block is free.
    fn choose(&mut self, space: &SpaceView<'_>, ino: u64) -> Option<u32>;

    /// Whether a segment that was chosen is used until it is full, whoever writes.
    fn fills_up(&self) -> bool;

    /// Placed segment `segment` has `free` blocks now; none, too, if it is no longer Placed.
    fn note_free(&mut self, _segment: u32, _free: u32) {}
}

/// Blocks whose freeing the chunk with this number, or a later one, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Freed {
    sequence: u64,
    segment: u32,
    first: u32,
    count: u32,
}

/// See the module.
pub(crate) struct InPlaceAllocator {
    layout: Layout,
    bitmap: Bitmap,
    scheme: Box<dyn Scheme>,
    /// The segment that is being filled up.
    current: Option<u32>,
    /// In the order of their sequence numbers.
    freed: VecDeque<Freed>,
    /// Free blocks of all Placed segments.
    free_blocks: u64,
}

impl InPlaceAllocator {
    /// No block is taken; nothing for a volume whose data goes to the log.
    pub(crate) fn new(data_layout: DataLayout, layout: Layout) -> Option<Self> {
        let Layout { segment_count, segment_blocks, .. } = layout;
        let scheme: Box<dyn Scheme> = match data_layout {
            DataLayout::Log => return None,
            DataLayout::GreedySpace => Box::new(GreedySpace::new(segment_count)),
            DataLayout::ClockSpace => Box::new(ClockSpace::new(ThresholdRule::Table)),
            DataLayout::ClockSpaceExact => Box::new(ClockSpace::new(ThresholdRule::Exact)),
            DataLayout::BlockGroup => Box::new(BlockGroups),
        };
        let bitmap = Bitmap::new(segment_count, segment_blocks);
        let freed = VecDeque::new();
        Some(Self { layout, bitmap, scheme, current: None, freed, free_blocks: 0 })
    }

    /// `count` blocks from `address` on, of one segment, live; says whether all were free.
    pub(crate) fn mark(&mut self, address: u64, count: u32) -> bool {
        let (segment, block) = self.place_of(address);
        self.bitmap.take(segment, block, count)
    }

    /// No block of `segment`, which is Placed, is free.
    pub(crate) fn fill(&mut self, segment: u32) {
        self.bitmap.take(segment, 0, self.bitmap.segment_blocks());
    }

    /// Free blocks of all Placed segments.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Blocks of `segment` that live, or whose freeing is not durable.
    pub(crate) fn taken(&self, segment: u32) -> u32 {
        self.bitmap.segment_blocks() - self.bitmap.free(segment)
    }

    /// Blocks of `segment` whose freeing is not durable.
    pub(crate) fn waiting(&self, segment: u32) -> u32 {
        self.freed.iter().filter(|freed| freed.segment == segment).map(|freed| freed.count).sum()
    }

    /// Whether the freeing of any block is not durable.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.freed.is_empty()
    }

    /// `segment`, which was Clean, becomes Placed.
    pub(crate) fn begin(&mut self, segment: u32) {
        self.bitmap.clear(segment, 0, self.bitmap.segment_blocks());
        self.join(segment);
    }

    /// `segment` is Placed, and its blocks have been marked.
    pub(crate) fn join(&mut self, segment: u32) {
        let free = self.bitmap.free(segment);
        self.free_blocks += u64::from(free);
        self.scheme.note_free(segment, free);
    }

    /// `segment` is no longer Placed.
    pub(crate) fn leave(&mut self, segment: u32) {
        self.free_blocks -= u64::from(self.bitmap.free(segment));
        self.scheme.note_free(segment, 0);
        self.current = self.current.filter(|current| *current != segment);
    }

    /// The segment for the next new block of file `ino`; none if no block is free.
    pub(crate) fn choose(
        &mut self,
        entries: &[UsageEntry],
        clean: Option<(u64, u32)>,
        load: u32,
        ino: u64,
    ) -> Option<u32> {
        let space = SpaceView { bitmap: &self.bitmap, entries, clean, load };
        if let Some(current) = self.current
            && space.free(current) > 0
        {
            return Some(current);
        }
        let chosen = self.scheme.choose(&space, ino);
        self.current = chosen.filter(|_| self.scheme.fills_up());
        chosen
    }

    /// Takes the first free blocks of `segment`, which is Placed: up to `most` neighbours. Gives the
    /// address of the first, and how many they are; none if the segment is full.
    pub(crate) fn take(&mut self, segment: u32, most: u32) -> Option<(u64, u32)> {
        let (first, count) = self.bitmap.first_free(segment, most)?;
        assert!(self.bitmap.take(segment, first, count), "they were free");
        self.free_blocks -= u64::from(count);
        self.scheme.note_free(segment, self.bitmap.free(segment));
        Some((self.layout.segment_address(segment) + u64::from(first), count))
    }

    /// The block at `address`, of a Placed segment, is dead; the chunk with number `sequence`, or a
    /// later one, says so.
    pub(crate) fn free_later(&mut self, address: u64, sequence: u64) {
        let (segment, first) = self.place_of(address);
        if mutated(Mutant::FreedReused) {
            return self.free(&Freed { sequence, segment, first, count: 1 });
        }
        match self.freed.back_mut() {
            Some(last)
                if (last.sequence, last.segment) == (sequence, segment)
                    && last.first + last.count == first =>
            {
                last.count += 1;
            }
            _ => self.freed.push_back(Freed { sequence, segment, first, count: 1 }),
        }
    }

    /// Chunks before number `flushed` are durable: what they say is dead may be used again. `is_placed`
    /// says of a segment whether it still is.
    pub(crate) fn settle(&mut self, flushed: u64, is_placed: impl Fn(u32) -> bool) {
        while self.freed.front().is_some_and(|freed| freed.sequence < flushed) {
            let freed = self.freed.pop_front().expect("there is one");
            // All of a segment that has left is cleared when it comes back.
            if is_placed(freed.segment) {
                self.free(&freed);
            }
        }
    }

    fn free(&mut self, freed: &Freed) {
        let Freed { segment, first, count, .. } = *freed;
        // Of a forged volume two may have owned a block.
        self.free_blocks += u64::from(self.bitmap.clear(segment, first, count));
        self.scheme.note_free(segment, self.bitmap.free(segment));
    }

    /// Segment and block in it.
    fn place_of(&self, address: u64) -> (u32, u32) {
        let segment = self.layout.segment_of(address).expect("we placed it in a segment");
        (segment, (address - self.layout.segment_address(segment)) as u32)
    }
}
