//! Buffers of dirty blocks, and references to single blocks.
//!
//! A [`DirtyBuf`] counts against the write buffer's budget until its last [`BlockRef`] is dropped. A shared
//! block is read-only.

use std::sync::Arc;

use sfs_device::Block;

use super::pool::{BlockBuf, Pool};

/// A buffer of dirty blocks, counted against the write buffer's budget.
#[derive(Debug)]
pub(crate) struct DirtyBuf(BlockBuf);

impl DirtyBuf {
    /// Returns a buffer of `count` blocks whose content is undefined; `None` if the system has no memory.
    pub(crate) fn new(count: usize, pool: &Pool) -> Option<Self> {
        let buf = BlockBuf::new(count, pool)?;
        pool.note_dirty(buf.capacity_blocks());
        Some(Self(buf))
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.0.blocks_mut()
    }

    /// Returns a reference to each block. The memory stays shared and is freed as a whole.
    pub(crate) fn share(self) -> impl Iterator<Item = BlockRef> {
        let count = self.0.blocks().len();
        share(Shared::Dirty(self), count)
    }
}

impl Drop for DirtyBuf {
    fn drop(&mut self) {
        self.0.pool().forget_dirty(self.0.capacity_blocks());
    }
}

/// Memory that several [`BlockRef`]s point into.
#[derive(Debug)]
enum Shared {
    Dirty(DirtyBuf),
    /// Memory of the allocator, not counted against a budget.
    Uncounted(Vec<Block>),
}

fn share(shared: Shared, count: usize) -> impl Iterator<Item = BlockRef> {
    let shared = Arc::new(shared);
    (0..count as u32).map(move |index| BlockRef { shared: shared.clone(), index })
}

/// One block in shared memory.
#[derive(Clone, Debug)]
pub(crate) struct BlockRef {
    shared: Arc<Shared>,
    index: u32,
}

impl BlockRef {
    /// Returns a reference to each of `blocks` without copying.
    pub(crate) fn all_of(blocks: Vec<Block>) -> impl Iterator<Item = Self> {
        let count = blocks.len();
        share(Shared::Uncounted(blocks), count)
    }

    pub(crate) fn block(&self) -> &Block {
        &self.run(1)[0]
    }

    /// Returns whether both references point to the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.index == other.index
    }

    /// Returns whether `next` follows this block in memory, so that one part of a request covers both.
    pub(crate) fn precedes(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &next.shared) && self.index + 1 == next.index
    }

    /// Returns the `count` blocks of the same buffer from this one on.
    pub(crate) fn run(&self, count: usize) -> &[Block] {
        let blocks = match &*self.shared {
            Shared::Dirty(buf) => buf.0.blocks(),
            Shared::Uncounted(blocks) => blocks,
        };
        &blocks[self.index as usize..][..count]
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::BLOCK_SIZE;

    use super::super::pool::CACHED_BLOCKS_MIN;
    use super::*;

    #[test]
    fn the_cache_takes_what_dirty_blocks_leave_of_the_budget() {
        let budget = 4 * CACHED_BLOCKS_MIN;
        let pool = Pool::new(budget * BLOCK_SIZE);
        let buffers = |count| {
            (0..count).map(|_| DirtyBuf::new(1, &pool).expect("memory")).collect::<Vec<_>>()
        };
        let cached = || pool.cached_blocks();
        let all = buffers(budget);
        let some = buffers(100);
        drop(all);
        assert!(cached() + 100 <= budget && cached() > budget - 200, "{}", cached());
        let again = buffers(cached());
        assert_eq!(cached(), 0, "no region was mapped");
        drop((some, again));
        pool.release_idle();
        assert_eq!(cached(), budget, "the blocks were in use");
        pool.release_idle();
        assert_eq!(cached(), 0);
    }

    #[test]
    fn buffers_of_another_size_take_over_the_budget_step_by_step() {
        let budget = 4 * CACHED_BLOCKS_MIN;
        let pool = Pool::new(budget * BLOCK_SIZE);
        let mut live: Vec<DirtyBuf> =
            (0..budget).map(|_| DirtyBuf::new(1, &pool).expect("memory")).collect();
        for count in [256, 1, 32, 8, 256] {
            let (mut used, mut kept) = (0, pool.cached_blocks());
            let mut is_bounded = |step: usize| {
                let gone = std::mem::replace(&mut kept, pool.cached_blocks())
                    .saturating_sub(pool.cached_blocks());
                let most = CACHED_BLOCKS_MIN.max(budget - pool.dirty_bytes() / BLOCK_SIZE);
                // A step unmaps twice its blocks, the last of which may be a large region.
                assert!(gone <= step + 2 * step + 256, "{gone} in a step of {step}");
                assert!(
                    pool.cached_blocks() <= most + 256,
                    "{} beside {}",
                    pool.cached_blocks(),
                    pool.dirty_bytes()
                );
            };
            while let Some(buffer) = live.pop() {
                let step = buffer.0.capacity_blocks();
                drop(buffer);
                is_bounded(step);
            }
            while used < budget {
                live.push(DirtyBuf::new(count, &pool).expect("memory"));
                used += count;
                is_bounded(count);
            }
        }
    }

    /// Regression: regions of a size that was no longer in use filled the whole budget.
    #[test]
    fn idle_regions_are_released_and_used_ones_stay() {
        let budget = 4 * CACHED_BLOCKS_MIN;
        let pool = Pool::new(budget * BLOCK_SIZE);
        drop((0..budget).map(|_| DirtyBuf::new(1, &pool).expect("memory")).collect::<Vec<_>>());
        let mut live = std::collections::VecDeque::new();
        let mut turn = |count| {
            for _ in 0..budget / count {
                live.push_back(DirtyBuf::new(count, &pool).expect("memory"));
                live.drain(..live.len().saturating_sub(budget * 3 / 4 / count));
            }
        };
        (0..2).for_each(|_| {
            turn(256);
            pool.release_idle();
        });
        let class_len = |class| pool.cached_regions(class);
        assert_eq!(class_len(0), 0, "the blocks were idle");
        let kept = pool.cached_blocks();
        turn(256);
        assert_eq!(
            (pool.cached_blocks(), class_len(8) * 256),
            (kept, kept),
            "no region was mapped"
        );
    }

    #[test]
    fn a_buffer_counts_while_one_block_is_referenced_and_is_then_reused() {
        let pool = Pool::default();
        let mut blocks: Vec<BlockRef> =
            DirtyBuf::new(200, &pool).expect("memory").share().collect();
        assert_eq!(pool.dirty_bytes(), 256 * BLOCK_SIZE);
        let last = blocks.pop();
        drop(blocks);
        assert_eq!(pool.dirty_bytes(), 256 * BLOCK_SIZE);
        let address = last.as_ref().map(|block| block.run(1).as_ptr().wrapping_sub(199));
        drop(last);
        assert_eq!(pool.dirty_bytes(), 0);
        assert_eq!(Some(BlockBuf::new(129, &pool).expect("memory").blocks().as_ptr()), address);
        assert_eq!(pool.dirty_bytes(), 0);
    }
}
