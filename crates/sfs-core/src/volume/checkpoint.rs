//! Checkpoints: the tree on the device, and a record that says where.
//!
//! Owns: writing the dirty nodes out with a usage table that already counts them, and the slots.
//! Promises: what a durable checkpoint refers to is not overwritten before the next one is durable.
//! Never: writes more than what changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sfs_device::{BLOCK_SIZE, Block, Stream};
use zerocopy::{FromZeros, IntoBytes};

use super::Volume;
use super::commit::{Built, Obstacle, Request, data::Data};
use crate::format::{CheckpointRecord, NodePointer, SummaryEntry, usage_key};
use crate::log::{Append, Batch, Chunk, Log, METADATA_HEAD};
use crate::memory::BlockRef;
use crate::meta::{Meta, MetadataError};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// Nodes that a checkpoint makes dirty itself, but for those that so many changes do: of the usage
/// table, and what leads to them.
const NODES_MORE: usize = 16;

/// Nodes that these may be split into.
const SPLITS: usize = 2;

/// A consistent state of the tree, about to be written.
struct Snapshot {
    record: CheckpointRecord,
    chunks: Vec<Arc<Chunk>>,
    /// Segments that this state does not refer to.
    drained: Vec<u32>,
}

impl Volume {
    /// Segments that the next checkpoint may have to open when `more` leaves have been changed
    /// before it.
    pub(super) fn checkpoint_reserve(&self, meta: &Meta, more: usize) -> usize {
        // A change makes a leaf dirty and what leads to it, and the sums of a segment. No node is
        // written twice; splitting makes new ones.
        let stay = (meta.usage.live_nodes() as usize).saturating_sub(meta.tree.old_count());
        let nodes = meta.tree.dirty_count() + (more + more / 4 + NODES_MORE).min(stay) + more / 4;
        (nodes + SPLITS).div_ceil(Batch::segment_room(&self.superblock.layout))
    }

    /// Makes all metadata durable. Data that waits goes on waiting, but for what must not be behind
    /// the metadata.
    pub(super) fn checkpoint(&self, log: &mut Log, unmounted: bool) -> Result<()> {
        // The log may have been waited for; a checkpoint must not refer to what failed meanwhile.
        self.may_write_out()?;
        let mut ahead: Vec<Built> = Vec::new();
        let mut failed = None;
        let _keep = self.keep_nodes();
        let snapshot = loop {
            let mut meta = self.meta.write();
            let step = self.build_ordered(log, &mut meta).and_then(|built| {
                ahead.extend(built);
                Ok(self.snapshot(log, &mut meta, unmounted)?)
            });
            drop(meta);
            let error = match step.map_err(|obstacle| self.overcome(obstacle, &mut failed)) {
                Ok(snapshot) => break snapshot,
                Err(Ok(())) => continue,
                Err(Err(error)) => error,
            };
            // What has been built has taken effect in memory: it must reach the log, unless nothing may.
            if !self.has_failed() {
                self.write_ahead_of(log, &ahead)?;
            }
            self.note_blocked(&error);
            return Err(error);
        };
        if mutated(Mutant::DiscardFirst) {
            snapshot.drained.iter().for_each(|segment| self.discard_run(*segment, 1));
        }
        if mutated(Mutant::RecordFirst) {
            self.write_record(&snapshot.record)?;
        }
        self.write_ahead_of(log, &ahead)?;
        self.write_chunks(log, &snapshot.chunks)?;
        if !mutated(Mutant::SkippedNodeFlush) {
            self.flush(log)?;
        }
        if !mutated(Mutant::RecordFirst) {
            self.write_record(&snapshot.record)?;
        }
        log.checkpoint = snapshot.record.number;
        log.blocks_since_checkpoint = 0;
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        {
            let mut meta = self.meta.write();
            meta.usage.release(&snapshot.drained);
            meta.usage.note_checkpoint();
            self.note_rotten(&meta);
        }
        self.note_released(&snapshot.drained);
        Ok(())
    }

    /// Writes what was built before a checkpoint.
    fn write_ahead_of(&self, log: &mut Log, ahead: &[Built]) -> Result<()> {
        ahead.iter().try_for_each(|built| self.write_built(log, built))
    }

    /// What has to go before the metadata does. Without such data a checkpoint needs no delta: it
    /// says everything itself.
    fn build_ordered(
        &self,
        log: &mut Log,
        meta: &mut Meta,
    ) -> std::result::Result<Option<Built>, Obstacle> {
        if self.ordered_files.lock().is_empty() {
            return Ok(None);
        }
        match self.build(log, meta, &Request::ahead()) {
            Ok(built) => Ok(Some(built)),
            // A checkpoint gives room to a volume so full that not even this fits.
            Err(Obstacle { fault: MetadataError::Error(Error::NoSpace), .. }) => Ok(None),
            Err(obstacle) => Err(obstacle),
        }
    }

