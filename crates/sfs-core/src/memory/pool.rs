//! The memory pool: mapped regions by size class, cached for the next use.
//!
//! [`Pool::take`] returns the smallest cached region that is large enough, halved down to the
//! requested class. If no cached region is large enough, the pool maps a region of the largest
//! class. A returned region is cached as far as the write buffer's budget allows beside the dirty
//! blocks. Other regions go back to the system, a few blocks at a time, so that no caller waits for
//! thousands. The pool never clears memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, MmapRegion};

/// Number of size classes: 1, 2, 4, ... 256 blocks. Larger regions are not cached.
const CLASSES: usize = 9;

/// Maximum of [`BUDGETS_PER_CACHED`]'s quotient, in blocks: 8 MiB may be cached over all classes,
/// however many blocks are dirty.
pub(super) const CACHED_BLOCKS_MIN: usize = 2048;

/// Divisor of the budget: the quotient may be cached, however many blocks are dirty.
const BUDGETS_PER_CACHED: usize = 4;

/// Minimum of [`BUDGETS_PER_CACHED`]'s quotient, in blocks: a region of the largest class beside
/// parts of another.
const CACHED_BLOCKS_LEAST: usize = 2 << (CLASSES - 1);

/// The cached regions of one size.
#[derive(Debug, Default)]
struct SizeClass {
    regions: Vec<MmapRegion>,
    /// Number of regions that have not been taken since the last [`Pool::release_idle`].
    idle: usize,
}

#[derive(Debug, Default)]
struct PoolState {
    classes: [Mutex<SizeClass>; CLASSES],
    /// Number of cached blocks of all classes.
    cached_blocks: AtomicUsize,
    /// Number of bytes in buffers of dirty blocks.
    dirty_bytes: AtomicUsize,
    /// Number of bytes that may be dirty and cached together.
    budget_bytes: usize,
    #[cfg(test)]
    maps_nothing: std::sync::atomic::AtomicBool,
}

/// A shared handle to the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<PoolState>);

impl Pool {
    /// Returns an empty pool, whose cache may use the part of `budget_bytes` that dirty blocks do
    /// not use.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self(Arc::new(PoolState { budget_bytes, ..PoolState::default() }))
    }

    /// Unmaps the cached regions that were not taken since the last call.
    pub(crate) fn release_idle(&self) {
        for (number, class) in self.0.classes.iter().enumerate() {
            let idle = class.lock().idle;
            (0..idle).for_each(|_| drop(self.take_cached(number)));
            let mut class = class.lock();
            class.idle = class.regions.len();
        }
    }

    /// Returns the number of cached blocks.
    #[cfg(test)]
    pub(crate) fn cached_blocks(&self) -> usize {
        self.0.cached_blocks.load(Ordering::Relaxed)
    }

    /// Returns the number of cached regions of a class.
    #[cfg(test)]
    pub(super) fn cached_regions(&self, class: usize) -> usize {
        self.0.classes[class].lock().regions.len()
    }

    /// Returns the number of bytes in buffers of dirty blocks.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.0.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Counts a buffer of `blocks` as dirty.
    pub(super) fn note_dirty(&self, blocks: usize) {
        self.0.dirty_bytes.fetch_add(blocks * BLOCK_SIZE, Ordering::Relaxed);
        self.trim(blocks);
    }

    /// Takes a buffer of `blocks` out of the count of dirty bytes.
    pub(super) fn forget_dirty(&self, blocks: usize) {
        self.0.dirty_bytes.fetch_sub(blocks * BLOCK_SIZE, Ordering::Relaxed);
    }

    /// Returns a region of at least `count` blocks with any content; `None` if the system has no memory.
    fn take(&self, count: usize) -> Option<MmapRegion> {
        let class = class_of(count);
        if class >= CLASSES {
            return self.map(count);
        }
        let cached = (class..CLASSES).find_map(|class| self.take_cached(class));
        let map = || self.map(1 << (CLASSES - 1)).or_else(|| self.map(1 << class));
        let mut region = cached.or_else(map)?;
        while region.len() > 1 << class {
            let (lower, upper) = region.halve();
            self.put(upper);
            region = lower;
        }
        Some(region)
    }

    /// Maps a new region; `None` if the system has no memory even after the whole cache was unmapped.
    fn map(&self, count: usize) -> Option<MmapRegion> {
        #[cfg(test)]
        if self.0.maps_nothing.load(Ordering::Relaxed) {
            return None;
        }
        let region = MmapRegion::new(count).or_else(|_| {
            self.shrink_to(0, usize::MAX);
            MmapRegion::new(count)
        });
        region.ok()
    }

    /// Makes the pool behave from now on as if the system had no memory, or as usual.
    #[cfg(test)]
    pub(crate) fn map_nothing(&self, maps_nothing: bool) {
        self.0.maps_nothing.store(maps_nothing, Ordering::Relaxed);
    }

    fn take_cached(&self, class: usize) -> Option<MmapRegion> {
        let region = {
            let mut class = self.0.classes.get(class)?.lock();
            let region = class.regions.pop()?;
            class.idle = class.idle.min(class.regions.len());
            region
        };
        self.0.cached_blocks.fetch_sub(region.len(), Ordering::Relaxed);
        Some(region)
    }

    fn put(&self, region: MmapRegion) {
        self.0.cached_blocks.fetch_add(region.len(), Ordering::Relaxed);
        self.0.classes[class_of(region.len())].lock().regions.push(region);
    }

    fn give_back(&self, region: MmapRegion) {
        let count = region.len();
        if class_of(count) < CLASSES {
            self.put(region);
            self.trim(count);
        }
    }

    /// Unmaps cached regions beyond the budget, but little more than twice `count` blocks: a caller that
    /// returns one block does not wait for thousands to be unmapped.
    fn trim(&self, count: usize) {
        let budget_bytes = self.0.budget_bytes;
        let free = budget_bytes.saturating_sub(self.dirty_bytes()) / BLOCK_SIZE;
        let least = (budget_bytes / BUDGETS_PER_CACHED / BLOCK_SIZE)
            .clamp(CACHED_BLOCKS_LEAST, CACHED_BLOCKS_MIN);
        self.shrink_to(least.max(free), 2 * count);
    }

    /// Unmaps cached regions until at most `most` blocks are cached or `enough` blocks are unmapped. The class
    /// with the most blocks shrinks first: sizes that come back now are likely to be asked for next.
    fn shrink_to(&self, most: usize, mut enough: usize) {
        while enough > 0 && self.0.cached_blocks.load(Ordering::Relaxed) > most {
            let blocks = |class: &usize| self.0.classes[*class].lock().regions.len() << class;
            let fullest = (0..CLASSES).max_by_key(blocks);
            let Some(gone) = fullest.and_then(|class| self.take_cached(class)) else { return };
            enough = enough.saturating_sub(gone.len());
        }
    }
}

