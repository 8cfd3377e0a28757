//! Checkpoint: writes every dirty node, and a record with the address of the root.
//!
//! A checkpoint is a leaf step. It first writes the data that is ordered with metadata, then the dirty nodes with a
//! usage table that already counts them, flushes, and writes the record to the slot that the last checkpoint did
//! not use. The last durable checkpoint stays valid until the new record is durable.

mod record;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sfs_device::BLOCK_SIZE;

use super::builder::{BatchBuilder, CommitBatch};
use super::commit::Resolver;
use super::commit_request::CommitRequest;
use super::step_error::{BuildError, BuildErrorReason, Shortage, StepError};
use crate::Result;
use crate::counters::AtomicCounters;
use crate::files::DirtyData;
use crate::format::{
    CheckpointRecord, Head, Layout, NodePointer, SummaryEntry, WearBytes, usage_key,
};
use crate::health::{Health, OpenSuperblock};
use crate::io::{Append, Chunk, InPlaceWrites, VolumeDevice};
use crate::log::{Batch, HeadPosition, LogState, LogWriter};
use crate::memory::BlockRef;
use crate::metadata::{Metadata, MetadataError, MetadataStore};
use crate::mutant::{Mutant, mutated};
use crate::wear::{PendingBytes, WearRecorder};

/// Reason for a checkpoint. `space::checkpoint_due` has the thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointReason {
    /// `sfs-mkfs` makes the first tree.
    Format,
    /// `sfs-fsck` has rebuilt the tree.
    Rebuild,
    /// A writable mount begins.
    Mount,
    /// The volume is unmounted.
    Unmount,
    /// The volume is frozen: a copy of the device is like an unmounted volume.
    Freeze,
    /// The volume is written again after it was frozen.
    Thaw,
    /// The last checkpoint is as old as the mount option `checkpoint=` allows.
    Interval,
    /// The clock was set back.
    ClockSetBack,
    /// Much log was written since the last checkpoint: recovery would take long.
    LogLength,
    /// Dirty nodes take much of the node cache.
    DirtyNodes,
    /// An error of a new kind has to be stored.
    NewErrorKind,
    /// Clean segments are few, and many Drained segments wait for a checkpoint.
    PinnedSegments,
    /// An administrator asks for it.
    Asked,
    /// A step has too few Clean segments, and a release by a delta does not help.
    Shortage,
    /// The layout is about to change. The checkpoint says how many segments its usage table has, and the chain of chunks
    /// continues with `nonce`: an earlier life of the same image may have left chunks behind the old end.
    Resizing {
        /// Number that no other resize of this volume, or of a copy of its image, had.
        nonce: u64,
    },
    /// The layout has changed.
    Resized,
    /// Segments at the end of a volume that shrinks are being emptied.
    Emptying,
}

impl CheckpointReason {
    /// Returns whether too few segments are Clean for a step.
    pub(crate) fn is_shortage(self) -> bool {
        self == Self::Shortage
    }

    /// Returns whether the volume is unmounted after this checkpoint.
    fn unmounts(self) -> bool {
        matches!(self, Self::Format | Self::Rebuild | Self::Unmount | Self::Freeze)
    }
}

/// Writer of checkpoints, used under the lock of the log.
pub(crate) struct Checkpointer {
    superblock: Arc<OpenSuperblock>,
    builder: Arc<BatchBuilder>,
    resolver: Arc<Resolver>,
    metadata: Arc<MetadataStore>,
    dirty: Arc<DirtyData>,
    log: Arc<LogWriter>,
    io: Arc<VolumeDevice>,
    health: Arc<Health>,
    counters: Arc<AtomicCounters>,
    wear: Arc<WearRecorder>,
}

