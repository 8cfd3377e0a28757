//! Data blocks of one batch that are overwritten in place, outside the log.
//!
//! Each address occurs once; the blocks are in ascending order. The data layout has chosen the addresses.

use sfs_device::Block;

use crate::memory::BlockRef;

/// A block and its address.
pub(crate) type InPlaceBlock = (u64, BlockRef);

/// Blocks that a batch writes in place.
#[derive(Default)]
pub(crate) struct InPlaceWrites {
    blocks: Vec<InPlaceBlock>,
    flush_before_delta: bool,
}

impl InPlaceWrites {
    /// Sorts `blocks`. With `flush_before_delta` the delta refers to content that must not be seen without these
    /// blocks.
    pub(crate) fn new(mut blocks: Vec<InPlaceBlock>, flush_before_delta: bool) -> Self {
        blocks.sort_unstable_by_key(|(address, _)| *address);
        Self { flush_before_delta: flush_before_delta && !blocks.is_empty(), blocks }
    }

    /// Returns whether the blocks have to be durable before the delta is written.
    pub(crate) fn flush_before_delta(&self) -> bool {
        self.flush_before_delta
    }

    /// Returns the blocks in ascending order.
    pub(crate) fn blocks(&self) -> &[InPlaceBlock] {
        &self.blocks
    }

    /// Returns runs of neighbouring blocks, each for one request.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[InPlaceBlock]> {
        self.blocks.chunk_by(|(a, _), (b, _)| a + 1 == *b)
    }
}

/// Returns the memory of `run` in the order of the addresses, with neighbours joined.
pub(super) fn parts(run: &[InPlaceBlock]) -> Vec<&[Block]> {
    let joined = run.chunk_by(|(_, a), (_, b)| a.precedes(b));
    joined.map(|part| part[0].1.run(part.len())).collect()
}
