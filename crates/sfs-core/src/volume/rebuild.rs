//! Rebuilding: a new tree beside a damaged one, from what somebody else has read.
//!
//! Owns: the order of a repair: blocks to Clean segments, then one checkpoint.
//! Promises: until [`Rebuild::commit`] has returned the old checkpoint is what a mount finds, and nothing
//! that it refers to is overwritten. Memory is bounded by a few hundred nodes and the usage table.
//! Never: decides what is worth keeping; `sfs-fsck` does.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};

use super::Volume;
use super::policies;
use super::superblocks::Superblocks;
use crate::format::{
    CheckpointRecord, Corruption, CorruptionKind, DataLayout, FIRST_INO, History, ItemKind, Key,
    Mapping, MappingRun, NodePointer, SegmentState, Structure, SummaryEntry, Superblock,
    UsageEntry, usage_key,
};
use crate::log::{Append, Batch, FIRST_GROUP_HEAD, Heads, Log, METADATA_HEAD};
use crate::memory::BlockRef;
use crate::meta::{Meta, MetadataError};
use crate::request::VolumeOptions;
use crate::segments::InPlaceAllocator;
use crate::segments::{SegmentBudget, UsageTable};
use crate::tree::{NodeNotCached, Tree, VerifiedNode};
use crate::{Error, Result};

/// Dirty nodes that wait before they are written.
const DIRTY_MAX: usize = 512;

/// What a rebuilt volume begins with.
#[derive(Clone, Debug)]
pub struct Basis {
    /// The last checkpoint that is known. Its root and heads do not matter.
    pub record: CheckpointRecord,
    /// One entry a segment. Those called Clean may be written to: nothing that anybody may still need is
    /// in them. All others are not; how much lives in them is counted anew.
    pub usage: Vec<UsageEntry>,
    /// It is so late at least, in ticks of the write clock.
    pub time: u32,
}

/// A data block that gets another place, for one mapping: others that refer to the same block go on doing so.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The file.
    pub ino: u64,
    /// Block of the file.
    pub block: u32,
    /// What is remembered of its writes.
    pub history: History,
    /// The content.
    pub content: Block,
}

/// A volume that is being written anew. Blocks are moved first; then come the items, in the order of
/// their keys; then [`Rebuild::commit`].
pub struct Rebuild {
    volume: Volume,
}

