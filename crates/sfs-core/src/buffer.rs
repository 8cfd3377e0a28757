//! Memory of blocks: taken from a pool, shared, and counted.
//!
//! Owns: the memory of blocks that are not on the device yet, and of answers to reads.
//! Promises: a block that is shared does not change; what is held counts as long as one block of
//! a buffer is needed; memory that was used is used again instead of asking the system for more, and
//! goes back to the system when it is not kept.
//! Never: knows which file a block belongs to, or clears memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, MmapRegion};

/// Size classes: 1, 2, 4, ... 256 blocks. Larger memory is not kept.
const CLASSES: usize = 9;

/// Memory that is kept for the next use whatever is held, in blocks, over all classes: 8 MiB.
const KEPT_BLOCKS: usize = 2048;

/// The pieces of memory of one class.
#[derive(Debug, Default)]
struct Shelf {
    pieces: Vec<MmapRegion>,
    /// So many have not been taken since [`Pool::rest`].
    idle: usize,
}

#[derive(Debug, Default)]
struct Shelves {
    free: [Mutex<Shelf>; CLASSES],
    /// Blocks on all shelves.
    kept: AtomicUsize,
    /// Bytes in buffers that hold dirty blocks.
    held: AtomicUsize,
    /// Bytes that may be held and kept together.
    budget: usize,
}

/// Where memory comes from and goes back to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Shelves>);

impl Pool {
    /// An empty pool. While dirty blocks come and go, as much is kept as they leave of `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        Self(Arc::new(Shelves { budget, ..Shelves::default() }))
    }

    /// Lets go of what nobody has needed since the last time.
    pub(crate) fn rest(&self) {
        for (class, shelf) in self.0.free.iter().enumerate() {
            let idle = shelf.lock().idle;
            (0..idle).for_each(|_| drop(self.take_kept(class)));
            let mut shelf = shelf.lock();
            shelf.idle = shelf.pieces.len();
        }
    }

    /// Blocks that are kept for the next use.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.0.kept.load(Ordering::Relaxed)
    }

    /// Bytes that buffers of dirty blocks hold now.
    pub(crate) fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// At least `count` blocks of memory with any content: of what is kept the smallest that will do,
    /// halved as often as can be, or new.
    fn take(&self, count: usize) -> MmapRegion {
        let class = class_of(count);
        if class >= CLASSES {
            return self.map(count);
        }
        let kept = (class..CLASSES).find_map(|class| self.take_kept(class));
        let mut piece = kept.unwrap_or_else(|| self.map(1 << (CLASSES - 1)));
        while piece.len() > 1 << class {
            let (lower, upper) = piece.halve();
            self.put(upper);
            piece = lower;
        }
        piece
    }

    /// Memory of the system's. Without any the process ends, as with the allocator.
    fn map(&self, count: usize) -> MmapRegion {
        let piece = MmapRegion::new(count).or_else(|_| {
            self.keep(0, usize::MAX);
            MmapRegion::new(count)
        });
        piece.expect("memory for blocks")
    }

    fn take_kept(&self, class: usize) -> Option<MmapRegion> {
        let piece = {
            let mut shelf = self.0.free.get(class)?.lock();
            let piece = shelf.pieces.pop()?;
            shelf.idle = shelf.idle.min(shelf.pieces.len());
            piece
        };
        self.0.kept.fetch_sub(piece.len(), Ordering::Relaxed);
        Some(piece)
    }

    fn put(&self, piece: MmapRegion) {
        self.0.kept.fetch_add(piece.len(), Ordering::Relaxed);
        self.0.free[class_of(piece.len())].lock().pieces.push(piece);
    }

    fn give_back(&self, piece: MmapRegion) {
        let count = piece.len();
        if class_of(count) < CLASSES {
            self.put(piece);
            self.trim(count);
        }
    }

    /// Lets go of what is kept beside the budget, but of little more than twice `count` blocks: who gives
    /// back a block does not wait for thousands.
    fn trim(&self, count: usize) {
        let free = self.0.budget.saturating_sub(self.held()) / BLOCK_SIZE;
        self.keep(KEPT_BLOCKS.max(free), 2 * count);
    }

    /// Keeps no more than `most` blocks, but stops when `enough` are gone. What comes back is likely to be
    /// asked for next: that of which there is most goes.
    fn keep(&self, most: usize, mut enough: usize) {
        while enough > 0 && self.0.kept.load(Ordering::Relaxed) > most {
            let blocks = |class: &usize| self.0.free[*class].lock().pieces.len() << class;
            let fullest = (0..CLASSES).max_by_key(blocks);
            let Some(gone) = fullest.and_then(|class| self.take_kept(class)) else { return };
            enough = enough.saturating_sub(gone.len());
        }
    }
}

