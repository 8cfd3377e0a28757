//! Search of all segments for nodes, owners of data blocks, and chunks past a checkpoint, whether the tree
//! refers to them or not.
//!
//! The scan reads the eras of all chunks first. Then it goes through each segment once, front to
//! back, and keeps only leaves and blocks with lost keys, positions of chunks, and a few root
//! nodes. Chunks that a later era has overruled are left out. Salvage chooses between the versions
//! that are found.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sfs_core::format::{
    ChunkSummary, History, ItemKind, Key, NodeHeader, NodePointer, SummaryEntry, run_key,
};
use sfs_device::Block;

use crate::error::FsckError;
use crate::progress::{self, ProgressListener, Stage};
use crate::read::chunk;
use crate::read::eras::EraTable;
use crate::read::key_range::{KeyRange, any_contains, any_overlaps};
use crate::read::node::{self, NodeContent};
use crate::read::overlay_tree::TreeRoot;
use crate::read::read_window::ReadWindow;
use crate::read::volume::VolumeReader;

/// Maximum number of chunks before the checkpoint that are kept for their deltas, in at most 256
/// MiB.
const OLDER_MAX: usize = 4 << 20;

/// First bytes of a summary.
const CHUNK_MAGIC: &[u8] = b"SFSc";

/// First bytes of a node.
const NODE_MAGIC: &[u8] = b"SFSn";

/// Maximum number of checkpoints whose highest nodes are kept.
const ROOTS_MAX: usize = 4;

/// Leaf with lost keys. The order of the fields makes the newest leaf the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundLeaf {
    /// Number of the checkpoint that the leaf was written for.
    pub(crate) checkpoint: u64,
    /// Sequence number of the leaf's chunk; 0 if no summary describes the leaf.
    pub(crate) sequence: u64,
    pub(crate) address: u64,
    pub(crate) checksum: u32,
    /// First key of the leaf.
    pub(crate) first: Key,
    /// Last key of the leaf.
    pub(crate) last: Key,
}

impl FoundLeaf {
    /// Returns the pointer to the leaf.
    pub(crate) fn pointer(&self) -> NodePointer {
        NodePointer { address: self.address, checksum: self.checksum }
    }
}

/// Data block, as a summary describes it.
#[derive(Clone, Copy)]
pub(crate) struct FoundBlock {
    /// Sequence number of the block's chunk.
    pub(crate) sequence: u64,
    pub(crate) address: u64,
    pub(crate) checksum: u32,
    pub(crate) history: History,
}

/// Highest node of a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct FoundRoot {
    pub(crate) root: TreeRoot,
    /// Sequence number of the node's chunk.
    pub(crate) sequence: u64,
    /// Checksum of the node's chunk.
    pub(crate) checksum: u32,
    /// Sequence number of the first chunk with a node of the same checkpoint.
    pub(crate) first_sequence: u64,
}

/// Positions of chunks, as segment and block, by sequence number.
pub(crate) type ChunkPositions = BTreeMap<u64, Vec<(u32, u32)>>;

/// Chunk before the checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct OldChunk {
    pub(crate) segment: u32,
    pub(crate) block: u32,
    /// `true` for the last chunk of its batch.
    pub(crate) end: bool,
    pub(crate) has_delta: bool,
}

/// Result of a scan of all segments.
pub(crate) struct SegmentScan<'l> {
    /// Lost ranges of keys, ascending.
    pub(crate) lost: &'l [KeyRange],
    /// Leaves with lost keys.
    pub(crate) leaves: Vec<FoundLeaf>,
    /// Newest description of each block in a lost mapping run, by inode and block.
    pub(crate) blocks: HashMap<(u64, u32), FoundBlock>,
    /// Highest nodes by the number of their checkpoint.
    pub(crate) roots: BTreeMap<u64, FoundRoot>,
    since: u64,
    eras: EraTable,
    /// Chunks from sequence number `since` on.
    pub(crate) chunks: ChunkPositions,
    /// The newest chunks before `since`, by sequence number.
    pub(crate) older: BTreeMap<u64, OldChunk>,
    /// Highest sequence number of all chunks.
    pub(crate) last_sequence: u64,
    /// Latest time of all chunks, in ticks.
    pub(crate) time: u32,
}

impl<'l> SegmentScan<'l> {
    /// Searches all segments for leaves and blocks with `lost` keys, and for chunks from sequence
    /// number `since` on. Placed segments are skipped: users can write anything there, also a copy
    /// of a chunk.
    pub(crate) fn run(
        volume: &VolumeReader<'_>,
        lost: &'l [KeyRange],
        since: u64,
        placed: &BTreeSet<u32>,
        listener: ProgressListener<'_>,
    ) -> Result<Self, FsckError> {
        let mut scan = Self {
            lost,
            leaves: Vec::new(),
            blocks: HashMap::new(),
            roots: BTreeMap::new(),
            since,
            eras: EraTable::read(volume, placed),
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
            progress::report(listener, Stage::Salvage, done, total)?;
        }
        Ok(scan)
    }

