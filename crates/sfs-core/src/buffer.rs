//! Memory of dirty blocks: shared buffers, counted against the write buffer's budget.
//!
//! Owns: the memory of blocks that are not on the device yet.
//! Promises: a block that is shared does not change; the count is of all memory that is held, also
//! where one block keeps a large buffer alive.
//! Never: knows which file a block belongs to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::FromZeros;

/// Counts the bytes that buffers hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Bytes held now.
    pub(crate) fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Blocks of memory that belong together.
#[derive(Debug)]
pub(crate) struct Buffer {
    blocks: Vec<Block>,
    budget: Budget,
}

impl Buffer {
    /// `count` zeroed blocks.
    pub(crate) fn new(count: usize, budget: &Budget) -> Self {
        budget.0.fetch_add(count * BLOCK_SIZE, Ordering::Relaxed);
        let blocks = Block::new_vec_zeroed(count).expect("memory for the write buffer");
        Self { blocks, budget: budget.clone() }
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        &mut self.blocks
    }

    /// The blocks, each on its own but in shared memory.
    pub(crate) fn share(self) -> impl Iterator<Item = BlockRef> {
        let count = self.blocks.len() as u32;
        let buffer = Arc::new(self);
        (0..count).map(move |index| BlockRef { buffer: buffer.clone(), index })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.blocks.len() * BLOCK_SIZE, Ordering::Relaxed);
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
        &self.buffer.blocks[self.index as usize]
    }

    /// Whether `next` follows this block in memory, so that both are one part of a request.
    pub(crate) fn precedes(&self, next: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &next.buffer) && self.index + 1 == next.index
    }

    /// `count` blocks of memory from this one on, all of the same buffer.
    pub(crate) fn run(&self, count: usize) -> &[Block] {
        &self.buffer.blocks[self.index as usize..][..count]
    }
}