/// The class of `count` blocks, at least one.
fn class_of(count: usize) -> usize {
    count.next_power_of_two().trailing_zeros() as usize
}

/// Blocks of memory for one use. What is in them at first is undefined.
#[derive(Debug)]
pub(crate) struct Memory {
    blocks: MmapRegion,
    count: usize,
    pool: Pool,
}

impl Memory {
    pub(crate) fn new(count: usize, pool: &Pool) -> Self {
        Self { blocks: pool.take(count), count, pool: pool.clone() }
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks[..self.count]
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.blocks[..self.count]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.blocks));
    }
}

/// Memory of dirty blocks, counted against the write buffer's budget.
#[derive(Debug)]
pub(crate) struct Buffer(Memory);

impl Buffer {
    /// `count` blocks; what is in them at first is undefined.
    pub(crate) fn new(count: usize, pool: &Pool) -> Self {
        let memory = Memory::new(count, pool);
        let count = memory.blocks.len();
        pool.0.held.fetch_add(count * BLOCK_SIZE, Ordering::Relaxed);
        pool.trim(count);
        Self(memory)
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.0.blocks_mut()
    }

    /// The blocks, each on its own but in shared memory.
    pub(crate) fn share(self) -> impl Iterator<Item = BlockRef> {
        let count = self.0.count;
        share(Shared::Buffer(self), count)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = self.0.blocks.len() * BLOCK_SIZE;
        self.0.pool.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory that blocks share.
#[derive(Debug)]
enum Shared {
    Buffer(Buffer),
    /// Counted by nobody.
    Other(Vec<Block>),
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
    /// Each of `blocks`, in the memory that they have.
    pub(crate) fn all_of(blocks: Vec<Block>) -> impl Iterator<Item = Self> {
        let count = blocks.len();
        share(Shared::Other(blocks), count)
    }

    pub(crate) fn block(&self) -> &Block {
        &self.run(1)[0]
    }

    /// Whether both are the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.index == other.index
    }

    /// Whether `next` follows this block in memory, so that both are one part of a request.
    pub(crate) fn precedes(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &next.shared) && self.index + 1 == next.index
    }

