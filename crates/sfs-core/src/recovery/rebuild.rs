//! Rebuilding: writes a new tree beside a damaged one, from content that `sfs-fsck` has read.
//!
//! Blocks are moved to Clean segments first, then come the items, and one checkpoint ends the
//! repair. Until [`Rebuild::commit`] returns, a mount finds the old checkpoint, and no block that
//! the checkpoint refers to is overwritten. Memory is bounded by a few hundred nodes and the usage
//! table. `sfs-fsck` decides which content is preserved.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};

use super::components::{Components, policies};
use crate::format::{
    CheckpointRecord, Corruption, CorruptionKind, DataLayout, FIRST_INO, FileCount, Group, Head,
    History, ItemKind, Key, LogEra, Mapping, MappingRun, NodePointer, Reservation, SegmentState,
    Structure, SummaryEntry, Superblock, Timestamp, UsageEntry, WearLedger, usage_key,
};
use crate::health::SuperblockCopies;
use crate::io::Append;
use crate::log::{Batch, Heads, LogState};
use crate::memory::BlockRef;
use crate::metadata::Metadata;
use crate::mutant::{Mutant, mutated};
use crate::request::VolumeOptions;
use crate::segments::InPlaceAllocator;
use crate::segments::{SegmentBudget, UsageTable};
use crate::tree::{NodeNotCached, Tree, VerifiedNode};
use crate::writeback::{CheckpointReason, StepError};
use crate::{Error, Result};

/// Number of dirty nodes from which on the nodes are written.
const DIRTY_MAX: usize = 512;

/// State that a rebuilt volume begins with.
#[derive(Clone, Debug)]
pub struct Basis {
    /// Last known checkpoint. Its root and heads are not used.
    pub record: CheckpointRecord,
    /// Entry of each segment. Clean segments may be overwritten; all other segments are not, and the
    /// live blocks in those are counted anew.
    pub usage: Vec<UsageEntry>,
    /// Lower bound of the time, in ticks of the write clock.
    pub time: u32,
}

/// A data block that is moved for one mapping. Other mappings of the same block stay as they are.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Inode number of the file.
    pub ino: u64,
    /// Block number in the file.
    pub block: u32,
    /// History of the block.
    pub history: History,
    /// Content of the block.
    pub content: Block,
}

/// A volume that is being rebuilt. Blocks are moved first; then come the items in the order of their keys; then
/// [`Rebuild::commit`].
pub struct Rebuild {
    components: Components,
}

impl Rebuild {
    /// Begins a new tree on `device`, without a write.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if `basis` does not have one entry for each segment.
    pub fn begin(device: Arc<dyn Device>, superblock: &Superblock, basis: &Basis) -> Result<Self> {
        let layout = superblock.layout;
        let record = &basis.record;
        if basis.usage.len() != layout.segment_count as usize {
            let at = basis.usage.len() as u32;
            return Err(Corruption::in_usage_entry(at, CorruptionKind::Count).into());
        }
        let mut log = LogState {
            heads: Heads::default(),
            next_sequence: record.next_sequence,
            // As in a mount, except that the number of mounts is not counted up yet: a chunk of
            // this repair fits no other chain, wherever the repair stops.
            previous: crc32c::crc32c_append(record.previous, &record.mount_count.to_le_bytes()),
            unflushed: false,
            flushed: 0,
            blocks_since_checkpoint: 0,
            checkpoint: record.number,
            mount_count: record.mount_count.saturating_add(1),
            era: LogEra::UNKNOWN,
            user_bytes_before: record.user_bytes_written,
            extensions: record.extensions.repeated(),
        };
        if mutated(Mutant::LedgerForgottenByRepair) {
            log.extensions.remove(WearLedger::TAG);
        }
        log.begin_era();
        let options = VolumeOptions { discard: false, ..VolumeOptions::default() };
        let shift = superblock.tick_shift;
        let mut usage =
            UsageTable::from_entries(layout, emptied(&basis.usage), shift, record.blocks_written);
        usage.clock.catch_up(basis.time);
        if let Some(places) = InPlaceAllocator::new(superblock.data_layout, layout) {
            usage.attach_allocator_of_clean(places);
        }
        let policies = policies(&options, superblock.data_layout, &layout)?;
        let mut metadata = Metadata::new(Tree::new(), usage, record.next_ino, policies);
        metadata.set_file_count(Some(FileCount(0)));
        let copies = SuperblockCopies::new(superblock.clone());
        let components =
            Components::new(device, copies, options, (log, record.device_bytes_written), metadata);
        components.metadata.write().restore_policies(&record.policies);
        let rebuild = Self { components };
        rebuild.fill_usage()?;
        Ok(rebuild)
    }

    /// Sets the time for the day of the ledger on which the bytes of the repair count.
    pub fn set_time(&self, now: Timestamp) {
        self.components.wear.set_time(now);
    }

