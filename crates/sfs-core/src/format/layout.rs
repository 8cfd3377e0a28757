//! The layout of a volume: its areas on the device, in blocks.
//!
//! The superblock is at a fixed block near the start. One checkpoint slot is before the segments,
//! the other one after them, and the backup of the superblock is in the last block.

use sfs_device::BLOCK_SIZE;
use thiserror::Error;

use super::{CHECKPOINT_SLOT_BLOCKS, SUPERBLOCK_ADDRESS};

/// First block of checkpoint slot 0.
const SLOT_ADDRESS: u64 = 16;

/// Minimum number of segments that a volume works with.
pub const SEGMENTS_MIN: u32 = 32;

/// Minimum number of blocks in a segment: 128 KiB.
const SEGMENT_BLOCKS_MIN: u64 = 32;

/// Maximum number of segments in a volume: 640 MiB of usage entries.
const SEGMENT_COUNT_MAX: u32 = 1 << 24;

/// Maximum number of blocks of a volume: addresses have 40 bits, for 4 PiB.
const BLOCK_COUNT_MAX: u64 = (1 << 40) - 1;

/// Maximum number of blocks in a segment: 1 GiB.
const SEGMENT_BLOCKS_MAX: u64 = 1 << 18;

/// The areas of a volume on the device, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of blocks of the device that the volume uses.
    pub block_count: u64,
    /// First block of segment 0.
    pub segment_first: u64,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Number of segments.
    pub segment_count: u32,
    /// First block of each checkpoint slot.
    pub slots: [u64; 2],
    /// Block of the superblock's backup.
    pub backup: u64,
}

/// The reason why no layout is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The device is too small for this segment size.
    #[error("too small: this segment size needs at least {minimum} bytes")]
    TooSmall {
        /// Minimum size of the device, in bytes.
        minimum: u64,
    },
    /// The segment size is not a power of two of blocks in range, 128 KiB to 1 GiB.
    #[error("segment size must be a power of two from 128K to 1G")]
    SegmentSize,
}

impl Layout {
    /// Returns the layout for a device of `block_count` blocks that begins `partition_start` bytes after the start of
    /// the medium. Segments are aligned on the medium.
    pub fn new(
        block_count: u64,
        segment_blocks: u64,
        partition_start: u64,
    ) -> Result<Self, LayoutError> {
        let block_count = block_count.min(BLOCK_COUNT_MAX);
        let in_range = (SEGMENT_BLOCKS_MIN..=SEGMENT_BLOCKS_MAX).contains(&segment_blocks);
        if !in_range || !segment_blocks.is_power_of_two() {
            return Err(LayoutError::SegmentSize);
        }
        // A partition that begins within a block (old ones begin at sector 63) is rounded up to the next block.
        let start = partition_start.div_ceil(BLOCK_SIZE as u64);
        let head = SLOT_ADDRESS + CHECKPOINT_SLOT_BLOCKS;
        let segment_first = (start + head).next_multiple_of(segment_blocks) - start;
        let tail = CHECKPOINT_SLOT_BLOCKS + 1;
        let minimum = segment_first + u64::from(SEGMENTS_MIN) * segment_blocks + tail;
        if block_count < minimum {
            return Err(LayoutError::TooSmall { minimum: minimum * BLOCK_SIZE as u64 });
        }
        let segment_count = ((block_count - segment_first - tail) / segment_blocks)
            .min(u64::from(SEGMENT_COUNT_MAX));
        let end = segment_first + segment_count * segment_blocks;
        Ok(Self {
            block_count,
            segment_first,
            segment_blocks: segment_blocks as u32,
            segment_count: segment_count as u32,
            slots: [SLOT_ADDRESS, end],
            backup: block_count - 1,
        })
    }

    /// Returns this layout on `block_count` blocks, more or fewer than now: segments stay where they are, and are added
    /// or left out behind the last one. The other areas behind the segments get new places, which overlap neither
    /// their old ones nor segments of both layouts, so a crash finds the old areas or the new ones. `None` if the number
    /// of segments stays the same, or no such layout is possible.
    pub fn resized(&self, block_count: u64) -> Option<Self> {
        let block_count = block_count.min(BLOCK_COUNT_MAX);
        let tail = CHECKPOINT_SLOT_BLOCKS + 1;
        let room = block_count.checked_sub(self.segment_first + tail)?;
        let segment_count = (room / u64::from(self.segment_blocks)).min(SEGMENT_COUNT_MAX.into());
        let end = self.segment_first + segment_count * u64::from(self.segment_blocks);
        let backup = block_count - 1;
        // Only the old backup, and the slot before it, can be where the new slot would be.
        let is_free = |slot: u64| {
            let new = slot..slot + CHECKPOINT_SLOT_BLOCKS;
            let old = self.slots[1]..self.slots[1] + CHECKPOINT_SLOT_BLOCKS;
            let overlaps = new.start < old.end && old.start < new.end;
            !overlaps && !new.contains(&self.backup) && !old.contains(&backup) && new.end <= backup
        };
        let slot = [end, self.backup + 1].into_iter().find(|slot| is_free(*slot))?;
        let layout = Self {
            block_count,
            segment_count: segment_count as u32,
            slots: [self.slots[0], slot],
            backup,
            ..*self
        };
        let is_other = layout.segment_count != self.segment_count && backup != self.backup;
        (is_other && layout.is_sound()).then_some(layout)
    }

    /// Returns the least number of blocks with which [`Layout::resized`] has `segment_count` segments; the number of
    /// segments must differ from the present one.
    pub fn blocks_for(&self, segment_count: u32) -> u64 {
        let end = self.segment_first + u64::from(segment_count) * u64::from(self.segment_blocks);
        let least = end + CHECKPOINT_SLOT_BLOCKS + 1;
        // The old backup can be in the way: the areas then begin behind it.
        let has_room = |blocks: &u64| {
            self.resized(*blocks).is_some_and(|layout| layout.segment_count == segment_count)
        };
        (least..least + 3 * CHECKPOINT_SLOT_BLOCKS).find(has_room).unwrap_or(least)
    }

    /// Returns the first block of `segment`.
    pub fn segment_address(&self, segment: u32) -> u64 {
        self.segment_first + u64::from(segment) * u64::from(self.segment_blocks)
    }

    /// Returns the segment of block `address`; `None` outside the segments.
    pub fn segment_of(&self, address: u64) -> Option<u32> {
        let segment = address.checked_sub(self.segment_first)? / u64::from(self.segment_blocks);
        (segment < u64::from(self.segment_count)).then_some(segment as u32)
    }
    /// Returns whether the areas are on the device and do not overlap.
    pub(super) fn is_sound(&self) -> bool {
        let blocks = u64::from(self.segment_blocks);
        let end = self.segment_first.checked_add(u64::from(self.segment_count) * blocks);
        (SEGMENT_BLOCKS_MIN..=SEGMENT_BLOCKS_MAX).contains(&blocks)
            && blocks.is_power_of_two()
            && self.segment_count <= SEGMENT_COUNT_MAX
            && self.block_count <= BLOCK_COUNT_MAX
            && self.segment_count >= SEGMENTS_MIN
            && self.slots[0] == SLOT_ADDRESS
            && SUPERBLOCK_ADDRESS < SLOT_ADDRESS
            && self.slots[0] + CHECKPOINT_SLOT_BLOCKS <= self.segment_first
            && end.is_some_and(|end| end <= self.slots[1])
            && self.slots[1]
                .checked_add(CHECKPOINT_SLOT_BLOCKS)
                .is_some_and(|end| end <= self.backup)
            && self.backup.checked_add(1) == Some(self.block_count)
    }
}