/// Components that a checkpoint uses.
pub(crate) struct CheckpointerParts {
    pub(crate) superblock: Arc<OpenSuperblock>,
    pub(crate) builder: Arc<BatchBuilder>,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) metadata: Arc<MetadataStore>,
    pub(crate) dirty: Arc<DirtyData>,
    pub(crate) log: Arc<LogWriter>,
    pub(crate) io: Arc<VolumeDevice>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<AtomicCounters>,
    pub(crate) wear: Arc<WearRecorder>,
}

/// A consistent state of the tree that is about to be written.
struct Snapshot {
    record: CheckpointRecord,
    chunks: Vec<Arc<Chunk>>,
    /// Segments that this state does not refer to.
    drained: Vec<u32>,
}

impl Checkpointer {
    /// Returns a checkpointer of the volume that `parts` belong to.
    pub(crate) fn new(parts: CheckpointerParts) -> Self {
        let CheckpointerParts {
            superblock,
            builder,
            resolver,
            metadata,
            dirty,
            log,
            io,
            health,
            counters,
            wear,
        } = parts;
        Self { superblock, builder, resolver, metadata, dirty, log, io, health, counters, wear }
    }

    /// Makes all metadata durable, and returns the segments that became Clean. Dirty data stays
    /// dirty, except data ordered with the metadata.
    pub(crate) fn checkpoint(
        &self,
        log: &mut LogState,
        reason: CheckpointReason,
    ) -> std::result::Result<Vec<u32>, StepError> {
        Ok(self.checkpoint_record(log, reason)?.1)
    }

