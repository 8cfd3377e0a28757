//! The cleaner: empties segments by moving what lives in them.
//!
//! Owns: finding the live blocks of a victim and sending them through a commit.
//! Promises: what it moves is verified first, and stays where it is until its copy is durable; a
//! victim becomes Clean only through a checkpoint.
//! Never: chooses the victim (a policy does).

use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use super::commit::{Move, Selection};
use crate::Result;
use crate::buffer::Buffer;
use crate::format::{Mapping, NodeHeader, NodePointer, SegmentState, SummaryEntry};
use crate::log::{Batch, Log, METADATA_HEAD};
use crate::meta::mapping;
use crate::tree::{Missing, VerifiedNode};

/// A round cleans segments until it has so large a share of the write buffer in hand, at least
/// one: every round ends with a checkpoint, which should be worth its while.
const MOVED_SHARE: usize = 4;

/// Nodes that a checkpoint writes beside those that are known beforehand: of the usage table.
const NODES_MORE: usize = 8;

/// A live block of a victim.
struct Live {
    ino: u64,
    block: u32,
    mapping: Mapping,
}

impl Volume {
    /// Cleans a few segments, checkpoint included; says whether there was one worth cleaning.
    pub(super) fn clean(&self, log: &mut Log) -> Result<bool> {
        let victims = self.choose_victims();
        if victims.is_empty() {
            return Ok(false);
        }
        let mut moves = Vec::new();
        for segment in &victims {
            self.empty(*segment, &mut moves)?;
        }
        self.commit_some(log, &Selection::Files(Default::default()), &moves)?;
        drop(moves);
        self.checkpoint(log, false)?;
        self.note_rotten(&victims);
        let count = victims.len() as u64;
        self.counters.segments_cleaned.fetch_add(count, Ordering::Relaxed);
        Ok(true)
    }

    /// What still lives in a cleaned segment cannot be moved, or is behind a damaged summary. It is
    /// left alone: cleaning it over and over would gain nothing.
    fn note_rotten(&self, victims: &[u32]) {
        let meta = self.meta.read();
        let lives = |segment: &&u32| meta.usage.entry(**segment).state == SegmentState::Sealed;
        self.rotten.lock().extend(victims.iter().filter(lives));
    }

    /// The best victims whose live blocks fit into what is Clean, together with the nodes that
    /// moving them makes dirty.
    fn choose_victims(&self) -> Vec<u32> {
        let mut meta = self.meta.write();
        let layout = &self.superblock.layout;
        let best = meta.victims(layout.segment_blocks);
        let room = Batch::segment_room(layout);
        let memory = self.options.write_buffer / MOVED_SHARE / BLOCK_SIZE;
        let (nodes, dirty) = (meta.usage.live_blocks_of(METADATA_HEAD), meta.tree.dirty_count());
        let mut moved = 0;
        let fits = |segment: &u32| {
            let first = moved == 0;
            moved += meta.usage.entry(*segment).live_blocks as usize;
            // Moving a block makes its leaf dirty, but no node twice.
            let written = (dirty + moved).min(nodes.max(dirty)) + NODES_MORE;
            let segments = moved.div_ceil(room) + 1 + written.div_ceil(room);
            (first || moved <= memory) && segments <= meta.usage.clean_count()
        };
        let rotten = self.rotten.lock();
        let sound = best.into_iter().filter(|segment| !rotten.contains(segment));
        sound.take_while(fits).collect()
    }

    /// Collects the live data of a segment, and makes its live nodes dirty.
    fn empty(&self, segment: u32, moves: &mut Vec<Move>) -> Result<()> {
        let mut live = Vec::new();
        for (address, entry) in self.segment_entries(segment)? {
            match entry {
                SummaryEntry::Data { ino, block, .. } => {
                    let found = self.consult(|txn| mapping(txn.tree(), ino, block))?;
                    if let Some(mapping) = found.filter(|mapping| mapping.address == address) {
                        live.push(Live { ino, block, mapping });
                    }
                }
                SummaryEntry::Node { checksum } => {
                    self.touch_node(NodePointer { address, checksum })?;
                }
            }
        }
        for run in live.chunk_by(|a, b| a.mapping.address + 1 == b.mapping.address) {
            self.read_run(segment, run, moves)?;
        }
        Ok(())
    }

    /// Reads neighbouring live blocks in one request.
    fn read_run(&self, segment: u32, run: &[Live], moves: &mut Vec<Move>) -> Result<()> {
        let mut buffer = Buffer::new(run.len(), &self.pool);
        self.read_blocks(run[0].mapping.address, buffer.blocks_mut())?;
        for (live, memory) in run.iter().zip(buffer.share()) {
            if crc32c::crc32c(memory.block().as_bytes()) != live.mapping.checksum {
                // Moving it would hide the damage behind a new checksum.
                self.rotten.lock().insert(segment);
                continue;
            }
            moves.push(Move { ino: live.ino, block: live.block, from: live.mapping, memory });
        }
        Ok(())
    }

    /// Makes the node at `pointer` dirty if the tree refers to it, so that the next checkpoint
    /// moves it.
    fn touch_node(&self, pointer: NodePointer) -> Result<()> {
        let mut block = Block([0; BLOCK_SIZE]);
        self.read_blocks(pointer.address, std::slice::from_mut(&mut block))?;
        let volume = self.superblock.volume();
        let Ok(header) = NodeHeader::verify(&block.0, volume, pointer) else { return Ok(()) };
        let missing = Missing { pointer, level: header.level };
        let Ok(node) = VerifiedNode::decode(block, volume, &missing) else { return Ok(()) };
        let mut failed = None;
        let _keep = self.keep_nodes();
        loop {
            let touched = self.meta.write().tree.touch(&node, pointer.address);
            match touched {
                Ok(_) => return Ok(()),
                Err(missing) => self.load(&missing, &mut failed)?,
            }
        }
    }
}