    /// Gives every dirty node its place, under the metadata lock.
    fn snapshot(
        &self,
        log: &mut Log,
        meta: &mut Meta,
        unmounted: bool,
    ) -> std::result::Result<Snapshot, MetadataError> {
        self.prepare_usage(log, meta)?;
        let layout = &self.superblock.layout;
        let count = meta.tree.dirty_count();
        if Batch::opens(log, layout, METADATA_HEAD, count, 0) > meta.usage.clean_count() {
            return Err(Error::NoSpace.into());
        }
        let old: Vec<u64> = meta.tree.old_addresses().collect();
        let mut batch = Batch::default();
        let addresses = batch.reserve(log, layout, &mut meta.usage, METADATA_HEAD, count, &[]);
        for address in old {
            meta.usage.remove_node(address, log.next_sequence);
        }
        for address in &addresses {
            meta.usage.add_node(*address);
        }
        meta.usage.settle_sealed(log.next_sequence);
        for item in meta.usage.dirty_items().collect::<Vec<_>>() {
            let (first, value) = meta.usage.encode_item(item);
            meta.tree.put(&usage_key(first), &value)?;
        }
        meta.usage.clear_dirty();
        meta.clear_changes();
        meta.nodes_written = count;
        assert_eq!(meta.tree.dirty_count(), count, "the usage items had been made dirty");

        let number = log.checkpoint + 1 + u64::from(mutated(Mutant::SameSlot));
        let mut next = addresses.into_iter();
        let out = meta.tree.write_out(self.superblock.volume(), number, || {
            next.next().expect("as many addresses as dirty nodes")
        });
        let append = |(pointer, memory): (NodePointer, BlockRef)| Append {
            entry: SummaryEntry::Node { checksum: pointer.checksum },
            memory,
        };
        let nodes = out.pointers.into_iter().zip(BlockRef::all_of(out.blocks));
        batch.fill(nodes.map(append).collect());
        let chunks = batch.finish(log, self.superblock.volume(), meta.usage.clock.now());
        self.next_sequence.store(log.next_sequence, Ordering::Relaxed);
        self.writing.write().note_built(&chunks, &Data::default());
        let written = self.counters.snapshot();
        let mut extensions = log.extensions.clone();
        self.errors.put_into(&mut extensions);
        let record = CheckpointRecord {
            number,
            next_sequence: log.next_sequence,
            previous: log.previous,
            root_address: out.root.address,
            root_checksum: out.root.checksum,
            root_level: out.level,
            next_ino: meta.next_ino,
            heads: log.heads.records(),
            blocks_written: meta.usage.clock.blocks(),
            policies: meta.save_policies(),
            unmounted,
            mount_count: log.mount_count,
            user_bytes_written: log.user_bytes_before + written.user_bytes_written,
            device_bytes_written: log.device_bytes_before + written.device_bytes_written,
            extensions,
        };
        Ok(Snapshot { record, chunks, drained: meta.usage.all_drained() })
    }

    /// Puts the usage items that this checkpoint will change into the tree, so that their leaves
    /// are among the dirty nodes. That makes more nodes dirty, which changes more entries; it ends
    /// because the table does.
    fn prepare_usage(&self, log: &Log, meta: &mut Meta) -> std::result::Result<(), MetadataError> {
        let layout = &self.superblock.layout;
        let mut prepared = BTreeSet::new();
        loop {
            let count = meta.tree.dirty_count();
            let old: Vec<u64> = meta.tree.old_addresses().collect();
            let opens = Batch::opens(log, layout, METADATA_HEAD, count, 0);
            let mut touched: Vec<u32> = meta.usage.clean().take(opens).collect();
            touched.extend(old.iter().filter_map(|address| layout.segment_of(*address)));
            touched.extend(log.heads.get(METADATA_HEAD).map(|head| head.segment));
            for segment in touched {
                meta.usage.mark_dirty(segment);
            }
            let items: Vec<u32> =
                meta.usage.dirty_items().filter(|item| !prepared.contains(item)).collect();
            if items.is_empty() {
                return Ok(());
            }
            for item in items {
                let (first, value) = meta.usage.encode_item(item);
                meta.tree.put(&usage_key(first), &value)?;
                prepared.insert(item);
            }
        }
    }

    /// Writes a checkpoint's record to its slot, durably.
    pub(super) fn write_record(&self, record: &CheckpointRecord) -> Result<()> {
        self.may_write_out()?;
        let address = self.superblock.layout.slots[(record.number % 2) as usize];
        let bytes = record.encode(self.superblock.volume(), address);
        let mut blocks =
            Block::new_vec_zeroed(bytes.len() / BLOCK_SIZE).expect("memory for a checkpoint");
        blocks.as_mut_bytes().copy_from_slice(&bytes);
        let stream = Stream(METADATA_HEAD);
        self.device.write(address, &[&blocks], stream).map_err(|error| self.fail(error))?;
        if !mutated(Mutant::SkippedRecordFlush) {
            self.device.flush().map_err(|error| self.fail(error))?;
        }
        let len = bytes.len() as u64;
        self.counters.metadata_bytes.fetch_add(len, Ordering::Relaxed);
        self.counters.device_bytes_written.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// Writes everything and a last checkpoint. Nothing may be written afterwards. What is damaged keeps
    /// nothing else from being written; the error comes afterwards, and [`Volume::is_closed`] tells it
    /// from others.
    pub fn close(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.with_failure_written(self.close_whole())
    }

    fn close_whole(&self) -> Result<()> {
        self.may_write_out()?;
        let reclaimed = self.reclaim_all();
        let mut log = self.log.lock();
        let committed = self.commit_all_there_is(&mut log);
        committed.inspect_err(|error| self.note_blocked(error))?;
        self.flush(&mut log)?;
        self.checkpoint_in_any_case(&mut log, true)?;
        self.closed.store(true, Ordering::Release);
        while self.discard_some(&mut log) {}
        drop(log);
        self.lost.lock().close.tell_news()?;
        reclaimed
    }

    /// A checkpoint, for which room is made if there is none.
    pub(super) fn checkpoint_in_any_case(&self, log: &mut Log, unmounted: bool) -> Result<()> {
        match self.checkpoint(log, unmounted) {
            Err(Error::NoSpace) if self.make_room(log)? => self.checkpoint(log, unmounted),
            other => other,
        }
    }
}
