//! Data that is written beside the log.
//!
//! Owns: the blocks of one batch, and whether they go ahead of it.
//! Promises: each address once, ascending.
//! Never: chooses an address.

use sfs_device::Block;

use super::plan::Chosen;
use crate::memory::BlockRef;

/// A block, and its address.
pub(in crate::volume) type Placed = (u64, BlockRef);

/// See the module.
#[derive(Default)]
pub(in crate::volume) struct Data {
    blocks: Vec<Placed>,
    ordered: bool,
}

impl Data {
    /// `chosen` at the addresses that their mappings say; `ordered` if the delta says something that must
    /// not be seen without them.
    pub(super) fn new(chosen: impl Iterator<Item = Chosen>, ordered: bool) -> Self {
        let mut blocks: Vec<Placed> =
            chosen.map(|c| (c.mapping.address, c.into_memory())).collect();
        blocks.sort_unstable_by_key(|(address, _)| *address);
        Self { ordered: ordered && !blocks.is_empty(), blocks }
    }

    /// Whether it has to be durable before the delta is written.
    pub(in crate::volume) fn is_ordered(&self) -> bool {
        self.ordered
    }

    pub(in crate::volume) fn blocks(&self) -> &[Placed] {
        &self.blocks
    }

    /// Neighbours, each run for one request.
    pub(in crate::volume) fn runs(&self) -> impl Iterator<Item = &[Placed]> {
        self.blocks.chunk_by(|(a, _), (b, _)| a + 1 == *b)
    }
}

/// The memory of `run`, in order, neighbours joined.
pub(in crate::volume) fn parts(run: &[Placed]) -> Vec<&[Block]> {
    let joined = run.chunk_by(|(_, a), (_, b)| a.precedes(b));
    joined.map(|part| part[0].1.run(part.len())).collect()
}