    /// Puts items for the usage table into the tree: a checkpoint overwrites these items and adds none.
    fn fill_usage(&self) -> Result<()> {
        let count = self.components.metadata.read().usage.item_count();
        for item in 0..count {
            let (first, value) = self.components.metadata.read().usage.encode_item(item);
            self.put_any(&usage_key(first), &value)?;
        }
        Ok(())
    }

    /// Writes blocks to Clean segments, and returns their mappings.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if too few segments are Clean, and errors of the device.
    pub fn move_blocks(&self, blocks: Vec<Moved>) -> Result<Vec<Mapping>> {
        let layout = &self.components.superblock.layout();
        let mut log = self.components.log.lock();
        let mut metadata = self.components.metadata.write();
        if self.components.superblock.data_layout() != DataLayout::Log {
            return self.place_blocks(&mut log, &mut metadata, &blocks);
        }
        if Batch::opens(&log, layout, Head::of(Group(0)), blocks.len(), 0)
            > metadata.usage.clean_count()
        {
            return Err(Error::NoSpace);
        }
        let mut batch = Batch::default();
        let head = Head::of(Group(0));
        let addresses =
            batch.reserve(&mut log, layout, &mut metadata.usage, head, blocks.len(), &[]);
        let (mut mappings, mut appends) = (Vec::new(), Vec::new());
        for (address, moved) in addresses.into_iter().zip(blocks) {
            let Moved { ino, block, history, content } = moved;
            let checksum = crc32c::crc32c(&content.0);
            mappings.push(Mapping { address, checksum: Some(checksum), history });
            let entry = SummaryEntry::Data { ino, block, checksum, history };
            appends.push(Append { entry, memory: one(content) });
        }
        batch.fill(appends);
        let volume = self.components.superblock.volume();
        let chunks = batch.finish(&mut log, volume, metadata.usage.clock.now());
        drop(metadata);
        self.components.log.write_chunks(&mut log, &chunks)?;
        Ok(mappings)
    }

    /// Writes blocks in place, to segments that were Clean.
    fn place_blocks(
        &self,
        log: &mut LogState,
        metadata: &mut Metadata,
        blocks: &[Moved],
    ) -> Result<Vec<Mapping>> {
        let segment_blocks = u64::from(self.components.superblock.layout().segment_blocks);
        let clean = metadata.usage.clean_count();
        if blocks.len() as u64 > metadata.usage.free_blocks() + clean as u64 * segment_blocks {
            return Err(Error::NoSpace);
        }
        let mut share = SegmentBudget { log: 0, data: clean };
        // All blocks are allocated for one file, or each might open a segment of its own.
        let mut place = |moved: &Moved| {
            let extents = metadata.usage.allocate(FIRST_INO, 1, &mut share, log.next_sequence);
            let address = extents[0].address;
            let stream = Stream(Head::of(Group(0)).0);
            self.components.io.write_block(address, &moved.content, stream)?;
            Ok(Mapping::in_place(address))
        };
        let mappings = blocks.iter().map(&mut place).collect();
        log.unflushed = true;
        mappings
    }

