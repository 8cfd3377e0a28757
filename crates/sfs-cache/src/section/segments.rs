//! Segments of a section: filled in memory, written, and made free.

use std::sync::Arc;

use sfs_device::Block;

use super::{FilledSegment, Section, Segment, SegmentState};
use crate::mutant::{Mutant, mutated};
use crate::summary::{BlockKey, Entry, Summary};

/// Segments that are kept free: one to fill, and one while the last one is being written.
const FREE_MIN: usize = 2;

impl Section {
    /// Adds a block to the segment that is being filled; returns whether there was room.
    pub(crate) fn insert(
        &mut self,
        key: BlockKey,
        block: &Block,
        sequence: u64,
        filling: u64,
    ) -> bool {
        if !self.open(sequence, filling) {
            return false;
        }
        self.make_room(self.extent_of(key).0);
        let segment = self.filling.as_mut().expect("just opened");
        let at = segment.summary.entries.len();
        segment.blocks[at].clone_from(block);
        let checksum = crc32c::crc32c(&block.0);
        segment.summary.entries.push(Entry { key, checksum, is_dirty: false });
        let slot = segment.no * self.segment_blocks + self.summary_blocks + at as u32;
        self.add(key, slot);
        true
    }

    /// Takes a segment to fill, unless one has room.
    fn open(&mut self, sequence: u64, filling: u64) -> bool {
        let data_blocks = self.data_blocks() as usize;
        if let Some(segment) = &self.filling {
            return segment.summary.entries.len() < data_blocks;
        }
        let Some(no) = self.free.pop_front() else { return false };
        let segment = &mut self.segments[no as usize];
        (segment.state, segment.sequence) = (SegmentState::Filling, sequence);
        let summary = Summary { filling, sequence, entries: Vec::with_capacity(data_blocks) };
        self.filling = Some(FilledSegment { no, summary, blocks: Block::zeroed(data_blocks) });
        true
    }

    /// Returns the filled segment that has to be written, if it is full or `partly` is `true`. Its blocks stay in memory until
    /// [`Section::note_written`].
    pub(crate) fn take_filled(&mut self, partly: bool) -> Option<Arc<FilledSegment>> {
        let is_due = |segment: &mut FilledSegment| {
            let count = segment.summary.entries.len();
            count == segment.blocks.len() || partly && count > 0
        };
        assert!(self.writing.is_none(), "one thread writes");
        let segment = Arc::new(self.filling.take_if(is_due)?);
        self.writing = Some(segment.clone());
        Some(segment)
    }

    /// Notes that the segment of [`Section::take_filled`] is on the device.
    pub(crate) fn note_written(&mut self) {
        if let Some(segment) = self.writing.take() {
            self.segments[segment.no as usize].state = SegmentState::Written;
        }
    }

    /// Returns the segment that is to become free, if there are too few free ones, and the number of its live blocks. Nobody reads it.
    pub(crate) fn victim(&self) -> Option<(u32, u32)> {
        if self.free.len() >= FREE_MIN {
            return None;
        }
        let is_idle = |segment: &Segment| segment.readers == 0 || mutated(Mutant::EvictionInFlight);
        let segments = (0..).zip(&self.segments);
        let fit = segments
            .filter(|(_, segment)| segment.state == SegmentState::Written && is_idle(segment));
        // Among equals the oldest: most of its extents have had their chance to be used.
        let best = fit.min_by_key(|(_, segment)| (segment.live, segment.sequence))?;
        Some((best.0, best.1.live))
    }

    /// Frees a segment. Its live extents that were used move to the segment that is being filled, from `content`, its summary and
    /// blocks; the others are forgotten. Without live blocks no content is needed. Returns the number of blocks that moved;
    /// `None` if the device has returned other content than was written.
    pub(crate) fn reclaim(
        &mut self,
        no: u32,
        content: Option<(&Summary, &[Block])>,
        (sequence, filling): (u64, u64),
    ) -> Option<u64> {
        let (mut moved, mut is_right) = (0, true);
        let entries = content.map(|(summary, blocks)| summary.entries.iter().zip(blocks));
        let mut used = Vec::new();
        for (at, (entry, block)) in (0..).zip(entries.into_iter().flatten()) {
            let slot = no * self.segment_blocks + self.summary_blocks + at;
            if self.slot_of(entry.key) != Some(slot) {
                continue;
            }
            let (key, part) = self.extent_of(entry.key);
            let is_used = self.index.get(&key).is_some_and(|extent| extent.is_used);
            let is_whole = crc32c::crc32c(&block.0) == entry.checksum;
            is_right &= is_whole;
            if is_used
                && is_whole
                && self.has_room()
                && self.insert(entry.key, block, sequence, filling)
            {
                moved += 1;
                used.push(key);
            }
            if self.slot_of(entry.key) == Some(slot) {
                self.forget_part(key, part..part + 1);
            }
        }
        for key in used {
            self.index.entry(key).and_modify(|extent| extent.is_used = false);
        }
        let segment = &mut self.segments[no as usize];
        is_right &= segment.live == 0;
        if is_right && (segment.readers == 0 || mutated(Mutant::EvictionInFlight)) {
            segment.state = SegmentState::Free;
            self.free.push_back(no);
        }
        is_right.then_some(moved)
    }

    /// Returns whether a block can be added without another segment becoming free.
    pub(crate) fn has_room(&self) -> bool {
        let segment = self.filling.as_ref();
        segment.map_or(!self.free.is_empty(), |segment| {
            segment.summary.entries.len() < segment.blocks.len()
        })
    }
}
