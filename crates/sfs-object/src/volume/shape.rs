//! Sizes of an object volume: regions, pages, and what the local cache needs.

use sfs_device::BLOCK_SIZE;

/// Blocks of a page, the unit in which the cache holds what was read.
pub(crate) const PAGE_BLOCKS: u64 = 16;

/// Bits in a block of a map in the local cache.
pub(crate) const BITS_PER_BLOCK: u64 = BLOCK_SIZE as u64 * 8;

/// Blocks of a volume, and how they are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of the volume, from 1 to 2^34 (64 TiB): maps of bits are in memory.
    pub volume_blocks: u64,
    /// Blocks of a region, the content of one data object: a multiple of 16, and at most 1,024.
    pub region_blocks: u64,
}

impl Shape {
    /// Returns the shape of a volume of `volume_blocks` blocks in regions of `region_bytes_max` bytes, but at least 64 KiB and at most
    /// 4 MiB.
    pub fn new(volume_blocks: u64, region_bytes_max: u64) -> Self {
        let bytes = region_bytes_max.clamp(PAGE_BLOCKS * BLOCK_SIZE as u64, 4 << 20);
        let pages = bytes / (PAGE_BLOCKS * BLOCK_SIZE as u64);
        Self { volume_blocks, region_blocks: pages * PAGE_BLOCKS }
    }

    /// Returns whether a volume can have this shape.
    pub(crate) fn is_sound(&self) -> bool {
        let largest = (4 << 20) / BLOCK_SIZE as u64;
        self.region_blocks > 0
            && self.region_blocks.is_multiple_of(PAGE_BLOCKS)
            && self.region_blocks <= largest
            && (1..=1 << 34).contains(&self.volume_blocks)
    }

    /// Returns the number of regions; the last one may be shorter.
    pub(crate) fn regions(&self) -> u64 {
        self.volume_blocks.div_ceil(self.region_blocks)
    }

    /// Returns the number of pages.
    pub(crate) fn pages(&self) -> u64 {
        self.volume_blocks.div_ceil(PAGE_BLOCKS)
    }

    /// Returns the regions that a range of blocks touches.
    pub(crate) fn regions_of(&self, address: u64, count: u64) -> std::ops::Range<u64> {
        address / self.region_blocks..(address + count).div_ceil(self.region_blocks)
    }

    /// Returns the blocks of a region.
    pub(crate) fn blocks(&self, region: u64) -> std::ops::Range<u64> {
        let begin = region * self.region_blocks;
        begin..(begin + self.region_blocks).min(self.volume_blocks)
    }

    /// Returns the pages that a range of blocks touches.
    pub(crate) fn pages_of(&self, blocks: std::ops::Range<u64>) -> std::ops::Range<usize> {
        (blocks.start / PAGE_BLOCKS) as usize..blocks.end.div_ceil(PAGE_BLOCKS) as usize
    }

    /// Returns the first block of the map of regions that may be ahead of the store. The two headers of the local cache are before it.
    pub(crate) fn ahead_map(&self) -> u64 {
        2
    }

    /// Returns the first block of the map of pages that are present.
    pub(crate) fn present_map(&self) -> u64 {
        self.ahead_map() + self.regions().div_ceil(BITS_PER_BLOCK)
    }

    /// Returns the first block of the image. It is never block 0, where a volume begins: no program takes the cache for a volume.
    pub(crate) fn image(&self) -> u64 {
        (self.present_map() + self.pages().div_ceil(BITS_PER_BLOCK)).next_multiple_of(PAGE_BLOCKS)
    }

    /// Returns the number of blocks of the local cache: headers, maps, and an image of the volume.
    pub fn cache_blocks(&self) -> u64 {
        self.image() + self.volume_blocks
    }
}
