//! Memory for the index of a cache.

use crate::header::CacheHeader;

/// Bytes of an extent in the index, in the policy and among those that the policy remembers, without its slots.
const EXTENT_BYTES: u64 = 160;

/// Bytes for the place of a block.
const SLOT_BYTES: u64 = 4;

/// Memory beside that for the places of all blocks.
const BASE_BYTES: u64 = 160 << 20;

/// Memory that the index of a cache takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexMemory {
    /// Bytes.
    pub bytes: u64,
}

impl IndexMemory {
    /// Returns the memory for a cache: 160 MiB, and 4 bytes for each of its blocks.
    pub fn of(header: &CacheHeader) -> Self {
        Self { bytes: BASE_BYTES + SLOT_BYTES * header.bit_count() }
    }

    /// Returns the smaller one of this memory and `bytes`.
    #[must_use]
    pub fn at_most(self, bytes: u64) -> Self {
        Self { bytes: self.bytes.min(bytes) }
    }

    /// Returns the largest number of extents of section `no`, which has a part of the memory by its size. A partly cached extent
    /// counts as a whole one. At least 64.
    pub(crate) fn extents_max(self, header: &CacheHeader, no: usize) -> u64 {
        let section = header.sections[no];
        let all = u128::from(header.bit_count().max(1));
        let blocks = u64::from(section.segment_count) * u64::from(header.segment_blocks);
        let share = (u128::from(self.bytes) * u128::from(blocks) / all) as u64;
        let extent = EXTENT_BYTES + SLOT_BYTES * u64::from(section.extent_blocks);
        // As many as there are blocks, if each extent has one.
        (share / extent).min(blocks).max(64)
    }

    /// Returns the largest number of blocks that can be cached: if all extents are cached wholly, and summaries take no room.
    pub fn cached_blocks_max(self, header: &CacheHeader) -> u64 {
        let blocks = |no: usize| {
            let section = header.sections[no];
            let all = u64::from(section.segment_count) * u64::from(header.segment_blocks);
            all.min(self.extents_max(header, no) * u64::from(section.extent_blocks))
        };
        (0..header.sections.len()).map(blocks).sum()
    }
}
