//! Everything that segments still hold, whether anything refers to it or not.
//!
//! Owns: the search for nodes, for owners of data, and for chunks past a checkpoint.
//! Promises: each segment is read once, front to back; what is kept is what concerns lost keys.
//! Never: decides what is worth more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sfs_core::format::{
    ChunkSummary, History, ItemKind, Key, NodeHeader, NodePointer, SummaryEntry, run_key,
};
use sfs_device::Block;

use crate::node::{self, Content};
use crate::progress::{Listener, Stage, tell};
use crate::view::Root;
use crate::volume::Volume;
use crate::walk::{Keys, any_contains, any_overlaps};
use crate::{FsckError, log};

/// Blocks read at once.
const READ_BLOCKS: u32 = 256;

/// Chunks before the checkpoint that are remembered, for their deltas: 256 MiB of them.
const OLDER_MAX: usize = 4 << 20;

/// What a summary and a node begin with.
const CHUNK_MAGIC: &[u8] = b"SFSc";
const NODE_MAGIC: &[u8] = b"SFSn";

/// Checkpoints whose highest nodes are remembered.
const ROOTS_MAX: usize = 4;

/// A leaf that was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundLeaf {
    /// Number of the checkpoint that it was written for.
    pub(crate) checkpoint: u64,
    /// Of the chunk that it is in; 0 if no summary says.
    pub(crate) sequence: u64,
    pub(crate) address: u64,
    pub(crate) checksum: u32,
    /// Its first and last key.
    pub(crate) first: Key,
    pub(crate) last: Key,
}

/// A data block, as a summary describes it.
#[derive(Clone, Copy)]
pub(crate) struct FoundBlock {
    pub(crate) sequence: u64,
    pub(crate) address: u64,
    pub(crate) checksum: u32,
    pub(crate) history: History,
}

/// The highest node of a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct FoundRoot {
    pub(crate) root: Root,
    /// Of the chunk that it is in, with that chunk's checksum.
    pub(crate) sequence: u64,
    pub(crate) checksum: u32,
    /// Of the first chunk with a node of that checkpoint.
    pub(crate) first_sequence: u64,
}

/// Where chunks are, segment and block, by their sequence numbers.
pub(crate) type Chunks = BTreeMap<u64, Vec<(u32, u32)>>;

/// A chunk before the checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct OldChunk {
    pub(crate) segment: u32,
    pub(crate) block: u32,
    pub(crate) end: bool,
    pub(crate) has_delta: bool,
}

/// What was found.
pub(crate) struct Scan<'l> {
    /// What is looked for, ascending.
    pub(crate) lost: &'l [Keys],
    pub(crate) leaves: Vec<FoundLeaf>,
    /// The newest owner of each lost block, by inode and block.
    pub(crate) blocks: HashMap<(u64, u32), FoundBlock>,
    /// By checkpoint.
    pub(crate) roots: BTreeMap<u64, FoundRoot>,
    since: u64,
    /// Chunks from that sequence number on.
    pub(crate) chunks: Chunks,
    /// The last chunks before, the END of each batch marked.
    pub(crate) older: BTreeMap<u64, OldChunk>,
    /// The highest sequence number, and the latest time.
    pub(crate) last_sequence: u64,
    pub(crate) time: u32,
}

impl<'l> Scan<'l> {
    /// Searches every segment for what concerns `lost` keys, and for chunks from sequence number
    /// `since` on; but for `placed` ones, in which users can write whatever looks like it.
    pub(crate) fn take(
        volume: &Volume<'_>,
        lost: &'l [Keys],
        since: u64,
        placed: &BTreeSet<u32>,
        listener: Listener<'_>,
    ) -> Result<Self, FsckError> {
        let mut scan = Self {
            lost,
            leaves: Vec::new(),
            blocks: HashMap::new(),
            roots: BTreeMap::new(),
            since,
            chunks: BTreeMap::new(),
            older: BTreeMap::new(),
            last_sequence: 0,
            time: 0,
        };
        let layout = volume.layout();
        let total = u64::from(layout.segment_count) * u64::from(layout.segment_blocks);
        for segment in 0..layout.segment_count {
            if !placed.contains(&segment) {
                scan.scan_segment(volume, segment);
            }
            let done = u64::from(segment) * u64::from(layout.segment_blocks);
            tell(listener, Stage::Salvage, done, total)?;
        }
        Ok(scan)
    }

