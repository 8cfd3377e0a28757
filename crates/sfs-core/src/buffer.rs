//! Memory of blocks: taken from a pool, shared, and counted.
//!
//! Owns: the memory of blocks that are not on the device yet, and of answers to reads.
//! Promises: a block that is shared does not change; what is held counts as long as one block of
//! a buffer is needed; memory that was used is used again instead of asking the system for more.
//! Never: knows which file a block belongs to, or clears memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::FromZeros;

/// Size classes: 1, 2, 4, ... 256 blocks. Larger memory is not kept.
const CLASSES: usize = 9;

/// Memory kept in each class, in blocks.
const KEPT_BLOCKS: usize = 2048;

#[derive(Debug, Default)]
struct Shelves {
    free: [Mutex<Vec<Vec<Block>>>; CLASSES],
    /// Bytes in buffers that hold dirty blocks.
    held: AtomicUsize,
}

/// Where memory comes from and goes back to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool(Arc<Shelves>);

impl Pool {
    /// Bytes that buffers of dirty blocks hold now.
    pub(crate) fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// At least `count` blocks of memory with any content.
    fn take(&self, count: usize) -> Vec<Block> {
        let class = class_of(count);
        let kept = self.0.free.get(class).and_then(|shelf| shelf.lock().pop());
        kept.unwrap_or_else(|| {
            let count = if class < CLASSES { 1 << class } else { count };
            Block::new_vec_zeroed(count).expect("memory for blocks")
        })
    }

    fn give_back(&self, memory: Vec<Block>) {
        let class = class_of(memory.len());
        if let Some(shelf) = self.0.free.get(class) {
            let mut shelf = shelf.lock();
            if shelf.len() << class < KEPT_BLOCKS {
                shelf.push(memory);
            }
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
    blocks: Vec<Block>,
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
        pool.0.held.fetch_add(memory.blocks.len() * BLOCK_SIZE, Ordering::Relaxed);
        Self(memory)
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.0.blocks_mut()
    }

    /// The blocks, each on its own but in shared memory.
    pub(crate) fn share(self) -> impl Iterator<Item = BlockRef> {
        let count = self.0.count as u32;
        let buffer = Arc::new(self);
        (0..count).map(move |index| BlockRef { buffer: buffer.clone(), index })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = self.0.blocks.len() * BLOCK_SIZE;
        self.0.pool.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// One block in shared memory.
#[derive(Clone, Debug)]
pub(crate) struct BlockRef {
    buffer: Arc<Buffer>,
    index: u32,
}

impl BlockRef {
    pub(crate) fn block(&self) -> &Block {
        &self.buffer.0.blocks[self.index as usize]
    }

    /// Whether `next` follows this block in memory, so that both are one part of a request.
    pub(crate) fn precedes(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &next.buffer) && self.index + 1 == next.index
    }

    /// `count` blocks of memory from this one on, all of the same buffer.
    pub(crate) fn run(&self, count: usize) -> &[Block] {
        &self.buffer.0.blocks[self.index as usize..][..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_while_one_block_is_needed_and_then_used_again() {
        let pool = Pool::default();
        let mut blocks: Vec<BlockRef> = Buffer::new(200, &pool).share().collect();
        assert_eq!(pool.held(), 256 * BLOCK_SIZE);
        let last = blocks.pop();
        drop(blocks);
        assert_eq!(pool.held(), 256 * BLOCK_SIZE);
        let address = last.as_ref().map(|block| block.buffer.0.blocks.as_ptr());
        drop(last);
        assert_eq!(pool.held(), 0);
        assert_eq!(Some(Memory::new(129, &pool).blocks.as_ptr()), address);
        assert_eq!(pool.held(), 0);
    }
}