    /// Goes through a segment chunk by chunk, and block by block where no chunk is. So a damaged summary
    /// hides neither its own nodes nor the chunks that follow.
    fn scan_segment(&mut self, volume: &VolumeReader<'_>, segment: u32) {
        let segment_blocks = volume.layout().segment_blocks;
        let (mut block, mut last_sequence) = (0, 0);
        let mut window = ReadWindow::default();
        while block < segment_blocks {
            let bytes = window.block(volume, segment, block);
            let chunk = bytes.filter(|bytes| bytes.0.starts_with(CHUNK_MAGIC));
            let era = chunk.map(|bytes| ChunkSummary::era_of(&bytes.0));
            let chunk = chunk.and_then(|_| chunk::read_summary(volume, segment, block));
            match chunk.filter(|chunk| chunk.header.sequence > last_sequence) {
                Some(chunk) => {
                    last_sequence = chunk.header.sequence;
                    self.last_sequence = self.last_sequence.max(last_sequence);
                    self.time = self.time.max(chunk.header.time);
                    if !era.is_some_and(|era| self.eras.is_overruled(era, last_sequence)) {
                        self.add_chunk(volume, segment, block, &chunk);
                    }
                    block += chunk.block_count() as u32;
                }
                None => {
                    let address = volume.layout().segment_address(segment) + u64::from(block);
                    if let Some(bytes) = window.block(volume, segment, block) {
                        let checksum = NodeHeader::checksum_of(&bytes.0);
                        self.add_node(volume, NodePointer { address, checksum }, bytes, None);
                    }
                    block += 1;
                }
            }
        }
    }

    fn add_chunk(
        &mut self,
        volume: &VolumeReader<'_>,
        segment: u32,
        at: u32,
        chunk: &ChunkSummary,
    ) {
        let sequence = chunk.header.sequence;
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
        let mut window = ReadWindow::default();
        for (block, entry) in (first..).zip(&chunk.entries) {
            let address = volume.layout().segment_address(segment) + u64::from(block);
            match *entry {
                SummaryEntry::Data { ino, block, checksum, history } => {
                    let found = FoundBlock { sequence, address, checksum, history };
                    self.add_block(ino, block, found);
                }
                SummaryEntry::Node { checksum } => {
                    if let Some(bytes) = window.block(volume, segment, block) {
                        let pointer = NodePointer { address, checksum };
                        self.add_node(volume, pointer, bytes, Some(chunk));
                    }
                }
            }
        }
    }

    fn add_block(&mut self, ino: u64, block: u32, found: FoundBlock) {
        let key = run_key(ino, block);
        // Only roll-forward applies blocks past the checkpoint, by whole batches.
        if found.sequence >= self.since || !any_contains(self.lost, &key) {
            return;
        }
        let newest = self.blocks.entry((ino, block)).or_insert(found);
        // Of two entries in one chunk the later one counts.
        if newest.sequence <= found.sequence {
            *newest = found;
        }
    }

    fn add_node(
        &mut self,
        volume: &VolumeReader<'_>,
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
        let NodeContent::Leaf(items) = content else { return };
        let (Some((first, _)), Some((last, _))) = (items.first(), items.last()) else { return };
        let range = KeyRange { low: *first, high: Some(last.next()) };
        if any_overlaps(self.lost, &range) {
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

    fn add_root(&mut self, checkpoint: u64, root: TreeRoot, chunk: &ChunkSummary) {
        let sequence = chunk.header.sequence;
        let found =
            FoundRoot { root, sequence, checksum: chunk.checksum, first_sequence: sequence };
        let highest = self.roots.entry(checkpoint).or_insert(found);
        let first_sequence = highest.first_sequence.min(sequence);
        // The log holds children before their parents.
        if (highest.root.1, highest.sequence) <= (root.1, sequence) {
            *highest = found;
        }
        highest.first_sequence = first_sequence;
        if self.roots.len() > ROOTS_MAX {
            self.roots.pop_first();
        }
    }

    /// Returns checkpoint number and root of the newest tree whose root has the highest level of all. An
    /// unfinished checkpoint has no node of that level.
    pub(crate) fn best_root(&self) -> Option<(u64, FoundRoot)> {
        let level = self.roots.values().map(|found| found.root.1).max()?;
        let highest = self.roots.iter().rev().find(|(_, found)| found.root.1 == level);
        highest.map(|(checkpoint, found)| (*checkpoint, *found))
    }
}

/// Returns whether the item `key` may be restored from an older leaf. Usage items may not, because
/// the table is recounted; nor orphan items, because the deletion or truncation may be complete.
pub(crate) fn is_restorable(key: &Key) -> bool {
    let of_volume = [ItemKind::Orphan as u8, ItemKind::Usage as u8];
    !of_volume.contains(&key.kind)
}
