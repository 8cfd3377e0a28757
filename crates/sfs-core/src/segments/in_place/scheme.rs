//! The interface between the allocator and the schemes that choose segments.

use super::bitmap::Bitmap;
use crate::format::{SegmentState, UsageEntry};

/// The free space that a scheme chooses from.
#[derive(Clone, Copy)]
pub(super) struct FreeSpaceView<'a> {
    pub(super) bitmap: &'a Bitmap,
    pub(super) entries: &'a [UsageEntry],
    /// Stamp and number of the first Clean segment that may be taken. Clean segments after it may be taken, too.
    pub(super) clean: Option<(u64, u32)>,
    /// Live share of the blocks for data, in thousandths.
    pub(super) load: u32,
}

impl FreeSpaceView<'_> {
    /// Returns the number of segments.
    pub(super) fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns the number of free blocks of `segment`; 0 if data may not use the segment.
    pub(super) fn free(&self, segment: u32) -> u32 {
        let entry = &self.entries[segment as usize];
        match entry.state {
            SegmentState::InPlace => self.bitmap.free(segment),
            SegmentState::Clean if self.clean.is_some_and(|c| c <= (entry.stamp, segment)) => {
                self.bitmap.segment_blocks()
            }
            _ => 0,
        }
    }

    /// Returns the segments with free blocks and their numbers of free blocks, once around from
    /// `first`.
    pub(super) fn around(&self, first: u32) -> impl Iterator<Item = (u32, u32)> {
        let segments = (first..self.count()).chain(0..first);
        segments.map(|segment| (segment, self.free(segment))).filter(|(_, free)| *free > 0)
    }
}

/// Chooses the segments of new blocks.
pub(super) trait Scheme: Send + Sync {
    /// Returns the segment for new blocks of file `ino`; `None` if no block is free.
    fn choose(&mut self, space: &FreeSpaceView<'_>, ino: u64) -> Option<u32>;

    /// Returns whether a chosen segment is filled up before the next choice, for all files.
    fn fills_up(&self) -> bool;

    /// Returns the number of bytes of state that grow with the volume.
    fn state_len(&self) -> usize {
        0
    }

    /// Notes that `segment` has `free` free blocks now; 0 if it is no longer InPlace.
    fn note_free(&mut self, _segment: u32, _free: u32) {}

    /// Notes that the volume has `segment_count` segments now. Segments that are left out have no free block.
    fn resize(&mut self, _segment_count: u32) {}
}
