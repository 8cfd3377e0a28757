//! Blocks on their way to the device.
//!
//! Owns: what has been built and is not written yet: chunks, and data beside the log.
//! Promises: a block is found here until it can be read from the device.
//! Never: writes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::commit::data::{Data, Placed};
use crate::buffer::BlockRef;
use crate::log::Chunk;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// By address. No two have a block in common: a segment is not used again before it is flushed.
    chunks: BTreeMap<u64, Arc<Chunk>>,
    /// By address. A block may be overwritten again before it has been.
    placed: FxHashMap<u64, BlockRef>,
}

impl Writing {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.placed.is_empty()
    }

    /// They will be written.
    pub(super) fn expect(&mut self, chunks: &[Arc<Chunk>], data: &Data) {
        self.chunks.extend(chunks.iter().map(|chunk| (chunk.address, chunk.clone())));
        self.placed.extend(data.blocks().iter().cloned());
    }

    /// What `address` will hold, if it is to be written.
    pub(super) fn get(&self, address: u64) -> Option<&BlockRef> {
        let in_chunk = || {
            let (_, chunk) = self.chunks.range(..=address).next_back()?;
            let no = address.checked_sub(chunk.first_append())?;
            chunk.appends.get(no as usize).map(|append| &append.memory)
        };
        self.placed.get(&address).or_else(in_chunk)
    }

    pub(super) fn note_chunk(&mut self, written: &Chunk) {
        self.chunks.remove(&written.address);
    }

    pub(super) fn note_placed(&mut self, written: &[Placed]) {
        for (at, memory) in written {
            // A later batch that is built already may write the block once more.
            if self.placed.get(at).is_some_and(|waiting| waiting.is(memory)) {
                self.placed.remove(at);
            }
        }
    }
}
