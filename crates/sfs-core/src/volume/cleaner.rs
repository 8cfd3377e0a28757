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
use crate::format::{Mapping, NodeHeader, NodePointer, SummaryEntry};
use crate::log::Log;
use crate::meta::mapping;
use crate::policy;
use crate::tree::{Missing, VerifiedNode};

/// Segments cleaned in one round (SFS, section 3.4).
const VICTIMS_MAX: usize = 3;

/// A live block of a victim.
struct Live {
    ino: u64,
    block: u32,
    mapping: Mapping,
}

impl Volume {
    /// Cleans a few segments, checkpoint included; says whether there was one worth cleaning.
    pub(super) fn clean(&self, log: &mut Log, time: u32) -> Result<bool> {
        let victims = self.choose_victims(time);
        if victims.is_empty() {
            return Ok(false);
        }
        let mut moves = Vec::new();
        for segment in &victims {
            self.empty(*segment, &mut moves)?;
        }
        self.commit_moves(log, &Selection::Files(Default::default()), &moves, time)?;
        drop(moves);
        self.checkpoint(log, time, false)?;
        let count = victims.len() as u64;
        self.counters.segments_cleaned.fetch_add(count, Ordering::Relaxed);
        Ok(true)
    }

    /// The best victims whose live blocks fit into what is Clean.
    fn choose_victims(&self, time: u32) -> Vec<u32> {
        let meta = self.meta.read();
        let segment_blocks = self.superblock.layout.segment_blocks;
        let reserve = self.checkpoint_reserve(&meta) + 3;
        let room = meta.usage.clean_count().saturating_sub(reserve) as u64;
        let mut left = (room * u64::from(segment_blocks)).max(u64::from(segment_blocks));
        let best = policy::victims(&*self.victims, meta.usage.entries(), segment_blocks, time);
        let rotten = self.rotten.lock();
        let fits = |segment: &u32| {
            let live = u64::from(meta.usage.entry(*segment).live_blocks);
            let fits = live <= left;
            left -= if fits { live } else { 0 };
            fits
        };
        best.into_iter()
            .filter(|segment| !rotten.contains(segment))
            .take(VICTIMS_MAX)
            .take_while(fits)
            .collect()
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
        loop {
            let touched = self.meta.write().tree.touch(&node, pointer.address);
            match touched {
                Ok(_) => return Ok(()),
                Err(missing) => self.load(&missing, &mut failed)?,
            }
        }
    }
}