/// Returns the smallest class of at least `count` blocks; `count` is at least one.
fn class_of(count: usize) -> usize {
    count.next_power_of_two().trailing_zeros() as usize
}

/// A buffer of whole blocks from the pool. Its initial content is undefined.
#[derive(Debug)]
pub(crate) struct BlockBuf {
    blocks: MmapRegion,
    count: usize,
    pool: Pool,
}

impl BlockBuf {
    /// Returns a buffer of `count` blocks; `None` if the system has no memory.
    pub(crate) fn new(count: usize, pool: &Pool) -> Option<Self> {
        Some(Self { blocks: pool.take(count)?, count, pool: pool.clone() })
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks[..self.count]
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.blocks[..self.count]
    }

    /// Returns the number of blocks of the region that holds the buffer: `count` rounded up to a size class.
    pub(super) fn capacity_blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Drop for BlockBuf {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.blocks));
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_serves_the_size_used_last() {
        let pool = Pool::new(CACHED_BLOCKS_MIN * BLOCK_SIZE);
        let cached = || pool.cached_blocks();
        for count in [1, 100, 3, 256, 1] {
            let used: Vec<BlockBuf> = (0..3 * CACHED_BLOCKS_MIN / count)
                .map(|_| BlockBuf::new(count, &pool).expect("memory"))
                .collect();
            drop(used);
            assert!(
                cached() <= CACHED_BLOCKS_MIN && cached() > CACHED_BLOCKS_MIN / 2,
                "{} after {count}",
                cached()
            );
            assert!(pool.take_cached(class_of(count)).is_some(), "{count} blocks");
        }
        let classes = pool
            .0
            .classes
            .iter()
            .map(|class| class.lock().regions.iter().map(|region| region.len()).sum::<usize>());
        assert_eq!(classes.sum::<usize>(), cached());
    }

    #[test]
    fn fragments_of_regions_do_not_exhaust_the_mappings() {
        let mappings =
            || std::fs::read_to_string("/proc/self/maps").map_or(0, |s| s.lines().count());
        let pool = Pool::default();
        let before = mappings();
        let mut all: Vec<Option<BlockBuf>> =
            (0..64 * 256).map(|_| Some(BlockBuf::new(1, &pool).expect("memory"))).collect();
        all.iter_mut().step_by(2).for_each(|memory| drop(memory.take()));
        pool.release_idle();
        pool.release_idle();
        assert_eq!(pool.cached_blocks(), 0);
        assert!(mappings() < before + 1000, "{} were {before}", mappings());
    }

    #[test]
    fn a_small_region_is_cached_beside_large_ones() {
        let pool = Pool::new(CACHED_BLOCKS_MIN * BLOCK_SIZE);
        drop(
            (0..CACHED_BLOCKS_MIN / 256)
                .map(|_| BlockBuf::new(256, &pool).expect("memory"))
                .collect::<Vec<_>>(),
        );
        assert_eq!(pool.cached_blocks(), CACHED_BLOCKS_MIN);
        drop(BlockBuf::new(1, &pool).expect("memory"));
        assert!(pool.take_cached(0).is_some(), "the next buffer needs no mapping");
    }

    /// Regression: with a small write buffer the cache took as much as with a large one, beside a full buffer.
    #[test]
    fn a_small_budget_leaves_little_cached_beside_dirty_blocks() {
        let budget = 4096;
        let pool = Pool::new(budget * BLOCK_SIZE);
        pool.note_dirty(budget);
        drop((0..2 * budget).map(|_| BlockBuf::new(1, &pool).expect("memory")).collect::<Vec<_>>());
        let least = budget / BUDGETS_PER_CACHED;
        assert!((1..=least).contains(&pool.cached_blocks()), "{}", pool.cached_blocks());
    }

    /// Regression: with the smallest budget a large region went back to the system whenever a small one was cached, and
    /// every large write mapped it anew.
    #[test]
    fn a_large_region_is_cached_beside_small_ones_with_the_smallest_budget() {
        let pool = Pool::new(1 << 20);
        pool.note_dirty(256);
        let (small, large) = (BlockBuf::new(1, &pool), BlockBuf::new(256, &pool));
        drop(small);
        drop(large);
        assert!(pool.take_cached(CLASSES - 1).is_some(), "the next large buffer needs no mapping");
    }
}
