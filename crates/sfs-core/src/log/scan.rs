//! Reader of chunks: finds the chunk at an address, and the chunks of a segment.
//!
//! A chunk that is returned has a verified summary. The caller decides whether it belongs to the log.

use std::iter;
use std::sync::Arc;

use sfs_device::Block;
use zerocopy::{FromZeros, IntoBytes};

use super::heads::CHUNK_BLOCKS_MIN;
use crate::Result;
use crate::format::{ChunkSummary, NodeHeader, NodePointer, SummaryEntry};
use crate::health::OpenSuperblock;
use crate::io::VolumeDevice;
use crate::mutant::{Mutant, mutated};

/// Number of blocks read at once to verify a chunk.
const VERIFIED_BLOCKS: usize = 256;

/// Reader of chunks and their summaries.
#[derive(Clone)]
pub(crate) struct ChunkReader {
    io: Arc<VolumeDevice>,
    superblock: Arc<OpenSuperblock>,
}

impl ChunkReader {
    /// Returns a reader of the chunks on `io`.
    pub(crate) fn new(io: Arc<VolumeDevice>, superblock: Arc<OpenSuperblock>) -> Self {
        Self { io, superblock }
    }

    /// Returns the chunk at block `address`, if there is one that fits into `room` blocks.
    pub(crate) fn read_summary(&self, address: u64, room: u32) -> Result<Option<ChunkSummary>> {
        let volume = self.superblock.volume();
        let mut blocks = Block::new_vec_zeroed(1).expect("memory for a block");
        self.io.read_stored(address, &mut blocks)?;
        let Ok(count) = ChunkSummary::peek(blocks.as_bytes(), address, u64::from(room)) else {
            return Ok(None);
        };
        // `peek` has checked that the chunk fits into the segment, so a forged header costs no more
        // memory than a segment. A summary may consist of delta only, and its checksum covers all
        // of the summary.
        if count > 1 {
            blocks = Block::new_vec_zeroed(count).expect("memory for a summary");
            self.io.read_stored(address, &mut blocks)?;
        }
        Ok(ChunkSummary::decode(blocks.as_bytes(), volume, address).ok())
    }

    /// Returns whether every block of a chunk matches its summary.
    pub(crate) fn is_whole(&self, chunk: &ChunkSummary) -> Result<bool> {
        if mutated(Mutant::TornData) {
            return Ok(true);
        }
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        let mut memory = Block::new_vec_zeroed(VERIFIED_BLOCKS.min(chunk.entries.len()))
            .expect("memory to verify a chunk");
        let starts = (first..).step_by(VERIFIED_BLOCKS);
        for (address, entries) in starts.zip(chunk.entries.chunks(VERIFIED_BLOCKS)) {
            let memory = &mut memory[..entries.len()];
            self.io.read_stored(address, memory)?;
            let wholes = (address..).zip(memory.iter()).zip(entries);
            if !wholes.into_iter().all(|((at, block), entry)| self.matches(at, block, entry)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether a block matches its summary entry.
    fn matches(&self, address: u64, block: &Block, entry: &SummaryEntry) -> bool {
        match *entry {
            SummaryEntry::Data { checksum, .. } => crc32c::crc32c(block.as_bytes()) == checksum,
            SummaryEntry::Node { checksum } => {
                let pointer = NodePointer { address, checksum };
                NodeHeader::verify(&block.0, self.superblock.volume(), pointer).is_ok()
            }
        }
    }

    /// Returns the number of the checkpoint whose nodes a whole chunk holds, if it holds nodes.
    pub(crate) fn checkpoint_of(&self, chunk: &ChunkSummary) -> Result<Option<u64>> {
        if !matches!(chunk.entries.first(), Some(SummaryEntry::Node { .. })) {
            return Ok(None);
        }
        let mut node = Block::new_vec_zeroed(1).expect("memory for a block");
        self.io.read_stored(chunk.header.address + chunk.summary_blocks() as u64, &mut node)?;
        Ok(Some(NodeHeader::checkpoint_of(&node[0].0)))
    }

    /// Returns the summary entry of each block of `segment`, by address.
    pub(crate) fn segment_entries(&self, segment: u32) -> Result<Vec<(u64, SummaryEntry)>> {
        let mut entries = Vec::new();
        for chunk in self.segment_chunks(segment) {
            let chunk = chunk?;
            let first = chunk.header.address + chunk.summary_blocks() as u64;
            entries.extend((first..).zip(chunk.entries));
        }
        Ok(entries)
    }

    /// Returns the summaries of `segment`. Chunks from before the segment was last opened are older, and left out.
    pub(crate) fn segment_chunks(
        &self,
        segment: u32,
    ) -> impl Iterator<Item = Result<ChunkSummary>> {
        let layout = self.superblock.layout();
        let (mut next, mut sequence) = (0, 0);
        iter::from_fn(move || {
            let room = layout.segment_blocks - next;
            if room < CHUNK_BLOCKS_MIN {
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