impl Rebuild {
    /// Begins a new tree on `device`. Nothing is written yet.
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
        let log = Log {
            heads: Heads::default(),
            next_sequence: record.next_sequence,
            // As a mount does: a chunk of this repair fits nobody else's chain, whenever it stops.
            previous: crc32c::crc32c_append(record.previous, &record.mount_count.to_le_bytes()),
            unflushed: false,
            flushed: 0,
            blocks_since_checkpoint: 0,
            checkpoint: record.number,
            synced: 0,
            mount_count: record.mount_count.saturating_add(1),
            user_bytes_before: record.user_bytes_written,
            device_bytes_before: record.device_bytes_written,
            extensions: record.extensions.repeated(),
        };
        let options = VolumeOptions { discard: false, ..VolumeOptions::default() };
        let shift = superblock.tick_shift;
        let mut usage =
            UsageTable::from_entries(layout, emptied(&basis.usage), shift, record.blocks_written);
        usage.clock.catch_up(basis.time);
        if let Some(places) = InPlaceAllocator::new(superblock.data_layout, layout) {
            usage.attach_allocator_of_clean(places);
        }
        let meta = Meta::new(Tree::new(), usage, record.next_ino, policies(&options, superblock)?);
        let volume =
            Volume::assemble(device, Superblocks::new(superblock.clone()), options, log, meta);
        volume.meta.write().restore_policies(&record.policies);
        let rebuild = Self { volume };
        rebuild.fill_usage()?;
        Ok(rebuild)
    }

    /// The usage table, as yet unknown: a checkpoint overwrites the items, but does not add any.
    fn fill_usage(&self) -> Result<()> {
        let count = self.volume.meta.read().usage.item_count();
        for item in 0..count {
            let (first, value) = self.volume.meta.read().usage.encode_item(item);
            self.put_any(&usage_key(first), &value)?;
        }
        Ok(())
    }

    /// Writes blocks to a place of their own, and says where they are.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if too few segments are Clean, and those of the device.
    pub fn move_blocks(&self, blocks: Vec<Moved>) -> Result<Vec<Mapping>> {
        let layout = &self.volume.superblock.layout;
        let mut log = self.volume.log.lock();
        let mut meta = self.volume.meta.write();
        if self.volume.superblock.data_layout != DataLayout::Log {
            return self.place_blocks(&mut log, &mut meta, &blocks);
        }
        if Batch::opens(&log, layout, FIRST_GROUP_HEAD, blocks.len(), 0) > meta.usage.clean_count()
        {
            return Err(Error::NoSpace);
        }
        let mut batch = Batch::default();
        let head = FIRST_GROUP_HEAD;
        let addresses = batch.reserve(&mut log, layout, &mut meta.usage, head, blocks.len(), &[]);
        let (mut mappings, mut appends) = (Vec::new(), Vec::new());
        for (address, moved) in addresses.into_iter().zip(blocks) {
            let Moved { ino, block, history, content } = moved;
            let checksum = crc32c::crc32c(&content.0);
            mappings.push(Mapping { address, checksum: Some(checksum), history });
            let entry = SummaryEntry::Data { ino, block, checksum, history };
            appends.push(Append { entry, memory: one(content) });
        }
        batch.fill(appends);
        let chunks =
            batch.finish(&mut log, self.volume.superblock.volume(), meta.usage.clock.now());
        drop(meta);
        self.volume.write_chunks(&mut log, &chunks)?;
        Ok(mappings)
    }

    /// The same beside the log, in segments that are Clean so far.
    fn place_blocks(
        &self,
        log: &mut Log,
        meta: &mut Meta,
        blocks: &[Moved],
    ) -> Result<Vec<Mapping>> {
        let segment_blocks = u64::from(self.volume.superblock.layout.segment_blocks);
        let clean = meta.usage.clean_count();
        if blocks.len() as u64 > meta.usage.free_blocks() + clean as u64 * segment_blocks {
            return Err(Error::NoSpace);
        }
        let mut share = SegmentBudget { log: 0, data: clean };
        // Of one file, or each might open a segment of its own.
        let mut place = |moved: &Moved| {
            let extents = meta.usage.allocate(FIRST_INO, 1, &mut share, log.next_sequence);
            let address = extents[0].address;
            let stream = Stream(FIRST_GROUP_HEAD);
            self.volume.device.write(address, &[std::slice::from_ref(&moved.content)], stream)?;
            Ok(Mapping::in_place(address))
        };
        let mappings = blocks.iter().map(&mut place).collect();
        log.unflushed = true;
        mappings
    }

    /// The next item; its key is above all before, except that those of the volume itself (inode 0)
    /// may come at any time. Items of usage do not come from outside.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the item is one of usage, longer than allowed, or mappings that do not
    /// decode or lead to where no block can live; [`Error::NoSpace`], and those of the device.
    pub fn put(&self, key: &Key, value: &[u8]) -> Result<()> {
        let wrong = Corruption::in_item(key.ino, CorruptionKind::Value);
        let is_known = self.volume.superblock.tolerance().allows_kind(key.kind);
        let is_usage = key.kind == ItemKind::Usage as u8;
        if !is_known || is_usage || value.len() > crate::format::VALUE_LEN_MAX {
            return Err(wrong.into());
        }
        self.count(key, value)?;
        self.put_any(key, value)?;
        self.write_full()
    }

    /// The next leaf, as it is on the device: its keys are above all before.
    ///
    /// # Errors
    ///
    /// As [`Rebuild::put`], and those of [`VerifiedNode::decode`].
    pub fn keep(&self, pointer: NodePointer, block: &Block) -> Result<()> {
        let missing = NodeNotCached { pointer, level: 0, keys: None };
        let superblock = &self.volume.superblock;
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
        refers(&self.volume.meta.read(), pointer.address)?;
        self.change(|meta| Ok(meta.tree.append_leaf(&first, pointer)?))?;
        self.volume.meta.write().usage.add_node(pointer.address);
        self.write_full()
    }

    /// The items are complete: makes them the volume, durably. Files get numbers from `next_ino` on.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`], and those of the device: the old checkpoint counts then.
    pub fn commit(self, next_ino: u64) -> Result<()> {
        {
            let mut meta = self.volume.meta.write();
            meta.next_ino = next_ino;
            let sequence = self.volume.log.lock().next_sequence;
            meta.usage.drain_empty(sequence);
            for segment in 0..self.volume.superblock.layout.segment_count {
                meta.usage.mark_dirty(segment);
            }
        }
        self.volume.checkpoint(&mut self.volume.log.lock(), true)
    }

    /// Counts what an item of mappings refers to.
    fn count(&self, key: &Key, value: &[u8]) -> Result<()> {
        if key.kind != ItemKind::Mapping as u8 {
            return Ok(());
        }
        let tolerance = self.volume.superblock.tolerance();
        let mut meta = self.volume.meta.write();
        for (_, mapping) in MappingRun::decode(value, key, tolerance)?.iter(0) {
            refers(&meta, mapping.address)?;
            meta.usage.add(&mapping);
        }
        Ok(())
    }

    fn put_any(&self, key: &Key, value: &[u8]) -> Result<()> {
        self.change(|meta| Ok(meta.tree.put(key, value)?))
    }

    /// A change of the tree, for which nodes may have to be loaded.
    fn change(
        &self,
        mut step: impl FnMut(&mut Meta) -> std::result::Result<(), MetadataError>,
    ) -> Result<()> {
        let mut failed = None;
        let _keep = self.volume.keep_nodes();
        loop {
            let outcome = step(&mut self.volume.meta.write());
            match outcome {
                Ok(()) => return Ok(()),
                Err(MetadataError::NodeNotCached(missing)) => {
                    self.volume.load(&missing, &mut failed)?
                }
                Err(MetadataError::Error(error)) => return Err(error),
            }
        }
    }

    /// Writes the dirty nodes when they have become many.
    fn write_full(&self) -> Result<()> {
        if self.volume.meta.read().tree.dirty_count() < DIRTY_MAX {
            return Ok(());
        }
        let layout = &self.volume.superblock.layout;
        let id = self.volume.superblock.volume();
        let mut log = self.volume.log.lock();
        let mut meta = self.volume.meta.write();
        let meta = &mut *meta;
        let count = meta.tree.dirty_count();
        if Batch::opens(&log, layout, METADATA_HEAD, count, 0) > meta.usage.clean_count() {
            return Err(Error::NoSpace);
        }
        let old: Vec<u64> = meta.tree.old_addresses().collect();
        let mut batch = Batch::default();
        let addresses = batch.reserve(&mut log, layout, &mut meta.usage, METADATA_HEAD, count, &[]);
        old.iter().for_each(|address| meta.usage.remove_node(*address, log.next_sequence));
        addresses.iter().for_each(|address| meta.usage.add_node(*address));
        let mut next = addresses.into_iter();
        let out = meta.tree.write_out(id, log.checkpoint + 1, || {
            next.next().expect("as many addresses as dirty nodes")
        });
        let nodes = out.pointers.into_iter().zip(BlockRef::all_of(out.blocks));
        let append = |(pointer, memory): (NodePointer, BlockRef)| Append {
            entry: SummaryEntry::Node { checksum: pointer.checksum },
            memory,
        };
        batch.fill(nodes.map(append).collect());
        let chunks = batch.finish(&mut log, id, meta.usage.clock.now());
        self.volume.write_chunks(&mut log, &chunks)?;
        meta.tree.evict(DIRTY_MAX);
        Ok(())
    }
}

/// A block can live at `address`: it is in a segment that this rebuild does not take for Clean.
fn refers(meta: &Meta, address: u64) -> Result<()> {
    let wrong = Corruption::in_block(Structure::Data, address, CorruptionKind::Dangling);
    let segment = meta.usage.segment_of(address).ok_or(wrong)?;
    match meta.usage.entry(segment).state {
        SegmentState::Open | SegmentState::Sealed | SegmentState::InPlace => Ok(()),
        _ => Err(wrong.into()),
    }
}

/// The entries of a table of which nothing has been counted yet.
fn emptied(usage: &[UsageEntry]) -> Vec<UsageEntry> {
    let empty = |entry: &UsageEntry| UsageEntry {
        live_blocks: 0,
        write_count_sum: 0,
        modified_sum: 0,
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