    /// Goes through a segment chunk by chunk, and block by block where there is none: a damaged
    /// summary hides neither its own nodes nor the chunks that follow.
    fn scan_segment(&mut self, volume: &Volume<'_>, segment: u32) {
        let segment_blocks = volume.layout().segment_blocks;
        let (mut block, mut last_sequence) = (0, 0);
        let mut piece = Piece::default();
        while block < segment_blocks {
            let bytes = piece.block(volume, segment, block);
            let chunk = bytes.filter(|bytes| bytes.0.starts_with(CHUNK_MAGIC));
            let chunk = chunk.and_then(|_| log::summary(volume, segment, block));
            match chunk.filter(|chunk| chunk.header.sequence > last_sequence) {
                Some(chunk) => {
                    last_sequence = chunk.header.sequence;
                    self.add_chunk(volume, segment, block, &chunk);
                    block += chunk.block_count() as u32;
                }
                None => {
                    let address = volume.layout().segment_address(segment) + u64::from(block);
                    if let Some(bytes) = piece.block(volume, segment, block) {
                        let checksum = NodeHeader::checksum_of(&bytes.0);
                        self.add_node(volume, NodePointer { address, checksum }, bytes, None);
                    }
                    block += 1;
                }
            }
        }
    }

    fn add_chunk(&mut self, volume: &Volume<'_>, segment: u32, at: u32, chunk: &ChunkSummary) {
        let sequence = chunk.header.sequence;
        self.last_sequence = self.last_sequence.max(sequence);
        self.time = self.time.max(chunk.header.time);
        if sequence >= self.since {
            self.chunks.entry(sequence).or_default().push((segment, at));
        } else if !self.lost.is_empty() {
            let has_delta = !chunk.delta.is_empty();
            let end = chunk.header.end;
            self.older.insert(sequence, OldChunk { segment, block: at, end, has_delta });
            if self.older.len() > OLDER_MAX {
                self.older.pop_first();
            }
        }
        let first = chunk.summary_blocks() as u32 + at;
        let mut piece = Piece::default();
        for (block, entry) in (first..).zip(&chunk.entries) {
            let address = volume.layout().segment_address(segment) + u64::from(block);
            match *entry {
                SummaryEntry::Data { ino, block, checksum, history } => {
                    let found = FoundBlock { sequence, address, checksum, history };
                    self.add_block(ino, block, found);
                }
                SummaryEntry::Node { checksum } => {
                    if let Some(bytes) = piece.block(volume, segment, block) {
                        let pointer = NodePointer { address, checksum };
                        self.add_node(volume, pointer, bytes, Some(chunk));
                    }
                }
            }
        }
    }

    fn add_block(&mut self, ino: u64, block: u32, found: FoundBlock) {
        let key = run_key(ino, block);
        // What is past the checkpoint takes effect in batches, by roll-forward, or not at all.
        if found.sequence >= self.since || !any_contains(self.lost, &key) {
            return;
        }
        let newest = self.blocks.entry((ino, block)).or_insert(found);
        // In one chunk, the later entry counts.
        if newest.sequence <= found.sequence {
            *newest = found;
        }
    }