    /// Adds the next item, whose key is above the keys of all earlier items. Items of the volume itself (inode 0) may
    /// come at any time; usage items are refused.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the item is a usage item, too long, or a mapping run that does not decode or refers to
    /// a block whose segment is not Open, Sealed or InPlace; [`Error::NoSpace`], and errors of the device.
    pub fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        let wrong = Corruption::in_item(key.ino, CorruptionKind::Value);
        let is_known = self.components.superblock.tolerance().allows_kind(key.kind);
        let is_usage = key.kind == ItemKind::Usage as u8;
        if !is_known || is_usage || value.len() > crate::format::VALUE_LEN_MAX {
            return Err(wrong.into());
        }
        self.count(key, value)?;
        self.put_any(key, value)?;
        self.write_full()
    }

    /// Adds the next leaf as it is on the device. The keys of the leaf are above the keys of all earlier items.
    ///
    /// # Errors
    ///
    /// Errors of [`Rebuild::put`] and of [`VerifiedNode::decode`].
    pub fn keep(&self, pointer: NodePointer, block: &Block) -> Result<()> {
        let missing = NodeNotCached { pointer, level: 0, keys: None };
        let superblock = &self.components.superblock;
        let leaf =
            VerifiedNode::decode(block, superblock.volume(), &missing, superblock.tolerance())?;
        let Some(first) = leaf.first_key() else { return Ok(()) };
        for (key, value) in leaf.items() {
            if key.kind == ItemKind::Usage as u8 {
                let kind = CorruptionKind::Value;
                return Err(Corruption::in_block(Structure::Node, pointer.address, kind).into());
            }
            self.count(&key, value)?;
        }
        refers(&self.components.metadata.read(), pointer.address)?;
        self.components
            .metadata
            .update(|metadata| Ok(metadata.tree.append_leaf(&first, pointer)?))?;
        self.components.metadata.write().usage.add_node(pointer.address);
        self.write_full()
    }

    /// Makes the rebuilt tree the tree of the volume, durably. New files get numbers from `next_ino` on.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`], and errors of the device; the old checkpoint then stays valid.
    pub fn commit(self, next_ino: u64) -> Result<()> {
        {
            let sequence = self.components.log.lock().next_sequence;
            let mut metadata = self.components.metadata.write();
            metadata.next_ino = next_ino;
            metadata.usage.drain_empty(sequence);
            for segment in 0..self.components.superblock.layout().segment_count {
                metadata.usage.mark_dirty(segment);
            }
        }
        let Components { log, checkpointer, .. } = &self.components;
        let checkpoint = checkpointer.checkpoint(&mut log.lock(), CheckpointReason::Rebuild);
        checkpoint.map(drop).map_err(StepError::into_user_error)
    }

    /// Counts an inode, or the blocks that a mapping run refers to.
    fn count(&self, key: &Key, value: &[u8]) -> Result<()> {
        if key.kind == ItemKind::Inode as u8 {
            self.components.metadata.write().count_new_file();
        }
        if key.kind == ItemKind::Reservation as u8 {
            let range = Reservation::decode(key, value)?;
            self.components.metadata.write().count_new_reservation(range);
        }
        if key.kind != ItemKind::Mapping as u8 {
            return Ok(());
        }
        let tolerance = self.components.superblock.tolerance();
        let mut metadata = self.components.metadata.write();
        for (_, mapping) in MappingRun::decode(value, key, tolerance)?.iter(0) {
            refers(&metadata, mapping.address)?;
            metadata.usage.add(&mapping);
        }
        Ok(())
    }

    fn put_any(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.components.metadata.update(|metadata| Ok(metadata.tree.put(key, value)?))
    }

    /// Writes the dirty nodes if there are at least [`DIRTY_MAX`].
    fn write_full(&self) -> Result<()> {
        if self.components.metadata.read().tree.dirty_count() < DIRTY_MAX {
            return Ok(());
        }
        let layout = &self.components.superblock.layout();
        let id = self.components.superblock.volume();
        let mut log = self.components.log.lock();
        let mut metadata = self.components.metadata.write();
        let metadata = &mut *metadata;
        let count = metadata.tree.dirty_count();
        if Batch::opens(&log, layout, Head::METADATA, count, 0) > metadata.usage.clean_count() {
            return Err(Error::NoSpace);
        }
        let old: Vec<u64> = metadata.tree.old_addresses().collect();
        let mut batch = Batch::default();
        let addresses =
            batch.reserve(&mut log, layout, &mut metadata.usage, Head::METADATA, count, &[]);
        old.iter().for_each(|address| metadata.usage.remove_node(*address, log.next_sequence));
        addresses.iter().for_each(|address| metadata.usage.add_node(*address));
        let mut next = addresses.into_iter();
        let out = metadata.tree.write_out(id, log.checkpoint + 1, || {
            next.next().expect("as many addresses as dirty nodes")
        });
        let nodes = out.pointers.into_iter().zip(BlockRef::all_of(out.blocks));
        let append = |(pointer, memory): (NodePointer, BlockRef)| Append {
            entry: SummaryEntry::Node { checksum: pointer.checksum },
            memory,
        };
        batch.fill(nodes.map(append).collect());
        let chunks = batch.finish(&mut log, id, metadata.usage.clock.now());
        self.components.log.write_chunks(&mut log, &chunks)?;
        metadata.tree.evict(DIRTY_MAX);
        Ok(())
    }
}

/// Checks that a block can be at `address`: its segment is Open, Sealed or InPlace.
fn refers(metadata: &Metadata, address: u64) -> Result<()> {
    let wrong = Corruption::in_block(Structure::Data, address, CorruptionKind::Dangling);
    let segment = metadata.usage.segment_of(address).ok_or(wrong)?;
    match metadata.usage.entry(segment).state {
        SegmentState::Open | SegmentState::Sealed | SegmentState::InPlace => Ok(()),
        _ => Err(wrong.into()),
    }
}

/// Returns the entries without their counts; Open and Drained segments become Sealed.
fn emptied(usage: &[UsageEntry]) -> Vec<UsageEntry> {
    let empty = |entry: &UsageEntry| UsageEntry {
        live_blocks: 0,
        write_count_sum: 0,
        modified_sum: 0,
        erases: if mutated(Mutant::EraseForgottenByRepair) { 0 } else { entry.erases },
        state: match entry.state {
            SegmentState::Clean | SegmentState::Bad | SegmentState::InPlace => entry.state,
            _ => SegmentState::Sealed,
        },
        ..*entry
    };
    usage.iter().map(empty).collect()
}

fn one(content: Block) -> BlockRef {
    BlockRef::all_of(vec![content]).next().expect("one block")
}
