//! Blocks in flight: built into a batch, and not yet written to the device.
//!
//! A reader finds a block here until the device has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Chunk, InPlaceBlock, InPlaceWrites};
use crate::memory::BlockRef;

/// Blocks in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Chunks by address. No two share a block: a segment is flushed before it is opened again
    /// ([`Release::Durable`](crate::request::Release::Durable)).
    chunks: BTreeMap<u64, Arc<Chunk>>,
    /// Blocks by address. A later batch may overwrite a block before an earlier one has written it.
    in_place: FxHashMap<u64, BlockRef>,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.in_place.is_empty()
    }

    /// Adds the blocks of a batch.
    pub(super) fn insert(&mut self, chunks: &[Arc<Chunk>], in_place: &InPlaceWrites) {
        self.in_place.extend(in_place.blocks().iter().cloned());
        for chunk in chunks {
            debug_assert!(self.is_clear(chunk), "{} is in flight", chunk.address);
            self.chunks.insert(chunk.address, chunk.clone());
        }
    }

    /// Returns the content that `address` will have, if it is in flight.
    pub(super) fn get(&self, address: u64) -> Option<&BlockRef> {
        let in_chunk = || {
            let (_, chunk) = self.chunks.range(..=address).next_back()?;
            let no = address.checked_sub(chunk.first_append())?;
            chunk.appends.get(no as usize).map(|append| &append.memory)
        };
        self.in_place.get(&address).or_else(in_chunk)
    }

    /// Returns whether `chunk` shares no block with a chunk in flight.
    fn is_clear(&self, chunk: &Chunk) -> bool {
        let mut before = self.chunks.range(..chunk.end());
        before.next_back().is_none_or(|(_, before)| before.end() <= chunk.address)
    }

    /// Removes a chunk that has been written.
    pub(super) fn remove_chunk(&mut self, written: &Chunk) {
        self.chunks.remove(&written.address);
    }

    /// Removes blocks that have been written in place.
    pub(super) fn remove_in_place(&mut self, written: &[InPlaceBlock]) {
        for (at, memory) in written {
            // A later batch may be waiting to write the block once more.
            if self.in_place.get(at).is_some_and(|waiting| waiting.is(memory)) {
                self.in_place.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::Block;
    use zerocopy::FromZeros;

    use super::*;
    use crate::format::{Head, SummaryEntry};
    use crate::io::Append;

    fn memory(count: usize) -> Vec<BlockRef> {
        BlockRef::all_of(Block::new_vec_zeroed(count).expect("memory")).collect()
    }

    /// Returns a chunk with a summary of one block and `count` others.
    fn chunk(address: u64, count: usize) -> Arc<Chunk> {
        let entry = SummaryEntry::Node { checksum: 0 };
        let appends = memory(count).into_iter().map(|memory| Append { entry, memory }).collect();
        let summary = Block::new_vec_zeroed(1).expect("memory");
        Arc::new(Chunk { address, head: Head::METADATA, summary, appends })
    }

    #[test]
    fn a_block_is_found_until_its_chunk_is_written() {
        let mut in_flight = InFlight::default();
        let chunks = [chunk(100, 3), chunk(104, 1), chunk(200, 2)];
        in_flight.insert(&chunks, &InPlaceWrites::default());
        let all = |in_flight: &InFlight| -> Vec<u64> {
            (90..210).filter(|address| in_flight.get(*address).is_some()).collect()
        };
        assert_eq!(all(&in_flight), [101, 102, 103, 105, 201, 202]);
        assert!(in_flight.get(102).is_some_and(|found| found.is(&chunks[0].appends[1].memory)));
        in_flight.remove_chunk(&chunks[0]);
        assert_eq!(all(&in_flight), [105, 201, 202]);
        in_flight.remove_chunk(&chunks[2]);
        in_flight.remove_chunk(&chunks[1]);
        assert!(in_flight.is_empty());
    }

    #[test]
    fn a_block_overwritten_twice_is_found_until_the_later_write_completes() {
        let mut in_flight = InFlight::default();
        let [first, second] = [memory(1), memory(1)].map(|memory| [(7, memory[0].clone())]);
        in_flight.in_place.extend(first.clone());
        in_flight.in_place.extend(second.clone());
        in_flight.remove_in_place(&first);
        assert!(in_flight.get(7).is_some_and(|found| found.is(&second[0].1)));
        in_flight.remove_in_place(&second);
        assert!(in_flight.is_empty());
    }
}