    /// Writes a checkpoint as [`Checkpointer::checkpoint`] does, and also returns its record.
    pub(crate) fn checkpoint_record(
        &self,
        log: &mut LogState,
        reason: CheckpointReason,
    ) -> std::result::Result<(CheckpointRecord, Vec<u32>), StepError> {
        // Writing may have ended while this thread waited for the log; a checkpoint must not refer to lost blocks.
        self.health.check_running()?;
        let mut ordered: Vec<CommitBatch> = Vec::new();
        let snapshot = match self.build(log, reason, &mut ordered) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                // The ordered batches have taken effect in memory, so the batches must reach the log, unless
                // writing has ended.
                if !self.health.has_stopped() {
                    self.write_batches(log, &ordered)?;
                }
                if let StepError::Failed(error) = &error {
                    self.health.note_blocked(error);
                }
                return Err(error);
            }
        };
        // After an error the copied nodes stay in memory for readers until the unmount, and
        // continue to count.
        self.write(log, &snapshot, &ordered)?;
        self.metadata.note_copied_nodes(0);
        log.checkpoint = snapshot.record.number;
        log.blocks_since_checkpoint = 0;
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        let mut metadata = self.metadata.write();
        metadata.usage.make_clean(&snapshot.drained);
        metadata.usage.unpin_after_checkpoint();
        Ok((snapshot.record, snapshot.drained))
    }

    /// Builds the ordered batches, which are added to `ordered`, and the snapshot after them.
    fn build(
        &self,
        log: &mut LogState,
        reason: CheckpointReason,
        ordered: &mut Vec<CommitBatch>,
    ) -> std::result::Result<Snapshot, StepError> {
        let mut failed = None;
        let _pin = self.metadata.pin_nodes();
        loop {
            let mut metadata = self.metadata.write();
            let step = self.build_ordered(log, &mut metadata).and_then(|batch| {
                ordered.extend(batch);
                self.snapshot(log, &mut metadata, (reason, ordered))
            });
            drop(metadata);
            match step {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) => self.resolver.resolve(error, &mut failed)?,
            }
        }
    }

    /// Writes the ordered batches, the nodes, and the record.
    fn write(
        &self,
        log: &mut LogState,
        snapshot: &Snapshot,
        ordered: &[CommitBatch],
    ) -> Result<()> {
        if mutated(Mutant::DiscardFirst) {
            let layout = &self.superblock.layout();
            snapshot.drained.iter().for_each(|at| self.io.discard_segments(layout, *at, 1));
        }
        if mutated(Mutant::RecordFirst) {
            self.write_record(&snapshot.record)?;
        }
        self.write_batches(log, ordered)?;
        self.log.write_chunks(log, &snapshot.chunks)?;
        if !mutated(Mutant::SkippedNodeFlush) {
            self.log.order(log)?;
        }
        if !mutated(Mutant::RecordFirst) {
            self.write_record(&snapshot.record)?;
        }
        Ok(())
    }

    fn write_batches(&self, log: &mut LogState, batches: &[CommitBatch]) -> Result<()> {
        batches.iter().try_for_each(|b| self.log.write_batch(log, &b.chunks, &b.in_place))
    }

    /// Builds a batch of the data that is ordered with metadata. Without such data a checkpoint needs no delta.
    fn build_ordered(
        &self,
        log: &mut LogState,
        metadata: &mut Metadata,
    ) -> std::result::Result<Option<CommitBatch>, BuildError> {
        if !self.dirty.has_ordered() {
            return Ok(None);
        }
        match self.builder.build(log, metadata, &CommitRequest::before_checkpoint()) {
            Ok(batch) => Ok(Some(batch)),
            // A checkpoint frees space on a volume that is too full even for this batch.
            Err(BuildError { reason: BuildErrorReason::Shortage(Shortage), .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives every dirty node its address, under the metadata lock.
    fn snapshot(
        &self,
        log: &mut LogState,
        metadata: &mut Metadata,
        (reason, ordered): (CheckpointReason, &[CommitBatch]),
    ) -> std::result::Result<Snapshot, BuildError> {
        let unused = unused_heads(log, metadata, reason);
        self.prepare_usage(log, metadata, unused.iter().map(|(_, at)| at.segment))?;
        let layout = &self.superblock.layout();
        let count = metadata.tree.dirty_count();
        if opened_segments(log, metadata, layout, count) > metadata.usage.clean_count() {
            return Err(Shortage.into());
        }
        // After the shortage check: a checkpoint that is not written leaves every head as it was.
        unused.iter().for_each(|(head, _)| log.heads.close(*head, &mut metadata.usage));
        let old: Vec<u64> = metadata.tree.old_addresses().collect();
        let mut batch = Batch::default();
        let addresses = batch.reserve(log, layout, &mut metadata.usage, Head::METADATA, count, &[]);
        for address in old {
            metadata.usage.remove_node(address, log.next_sequence);
        }
        for address in &addresses {
            metadata.usage.add_node(*address);
        }
        metadata.usage.settle_sealed(log.next_sequence);
        for item in metadata.usage.dirty_items().collect::<Vec<_>>() {
            let (first, value) = metadata.usage.encode_item(item);
            metadata.tree.put(&usage_key(first), &value)?;
        }
        metadata.usage.clear_dirty();
        metadata.clear_changes();
        metadata.checkpoint_nodes = count;
        assert_eq!(metadata.tree.dirty_count(), count, "the usage items had been made dirty");

        let number = log.checkpoint + 1 + u64::from(mutated(Mutant::SameSlot));
        let mut next = addresses.into_iter();
        let volume = self.superblock.volume();
        let out = metadata
            .tree
            .write_out(volume, number, || next.next().expect("as many addresses as dirty nodes"));
        self.metadata.note_copied_nodes(count);
        let append = |(pointer, memory): (NodePointer, BlockRef)| Append {
            entry: SummaryEntry::Node { checksum: pointer.checksum },
            memory,
        };
        let nodes = out.pointers.into_iter().zip(BlockRef::all_of(out.blocks));
        batch.fill(nodes.map(append).collect());
        let chunks = batch.finish(log, volume, metadata.usage.clock.now());
        if let CheckpointReason::Resizing { nonce } = reason {
            log.previous = crc32c::crc32c_append(log.previous, &nonce.to_le_bytes());
        }
        self.metadata.publish_sequence(log.next_sequence);
        self.io.announce(&chunks, &InPlaceWrites::default());
        let mut record = self.record(log, metadata, (number, out.root, out.level), reason);
        self.wear.complete(&mut record, pending(ordered, &chunks), log.blocks_since_checkpoint);
        Ok(Snapshot { record, chunks, drained: metadata.usage.all_drained() })
    }

    /// Puts the usage items that this checkpoint changes into the tree, so that their leaves are among the dirty nodes.
    /// The change makes more nodes dirty, which changes more entries. The loop ends because the table is finite.
    /// The checkpoint also seals the segments `sealed`.
    fn prepare_usage(
        &self,
        log: &LogState,
        metadata: &mut Metadata,
        sealed: impl Iterator<Item = u32>,
    ) -> std::result::Result<(), MetadataError> {
        let layout = &self.superblock.layout();
        sealed.for_each(|segment| metadata.usage.mark_dirty(segment));
        let mut prepared = BTreeSet::new();
        loop {
            let count = metadata.tree.dirty_count();
            let old: Vec<u64> = metadata.tree.old_addresses().collect();
            let opens = opened_segments(log, metadata, layout, count);
            let mut touched: Vec<u32> = metadata.usage.clean().take(opens).collect();
            touched.extend(old.iter().filter_map(|address| layout.segment_of(*address)));
            touched.extend(log.heads.get(Head::METADATA).map(|head| head.segment));
            for segment in touched {
                metadata.usage.mark_dirty(segment);
            }
            let items: Vec<u32> =
                metadata.usage.dirty_items().filter(|item| !prepared.contains(item)).collect();
            if items.is_empty() {
                return Ok(());
            }
            for item in items {
                let (first, value) = metadata.usage.encode_item(item);
                metadata.tree.put(&usage_key(first), &value)?;
                prepared.insert(item);
            }
        }
    }
}

/// Returns the bytes that are written before the record of a checkpoint: the `ordered` batches and the `nodes`.
fn pending(ordered: &[CommitBatch], nodes: &[Arc<Chunk>]) -> PendingBytes {
    let (mut blocks, mut metadata) = (0, 0);
    for chunk in ordered.iter().flat_map(|batch| &batch.chunks).chain(nodes) {
        let is_node = |append: &&Append| matches!(append.entry, SummaryEntry::Node { .. });
        blocks += chunk.block_count();
        metadata += chunk.summary.len() + chunk.appends.iter().filter(is_node).count();
    }
    blocks += ordered.iter().map(|batch| batch.in_place.blocks().len()).sum::<usize>();
    let bytes = |blocks: usize| (blocks * BLOCK_SIZE) as u64;
    let ledger = WearBytes { metadata: bytes(metadata), ..WearBytes::default() };
    PendingBytes { device: bytes(blocks), ledger }
}

/// Returns the number of segments that `count` nodes may open. The head of metadata is closed first if its segment is
/// withheld, and its room is lost.
fn opened_segments(log: &LogState, metadata: &Metadata, layout: &Layout, count: usize) -> usize {
    let head = log.heads.get(Head::METADATA);
    let is_closed = head.is_some_and(|at| metadata.usage.is_withheld(at.segment));
    Batch::opens(log, layout, Head::METADATA, count, 0) + usize::from(is_closed)
}

/// Returns the open heads that no block will go to: heads of unused groups, and those in withheld segments. A shortage
/// needs the room in every open segment.
fn unused_heads(
    log: &LogState,
    metadata: &Metadata,
    reason: CheckpointReason,
) -> Vec<(Head, HeadPosition)> {
    if reason.is_shortage() {
        return Vec::new();
    }
    let withheld = log.heads.iter().filter(|(_, at)| metadata.usage.is_withheld(at.segment));
    let unused = log.heads.unused(|group| metadata.grouping.is_in_use(group));
    let others = unused.filter(|(_, at)| !metadata.usage.is_withheld(at.segment));
    withheld.chain(others).collect()
}
