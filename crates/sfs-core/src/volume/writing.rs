//! Blocks on their way to the device.
//!
//! Owns: what has been built and is not written yet: chunks, and data beside the log.
//! Promises: a block is found here until it can be read from the device.
//! Never: writes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::commit::data::{Data, Placed};
use crate::log::Chunk;
use crate::memory::BlockRef;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// By address. No two have a block in common: what is written to a segment is flushed before the
    /// segment can be used again ([`Release::Durable`](crate::request::Release::Durable)).
    chunks: BTreeMap<u64, Arc<Chunk>>,
    /// By address. A block may be overwritten again before it has been written.
    placed: FxHashMap<u64, BlockRef>,
}

impl Writing {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.placed.is_empty()
    }

    /// A batch has been built.
    pub(super) fn note_built(&mut self, chunks: &[Arc<Chunk>], data: &Data) {
        self.placed.extend(data.blocks().iter().cloned());
        for chunk in chunks {
            debug_assert!(self.is_clear(chunk), "{} is being written", chunk.address);
            self.chunks.insert(chunk.address, chunk.clone());
        }
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

    /// Whether no chunk that is to be written has a block in common with `chunk`.
    fn is_clear(&self, chunk: &Chunk) -> bool {
        let mut before = self.chunks.range(..chunk.end());
        before.next_back().is_none_or(|(_, before)| before.end() <= chunk.address)
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

#[cfg(test)]
mod tests {
    use sfs_device::Block;
    use zerocopy::FromZeros;

    use super::*;
    use crate::format::SummaryEntry;
    use crate::log::Append;

    fn memory(count: usize) -> Vec<BlockRef> {
        BlockRef::all_of(Block::new_vec_zeroed(count).expect("memory")).collect()
    }

    /// A chunk with a summary of one block and `count` others.
    fn chunk(address: u64, count: usize) -> Arc<Chunk> {
        let entry = SummaryEntry::Node { checksum: 0 };
        let appends = memory(count).into_iter().map(|memory| Append { entry, memory }).collect();
        let summary = Block::new_vec_zeroed(1).expect("memory");
        Arc::new(Chunk { address, head: 0, summary, appends })
    }

    #[test]
    fn a_block_is_found_until_its_chunk_is_written() {
        let mut writing = Writing::default();
        let chunks = [chunk(100, 3), chunk(104, 1), chunk(200, 2)];
        writing.note_built(&chunks, &Data::default());
        let all = |writing: &Writing| -> Vec<u64> {
            (90..210).filter(|address| writing.get(*address).is_some()).collect()
        };
        assert_eq!(all(&writing), [101, 102, 103, 105, 201, 202]);
        assert!(writing.get(102).is_some_and(|found| found.is(&chunks[0].appends[1].memory)));
        writing.note_chunk(&chunks[0]);
        assert_eq!(all(&writing), [105, 201, 202]);
        writing.note_chunk(&chunks[2]);
        writing.note_chunk(&chunks[1]);
        assert!(writing.is_empty());
    }

    #[test]
    fn what_is_overwritten_twice_is_found_until_the_later_one_is_written() {
        let mut writing = Writing::default();
        let [first, second] = [memory(1), memory(1)].map(|memory| [(7, memory[0].clone())]);
        writing.placed.extend(first.clone());
        writing.placed.extend(second.clone());
        writing.note_placed(&first);
        assert!(writing.get(7).is_some_and(|found| found.is(&second[0].1)));
        writing.note_placed(&second);
        assert!(writing.is_empty());
    }
}
