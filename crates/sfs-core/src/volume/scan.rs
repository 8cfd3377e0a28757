//! Reading chunks back from the device.
//!
//! Owns: finding the chunk at an address, and the chunks of a segment.
//! Promises: a chunk that is given has a verified summary.
//! Never: says whether it is part of the log.

use std::iter;

use sfs_device::Block;
use zerocopy::{FromZeros, IntoBytes};

use super::Volume;
use crate::Result;
use crate::format::{ChunkSummary, NodeHeader, NodePointer, SummaryEntry};
use crate::mutant::{Mutant, mutated};

/// A chunk needs this much of a segment.
pub(super) const ROOM_MIN: u32 = 2;

/// Blocks that are read at once to verify a chunk.
const PIECE_BLOCKS: usize = 256;

impl Volume {
    /// The chunk at block `address`, if one is there that fits in `room` blocks.
    pub(super) fn read_summary(&self, address: u64, room: u32) -> Result<Option<ChunkSummary>> {
        let volume = self.superblock.volume();
        let mut blocks = Block::new_vec_zeroed(1).expect("memory for a block");
        self.read_device(address, &mut blocks)?;
        let Ok(count) = ChunkSummary::peek(blocks.as_bytes(), address, u64::from(room)) else {
            return Ok(None);
        };
        // A forged header gets no more than the rest of a segment here, as `peek` has made sure, and
        // no less would do: a summary may be all delta. Its checksum covers it whole.
        if count > 1 {
            blocks = Block::new_vec_zeroed(count).expect("memory for a summary");
            self.read_device(address, &mut blocks)?;
        }
        Ok(ChunkSummary::decode(blocks.as_bytes(), volume, address).ok())
    }

    /// Whether all blocks of a chunk are what its summary says.
    pub(super) fn is_whole(&self, chunk: &ChunkSummary) -> Result<bool> {
        if mutated(Mutant::TornData) {
            return Ok(true);
        }
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        let mut memory = Block::new_vec_zeroed(PIECE_BLOCKS.min(chunk.entries.len()))
            .expect("memory to verify a chunk");
        let starts = (first..).step_by(PIECE_BLOCKS);
        for (address, entries) in starts.zip(chunk.entries.chunks(PIECE_BLOCKS)) {
            let memory = &mut memory[..entries.len()];
            self.read_device(address, memory)?;
            let wholes = (address..).zip(memory.iter()).zip(entries);
            if !wholes.into_iter().all(|((at, block), entry)| self.matches(at, block, entry)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a block is what its summary entry says.
    fn matches(&self, address: u64, block: &Block, entry: &SummaryEntry) -> bool {
        match *entry {
            SummaryEntry::Data { checksum, .. } => crc32c::crc32c(block.as_bytes()) == checksum,
            SummaryEntry::Node { checksum } => {
                let pointer = NodePointer { address, checksum };
                NodeHeader::verify(&block.0, self.superblock.volume(), pointer).is_ok()
            }
        }
    }

    /// The checkpoint whose nodes a whole chunk has, if it has any.
    pub(super) fn checkpoint_of(&self, chunk: &ChunkSummary) -> Result<Option<u64>> {
        if !matches!(chunk.entries.first(), Some(SummaryEntry::Node { .. })) {
            return Ok(None);
        }
        let mut node = Block::new_vec_zeroed(1).expect("memory for a block");
        self.read_device(chunk.header.address + chunk.summary_blocks() as u64, &mut node)?;
        Ok(Some(NodeHeader::checkpoint_of(&node[0].0)))
    }

    /// Owner of each block of `segment`, by address, as its chunks say.
    pub(super) fn segment_entries(&self, segment: u32) -> Result<Vec<(u64, SummaryEntry)>> {
        let mut entries = Vec::new();
        for chunk in self.segment_chunks(segment) {
            let chunk = chunk?;
            let first = chunk.header.address + chunk.summary_blocks() as u64;
            entries.extend((first..).zip(chunk.entries));
        }
        Ok(entries)
    }

    /// The summaries of `segment`, without what an earlier life of it has left, which is older.
    pub(super) fn segment_chunks(
        &self,
        segment: u32,
    ) -> impl Iterator<Item = Result<ChunkSummary>> {
        let layout = &self.superblock.layout;
        let (mut next, mut sequence) = (0, 0);
        iter::from_fn(move || {
            let room = layout.segment_blocks - next;
            if room < ROOM_MIN {
                return None;
            }
            let address = layout.segment_address(segment) + u64::from(next);
            let chunk = match self.read_summary(address, room).transpose()? {
                Ok(chunk) if chunk.header.sequence <= sequence => return None,
                other => other,
            };
            match &chunk {
                Ok(chunk) => {
                    sequence = chunk.header.sequence;
                    next += chunk.block_count() as u32;
                }
                Err(_) => next = layout.segment_blocks,
            }
            Some(chunk)
        })
    }
}
