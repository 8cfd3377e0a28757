//! The part of a device that a measurement writes, and the orders in which it writes it.
//!
//! The area lies within the device, and starts at a multiple of the largest request on the medium.

use sfs_device::BLOCK_SIZE;

use super::{SIZE_MAX, SIZE_MIN};

/// Minimum number of requests of the largest size in the area.
const REQUESTS_MIN: u64 = 8;

/// Region of a medium to measure.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Number of blocks of the device.
    pub block_count: u64,
    /// Start of the device on the medium, in bytes: requests are aligned on the medium.
    pub partition_start: u64,
}

/// Range of blocks that is written; its start is aligned on the medium.
#[derive(Clone, Copy)]
pub(super) struct Area {
    pub(super) first_block: u64,
    pub(super) bytes: u64,
    /// Size of the largest request, in bytes.
    pub(super) size_max: u64,
}

impl Area {
    /// Returns `None` for a device that is too small for a few requests.
    pub(super) fn new(region: Region, pass_bytes: u64) -> Option<Area> {
        let block = BLOCK_SIZE as u64;
        let start = region.partition_start.div_ceil(block) * block;
        let mut size_max = SIZE_MAX;
        loop {
            let first = start.next_multiple_of(size_max) - start;
            let room = (region.block_count * block).saturating_sub(first).min(pass_bytes);
            let bytes = room / size_max * size_max;
            if bytes >= REQUESTS_MIN * size_max {
                return Some(Area { first_block: first / block, bytes, size_max });
            }
            if size_max == SIZE_MIN {
                return None;
            }
            size_max /= 2;
        }
    }

    /// Returns the first `bytes` of the area, with the largest request that occurs often enough in them.
    pub(super) fn first(self, bytes: u64) -> Area {
        let bytes = bytes.min(self.bytes);
        let mut size_max = self.size_max;
        while size_max > SIZE_MIN && bytes < REQUESTS_MIN * size_max {
            size_max /= 2;
        }
        Area { bytes: bytes / size_max * size_max, size_max, ..self }
    }

    /// Returns the blocks at which requests of `size` bytes begin, in order.
    pub(super) fn in_order(&self, size: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        let (first, step) = (self.first_block, size / BLOCK_SIZE as u64);
        (0..self.bytes / size).map(move |no| first + no * step)
    }

    /// Returns the same blocks in an order that looks random.
    pub(super) fn scattered(&self, size: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        let (first, step, count) = (self.first_block, size / BLOCK_SIZE as u64, self.bytes / size);
        (0..count).map(move |no| first + scattered(no, count) * step)
    }
}

/// Returns the `no`th of `count` positions in an order that looks random; each position occurs
/// once. A Feistel network permutes the numbers below a power of four, and is applied until the
/// position is below `count`.
fn scattered(no: u64, count: u64) -> u64 {
    let half_bits = count.max(2).ilog2().div_ceil(2).max(1) + u32::from(!count.is_power_of_two());
    let mask = (1u64 << half_bits) - 1;
    let mut place = no;
    loop {
        let (mut left, mut right) = (place >> half_bits, place & mask);
        for round in 1..=4u64 {
            let mixed = (right + round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (left, right) = (right, left ^ ((mixed >> 40) & mask));
        }
        place = left << half_bits | right;
        if place < count {
            return place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_occurs_once_and_few_in_order() {
        for count in [1, 2, 3, 8, 16, 100, 1024, 5000] {
            let places: Vec<u64> = (0..count).map(|no| scattered(no, count)).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count), "{count}");
            let followers = places.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            assert!(followers as u64 <= 2 + count / 20, "{count}: {followers}");
        }
    }

    #[test]
    fn the_area_is_aligned_on_the_medium() {
        let region = Region { block_count: 1 << 20, partition_start: 1 << 20 };
        let area = Area::new(region, 1 << 30).expect("room");
        assert_eq!((area.first_block, area.bytes, area.size_max), (63 << 8, 1 << 30, 64 << 20));
        // A partition at sector 63 is aligned to the next block.
        let old = Area::new(Region { partition_start: 63 * 512, ..region }, 1 << 30);
        assert_eq!(old.expect("room").first_block * 4096 + 64 * 512, 64 << 20);
        let small = Area::new(Region { block_count: 10_000, partition_start: 0 }, 1 << 30);
        assert_eq!(small.expect("room").size_max, 4 << 20);
        assert!(Area::new(Region { block_count: 100, partition_start: 0 }, 1 << 30).is_none());
    }
}