    fn add_node(
        &mut self,
        volume: &Volume<'_>,
        pointer: NodePointer,
        block: &Block,
        chunk: Option<&ChunkSummary>,
    ) {
        if !block.0.starts_with(NODE_MAGIC) {
            return;
        }
        let Ok(header) = NodeHeader::verify(&block.0, volume.id(), pointer) else { return };
        let Ok(content) = node::decode(&block.0, header, pointer.address) else { return };
        let checkpoint = NodeHeader::checkpoint_of(&block.0);
        if let Some(chunk) = chunk {
            self.add_root(checkpoint, (pointer, header.level), chunk);
        }
        let Content::Leaf(items) = content else { return };
        let (Some((first, _)), Some((last, _))) = (items.first(), items.last()) else { return };
        let keys = Keys { low: *first, high: Some(last.next()) };
        if any_overlaps(self.lost, &keys) {
            self.leaves.push(FoundLeaf {
                checkpoint,
                sequence: chunk.map_or(0, |chunk| chunk.header.sequence),
                address: pointer.address,
                checksum: pointer.checksum,
                first: *first,
                last: *last,
            });
        }
    }

    fn add_root(&mut self, checkpoint: u64, root: Root, chunk: &ChunkSummary) {
        let sequence = chunk.header.sequence;
        let found =
            FoundRoot { root, sequence, checksum: chunk.checksum, first_sequence: sequence };
        let highest = self.roots.entry(checkpoint).or_insert(found);
        let first_sequence = highest.first_sequence.min(sequence);
        // Children come before their parents.
        if (highest.root.1, highest.sequence) <= (root.1, sequence) {
            *highest = found;
        }
        highest.first_sequence = first_sequence;
        if self.roots.len() > ROOTS_MAX {
            self.roots.pop_first();
        }
    }

    /// The newest root, as far as can be told: a checkpoint that was never finished has no node as high.
    pub(crate) fn best_root(&self) -> Option<(u64, FoundRoot)> {
        let level = self.roots.values().map(|found| found.root.1).max()?;
        let highest = self.roots.iter().rev().find(|(_, found)| found.root.1 == level);
        highest.map(|(checkpoint, found)| (*checkpoint, *found))
    }
}

impl FoundLeaf {
    /// The pointer to it.
    pub(crate) fn pointer(&self) -> NodePointer {
        NodePointer { address: self.address, checksum: self.checksum }
    }
}

/// Whether items of this kind can be taken from an older leaf: the usage table is counted anew, and old
/// work that was noted may have been done.
pub(crate) fn is_restorable(key: &Key) -> bool {
    let of_volume = [ItemKind::Orphan as u8, ItemKind::Usage as u8];
    !of_volume.contains(&key.kind)
}

/// Neighbouring blocks of a segment in memory.
#[derive(Default)]
struct Piece {
    first: u32,
    /// `None` for one that cannot be read.
    blocks: Vec<Option<Block>>,
}

impl Piece {
    /// Block `block` of `segment`, if it can be read.
    fn block(&mut self, volume: &Volume<'_>, segment: u32, block: u32) -> Option<&Block> {
        let end = self.first + self.blocks.len() as u32;
        if !(self.first..end).contains(&block) {
            self.fill(volume, segment, block);
        }
        self.blocks.get((block - self.first) as usize)?.as_ref()
    }

    fn fill(&mut self, volume: &Volume<'_>, segment: u32, block: u32) {
        let layout = volume.layout();
        let count = READ_BLOCKS.min(layout.segment_blocks - block) as usize;
        let address = layout.segment_address(segment) + u64::from(block);
        let mut blocks = Block::zeroed(count);
        self.first = block;
        self.blocks = match volume.device.read(address, &mut blocks) {
            Ok(()) => blocks.into_vec().into_iter().map(Some).collect(),
            Err(_) => (address..).take(count).map(|at| read_one(volume, at)).collect(),
        };
    }
}

fn read_one(volume: &Volume<'_>, address: u64) -> Option<Block> {
    let mut block = Block::zeroed(1);
    volume.device.read(address, &mut block).ok()?;
    block.into_vec().pop()
}