    /// `count` blocks of memory from this one on, all of the same piece.
    pub(crate) fn run(&self, count: usize) -> &[Block] {
        let blocks = match &*self.shared {
            Shared::Buffer(buffer) => buffer.0.blocks(),
            Shared::Other(blocks) => blocks,
        };
        &blocks[self.index as usize..][..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_serves_the_last_use() {
        let pool = Pool::default();
        let kept = || pool.kept();
        for count in [1, 100, 3, 256, 1] {
            let used: Vec<Memory> =
                (0..3 * KEPT_BLOCKS / count).map(|_| Memory::new(count, &pool)).collect();
            drop(used);
            assert!(kept() <= KEPT_BLOCKS && kept() > KEPT_BLOCKS / 2, "{} after {count}", kept());
            assert!(pool.take_kept(class_of(count)).is_some(), "{count} blocks");
        }
        let shelves = pool
            .0
            .free
            .iter()
            .map(|shelf| shelf.lock().pieces.iter().map(|piece| piece.len()).sum::<usize>());
        assert_eq!(shelves.sum::<usize>(), kept());
    }

    #[test]
    fn dirty_blocks_find_again_what_they_leave_of_the_budget() {
        let budget = 4 * KEPT_BLOCKS;
        let pool = Pool::new(budget * BLOCK_SIZE);
        let buffers = |count| (0..count).map(|_| Buffer::new(1, &pool)).collect::<Vec<_>>();
        let kept = || pool.kept();
        let all = buffers(budget);
        let some = buffers(100);
        drop(all);
        assert!(kept() + 100 <= budget && kept() > budget - 200, "{}", kept());
        let again = buffers(kept());
        assert_eq!(kept(), 0, "nothing was asked of the system");
        drop((some, again));
        pool.rest();
        assert_eq!(kept(), budget, "they were needed");
        pool.rest();
        assert_eq!(kept(), 0);
    }

    #[test]
    fn buffers_of_other_sizes_get_the_budget_step_by_step() {
        let budget = 4 * KEPT_BLOCKS;
        let pool = Pool::new(budget * BLOCK_SIZE);
        let mut held: Vec<Buffer> = (0..budget).map(|_| Buffer::new(1, &pool)).collect();
        for count in [256, 1, 32, 8, 256] {
            let (mut used, mut kept) = (0, pool.kept());
            let mut is_bounded = |step: usize| {
                let gone = std::mem::replace(&mut kept, pool.kept()).saturating_sub(pool.kept());
                let most = KEPT_BLOCKS.max(budget - pool.held() / BLOCK_SIZE);
                // A step lets go of twice its blocks, the last of which may be a large piece.
                assert!(gone <= step + 2 * step + 256, "{gone} in a step of {step}");
                assert!(pool.kept() <= most + 256, "{} beside {}", pool.kept(), pool.held());
            };
            while let Some(buffer) = held.pop() {
                let step = buffer.0.blocks.len();
                drop(buffer);
                is_bounded(step);
            }
            while used < budget {
                held.push(Buffer::new(count, &pool));
                used += count;
                is_bounded(count);
            }
        }
    }

    /// Of another size than what is in use there were as many as the budget has blocks.
    #[test]
    fn what_is_not_needed_goes_and_what_is_needed_stays() {
        let budget = 4 * KEPT_BLOCKS;
        let pool = Pool::new(budget * BLOCK_SIZE);
        drop((0..budget).map(|_| Buffer::new(1, &pool)).collect::<Vec<_>>());
        let mut held = std::collections::VecDeque::new();
        let mut turn = |count| {
            for _ in 0..budget / count {
                held.push_back(Buffer::new(count, &pool));
                held.drain(..held.len().saturating_sub(budget * 3 / 4 / count));
            }
        };
        (0..2).for_each(|_| {
            turn(256);
            pool.rest();
        });
        let shelf = |class: usize| pool.0.free[class].lock().pieces.len();
        assert_eq!(shelf(0), 0, "nobody has needed them");
        let kept = pool.kept();
        turn(256);
        assert_eq!((pool.kept(), shelf(8) * 256), (kept, kept), "nothing was asked of the system");
    }

    #[test]
    fn the_system_has_few_mappings_whatever_is_left() {
        let mappings =
            || std::fs::read_to_string("/proc/self/maps").map_or(0, |s| s.lines().count());
        let pool = Pool::default();
        let before = mappings();
        let mut all: Vec<Option<Memory>> =
            (0..64 * 256).map(|_| Some(Memory::new(1, &pool))).collect();
        all.iter_mut().step_by(2).for_each(|memory| drop(memory.take()));
        pool.rest();
        pool.rest();
        assert_eq!(pool.kept(), 0);
        assert!(mappings() < before + 1000, "{} were {before}", mappings());
    }

    #[test]
    fn a_small_piece_is_kept_beside_large_ones() {
        let pool = Pool::default();
        drop((0..KEPT_BLOCKS / 256).map(|_| Memory::new(256, &pool)).collect::<Vec<_>>());
        assert_eq!(pool.kept(), KEPT_BLOCKS);
        drop(Memory::new(1, &pool));
        assert!(pool.take_kept(0).is_some(), "the next one need not ask the system");
    }

    #[test]
    fn memory_is_counted_while_one_block_is_needed_and_then_used_again() {
        let pool = Pool::default();
        let mut blocks: Vec<BlockRef> = Buffer::new(200, &pool).share().collect();
        assert_eq!(pool.held(), 256 * BLOCK_SIZE);
        let last = blocks.pop();
        drop(blocks);
        assert_eq!(pool.held(), 256 * BLOCK_SIZE);
        let address = last.as_ref().map(|block| block.run(1).as_ptr().wrapping_sub(199));
        drop(last);
        assert_eq!(pool.held(), 0);
        assert_eq!(Some(Memory::new(129, &pool).blocks.as_ptr()), address);
        assert_eq!(pool.held(), 0);
    }
}
