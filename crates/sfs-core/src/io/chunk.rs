//! Chunks that are ready to be written, and the blocks in them.

use sfs_device::{Block, Stream};

use crate::format::{Head, SummaryEntry};
use crate::memory::BlockRef;

/// A block to append, with its entry in the summary.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) entry: SummaryEntry,
    pub(crate) memory: BlockRef,
}

/// A chunk that is ready to be written.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) address: u64,
    pub(crate) head: Head,
    pub(crate) summary: Vec<Block>,
    pub(crate) appends: Vec<Append>,
}

impl Chunk {
    /// Returns the write stream of the head.
    pub(crate) fn stream(&self) -> Stream {
        Stream(self.head.0)
    }

    /// Returns the address of the first block after the summary.
    pub(crate) fn first_append(&self) -> u64 {
        self.address + self.summary.len() as u64
    }

    /// Returns the address after the last block.
    pub(crate) fn end(&self) -> u64 {
        self.first_append() + self.appends.len() as u64
    }

    /// Returns the number of blocks, including the summary.
    pub(crate) fn block_count(&self) -> usize {
        self.summary.len() + self.appends.len()
    }

    /// Returns the memory of the chunk in the order of the addresses; blocks that are adjacent in memory are
    /// one part.
    pub(crate) fn parts(&self) -> Vec<&[Block]> {
        let mut parts: Vec<&[Block]> = vec![&self.summary];
        let mut rest = self.appends.as_slice();
        while let Some((first, tail)) = rest.split_first() {
            let run = run_after(&first.memory, tail);
            parts.push(first.memory.run(run + 1));
            rest = &tail[run..];
        }
        parts
    }
}

/// Returns how many blocks of `tail` follow `block` in memory.
fn run_after(block: &BlockRef, tail: &[Append]) -> usize {
    let blocks = std::iter::once(block).chain(tail.iter().map(|append| &append.memory));
    blocks.zip(tail).take_while(|(block, next)| block.precedes(&next.memory)).count()
}
