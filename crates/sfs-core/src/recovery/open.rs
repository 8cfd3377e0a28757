//! Opening a volume: the newest checkpoint, the log since then, and the checkpoint that begins a mount.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};
use zerocopy::{FromZeros, IntoBytes};

use super::components::{Components, policies};
use super::roll_forward::{LogCursor, chain_of_mount};
use crate::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, Corruption, CorruptionKind, ErrorKind, FileCount,
    HEADS_MAX, Layout, LogEra, ReservationTotals, SegmentState, Structure, Superblock,
    TableSegments, Timestamp, USAGE_PER_ITEM, UsageEntry, usage_key,
};
use crate::health::SuperblockCopies;
use crate::log::{HeadPosition, Heads, LogState};
use crate::metadata::Metadata;
use crate::mutant::{Mutant, mutated};
use crate::request::{OpenProgress, VolumeOptions};
use crate::segments::UsageTable;
use crate::tree::Tree;
use crate::writeback::{CheckpointReason, Shortage, StepError};
use crate::{Error, Result};

/// A volume that was recovered in memory, without a write to the device.
pub(crate) struct Recovery {
    pub(crate) components: Components,
    /// Record of the newest checkpoint.
    pub(crate) record: CheckpointRecord,
    /// `true` if a later checkpoint had been begun.
    pub(crate) next_is_begun: bool,
}

/// Returns the superblock of the volume on `device`, without looking at anything else.
///
/// # Errors
///
/// Those of opening a volume.
pub fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    Ok(SuperblockCopies::read(device)?.current().clone())
}

/// Opens the volume on `device`: loads its newest checkpoint and rolls the log forward. A writable mount then
/// begins with a checkpoint of its own.
pub(crate) fn open(
    device: Arc<dyn Device>,
    options: VolumeOptions,
    now: Timestamp,
    progress: &mut dyn FnMut(OpenProgress),
) -> Result<Opened> {
    let mut recovery = Recovery::read(device, options, now, progress)?;
    if recovery.components.options.read_only {
        let components = recovery.components.clone();
        return Ok(Opened { components, unwritten: Some(recovery) });
    }
    recovery.components.released = recovery.begin_mount()?;
    Ok(Opened { components: recovery.components, unwritten: None })
}

/// Opens the volume on `device` as [`open`] does, and leaves out the writes that begin a mount: the volume is read-only until
/// [`Recovery::begin_writing`].
pub(crate) fn open_to_write_later(
    device: Arc<dyn Device>,
    options: VolumeOptions,
    now: Timestamp,
    progress: &mut dyn FnMut(OpenProgress),
) -> Result<Opened> {
    let recovery = Recovery::read(device, options, now, progress)?;
    let components = recovery.components.clone();
    components.health.wait_to_write();
    Ok(Opened { components, unwritten: Some(recovery) })
}

/// An open volume.
pub(crate) struct Opened {
    pub(crate) components: Components,
    /// The recovery of a volume to which nothing was written yet.
    pub(crate) unwritten: Option<Recovery>,
}

impl Recovery {
    /// Recovers the volume in memory.
    pub(crate) fn read(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        now: Timestamp,
        progress: &mut dyn FnMut(OpenProgress),
    ) -> Result<Self> {
        let copies = SuperblockCopies::read(&*device)?;
        let superblock = copies.current().clone();
        let FoundCheckpoint { record, damage, is_next_begun } =
            read_checkpoints(&*device, &superblock)?;
        let writes = !options.read_only;
        let skips_recovery = options.skip_recovery && options.read_only;
        let unknown = superblock.write_incompatibility().filter(|_| writes);
        if let Some(reason) = unknown.or(record.extensions.incompatibility(writes)) {
            return Err(reason.into());
        }
        let layout = superblock.layout;
        let log = LogState {
            heads: open_heads(&record, &layout)?,
            next_sequence: record.next_sequence,
            previous: record.previous,
            unflushed: false,
            flushed: record.next_sequence,
            blocks_since_checkpoint: 0,
            checkpoint: record.number,
            mount_count: record.mount_count + u64::from(writes),
            era: LogEra::UNKNOWN,
            user_bytes_before: record.user_bytes_written,
            extensions: record.extensions.repeated(),
        };
        let tree = Tree::open(record.root(), record.root_level);
        let policies = policies(&options, superblock.data_layout, &layout)?;
        // The entries are loaded below; a second table of a large volume would take as much memory again.
        let usage = UsageTable::from_entries(layout, Vec::new(), superblock.tick_shift, 0);
        let mut metadata = Metadata::new(tree, usage, record.next_ino, policies);
        metadata.set_file_count(FileCount::of(&record.extensions));
        metadata.set_reserved(reserved_totals(&record, &layout)?);
        let components =
            Components::new(device, copies, options, (log, record.device_bytes_written), metadata);
        components.health.set_time(now);
        components.wear.set_time(now);
        if components.health.remembered().is_damaged || components.wear.is_damaged() {
            let slot = layout.slots[(record.number % 2) as usize];
            components.health.note_error(ErrorKind::Volume, slot);
        }
        components.load_usage(&record)?;
        components.metadata.write().restore_policies(&record.policies);
        // A resize writes its checkpoint to both slots: a crash may have torn the second one.
        let is_of_resize = TableSegments::is_in(&record.extensions);
        let next_is_begun = match skips_recovery {
            true => false,
            false => components.roll_forward(damage, is_of_resize)? || is_next_begun,
        };
        if writes {
            components.find_in_place_blocks(progress)?;
        }
        components.orphans.find_all()?;
        Ok(Self { components, record, next_is_begun })
    }

    /// Begins a mount for writing with a checkpoint; returns the segments that it has released.
    fn begin_mount(&self) -> Result<Vec<u32>> {
        self.flush_recovered()?;
        let epoch = self.components.options.epoch;
        let settle = || self.components.superblocks.settle_for_writing(epoch);
        let is_late = mutated(Mutant::UpgradeLate) || mutated(Mutant::EpochLate);
        if !is_late {
            settle()?;
        }
        let released = self.write_mount_checkpoint()?;
        if is_late {
            settle()?;
        }
        self.components.health.begin_recording();
        Ok(released)
    }

    /// Begins writing to a volume that was opened for reading. See [`Volume::begin_writing`](crate::Volume::begin_writing).
    pub(crate) fn begin_writing(
        &mut self,
        progress: &mut dyn FnMut(OpenProgress),
    ) -> Result<Vec<u32>> {
        let Components { superblock, health, log, .. } = &self.components;
        let unknown = superblock.opened().write_incompatibility();
        if let Some(reason) = unknown.or(self.record.extensions.incompatibility(true)) {
            return Err(reason.into());
        }
        log.lock().mount_count = self.record.mount_count + 1;
        if self.components.options.read_only {
            self.components.find_in_place_blocks(progress)?;
        }
        let released = self.begin_mount()?;
        // Only now: a change before the checkpoint would continue the chain of the last mount.
        health.begin_writing();
        Ok(released)
    }

    /// Makes everything durable that was read, before anything is overwritten that only an older
    /// state needs: a daemon that was killed may have left its last requests in the cache of the
    /// device.
    pub(crate) fn flush_recovered(&self) -> Result<()> {
        let mut log = self.components.log.lock();
        log.unflushed = true;
        self.components.log.order(&mut log)
    }

    /// Writes a checkpoint of the recovered state. The chain of chunks continues from a number that
    /// no earlier mount has used: a chunk that a crash left behind cannot fit the chain, even if
    /// this mount writes the same batch again.
    ///
    /// First, the number of a checkpoint that had been begun is used up by another copy of the last record. Then
    /// both slots are whole before the nodes of the next checkpoint are written. A later mount that finds a damaged
    /// slot knows: either the log leads to the nodes of its checkpoint, or no crash has caused the damage.
    fn write_mount_checkpoint(&self) -> Result<Vec<u32>> {
        let Components { log, checkpointer, .. } = &self.components;
        let mut log = log.lock();
        log.begin_era();
        if self.next_is_begun {
            log.checkpoint = self.record.number + 1;
            let extensions = self.record.extensions.repeated();
            let number = log.checkpoint;
            checkpointer.write_record(&CheckpointRecord {
                number,
                extensions,
                ..self.record.clone()
            })?;
        }
        let previous = log.previous;
        log.previous = chain_of_mount(previous, log.mount_count);
        let given_back = self.components.metadata.write().usage.give_back(log.next_sequence);
        match checkpointer.checkpoint(&mut log, CheckpointReason::Mount) {
            Ok(released) => Ok(released),
            Err(StepError::Shortage(Shortage)) => {
                log.previous = previous;
                self.components.metadata.write().usage.keep_back(&given_back);
                self.continue_without_checkpoint(&mut log)?;
                Ok(Vec::new())
            }
            Err(StepError::Failed(error)) => Err(error),
        }
    }

    /// Continues the chain of the last checkpoint, when no segment is Clean for another checkpoint:
    /// the first commit makes segments Clean. Until then the chain leads past the nodes of a
    /// checkpoint that had been begun. Chunks of an incomplete batch are overwritten: a later mount
    /// might find them in place of chunks of this mount.
    pub(crate) fn continue_without_checkpoint(&self, log: &mut LogState) -> Result<()> {
        let Components { io, .. } = &self.components;
        if let Some((nodes, end)) = self.components.next_batch(LogCursor::end_of(log))? {
            self.components.apply(log, &nodes, end)?;
        }
        while let Some(chunk) = self.components.next_chunk(&mut LogCursor::end_of(log))? {
            io.write_block(chunk.header.address, &Block::new_zeroed(), Stream::default())?;
            io.order()?;
        }
        log.begin_era();
        Ok(())
    }
}

impl Components {
    /// Loads the usage table from the tree, and checks it against the heads.
    fn load_usage(&self, record: &CheckpointRecord) -> Result<()> {
        let layout = self.superblock.layout();
        let slot = layout.slots[(record.number % 2) as usize];
        let wrong = Corruption::in_block(Structure::Checkpoint, slot, CorruptionKind::Value);
        let table = TableSegments::of(&record.extensions, layout.segment_count).ok_or(wrong)?.0;
        let mut entries = Vec::with_capacity(layout.segment_count as usize);
        while entries.len() < table as usize {
            let first = entries.len() as u32;
            let key = usage_key(first);
            let item = self.metadata.read_txn(|txn| {
                let missing = Corruption::in_usage_entry(first, CorruptionKind::Dangling);
                let value = txn.get(&key)?.ok_or(missing)?;
                Ok(UsageEntry::decode_item(value, first)?)
            })?;
            let expected = USAGE_PER_ITEM.min(table - first) as usize;
            if item.len() != expected {
                let kind = CorruptionKind::Length;
                return Err(Corruption::in_usage_entry(first, kind).into());
            }
            entries.extend(item);
        }
        // A crash has interrupted a growth: the table lacks the segments behind the former end. It lacks those that a
        // shrink was to drop only if the checkpoint before is damaged.
        entries.resize(layout.segment_count as usize, UsageEntry::NEW);
        UsageTable::check(&layout, &entries)?;
        let wrong = |segment: u32| Corruption::in_usage_entry(segment, CorruptionKind::Value);
        for (_, head) in self.log.lock().heads.iter() {
            let UsageEntry { state, live_blocks, .. } = entries[head.segment as usize];
            if state != SegmentState::Open || live_blocks > head.next_block {
                return Err(wrong(head.segment).into());
            }
        }
        let tick_shift = self.superblock.opened().tick_shift;
        let mut usage =
            UsageTable::from_entries(layout, entries, tick_shift, record.blocks_written);
        if table < layout.segment_count {
            usage.mark_items_from((table - 1) / USAGE_PER_ITEM);
        }
        self.metadata.write().set_usage(usage);
        Ok(())
    }
}

/// The checkpoint that counts.
pub(crate) struct FoundCheckpoint {
    pub(crate) record: CheckpointRecord,
    /// Damage of the other slot.
    pub(crate) damage: Option<Error>,
    /// `true` if the other slot holds the next checkpoint, of a shrink that a crash has interrupted.
    pub(crate) is_next_begun: bool,
}

/// Returns the newest sound checkpoint, or the one before if a shrink has written the newest one and the superblock still
/// has the old size.
pub(crate) fn read_checkpoints(
    device: &dyn Device,
    superblock: &Superblock,
) -> Result<FoundCheckpoint> {
    let mut blocks = Block::new_vec_zeroed(CHECKPOINT_SLOT_BLOCKS as usize).expect("memory");
    let mut read = |slot: u64, at: u64| -> Result<CheckpointRecord> {
        device.read(at, &mut blocks)?;
        let record = CheckpointRecord::decode(blocks.as_bytes(), superblock.volume(), at)?;
        if record.number % 2 == slot {
            return Ok(record);
        }
        Err(Corruption::in_block(Structure::Checkpoint, at, CorruptionKind::Value).into())
    };
    let [a, b] = superblock.layout.slots;
    match (read(0, a), read(1, b)) {
        (Ok(a), Ok(b)) => {
            let (older, newer) = if a.number > b.number { (b, a) } else { (a, b) };
            let segments = superblock.layout.segment_count;
            let is_next_begun = TableSegments::is_interrupted_shrink(&older, &newer, segments)
                && !mutated(Mutant::ShrinkForgets);
            let takes_older = is_next_begun != mutated(Mutant::OldCheckpoint);
            let record = if takes_older { older } else { newer };
            Ok(FoundCheckpoint { record, damage: None, is_next_begun })
        }
        (Ok(record), Err(damage)) | (Err(damage), Ok(record)) => {
            Ok(FoundCheckpoint { record, damage: Some(damage), is_next_begun: false })
        }
        (Err(damage), Err(_)) => Err(damage),
    }
}

/// Returns the totals of the reservations in a checkpoint.
fn reserved_totals(record: &CheckpointRecord, layout: &Layout) -> Result<ReservationTotals> {
    let at = layout.slots[(record.number % 2) as usize];
    let wrong = Corruption::in_block(Structure::Checkpoint, at, CorruptionKind::Value);
    let totals = ReservationTotals::of(&record.extensions).ok_or(wrong)?;
    let is_forgotten = mutated(Mutant::ReservationForgotten);
    Ok(if is_forgotten { ReservationTotals::default() } else { totals })
}

/// Returns the heads of a checkpoint.
fn open_heads(record: &CheckpointRecord, layout: &Layout) -> Result<Heads> {
    let wrong = Corruption::in_block(
        Structure::Checkpoint,
        layout.slots[(record.number % 2) as usize],
        CorruptionKind::Value,
    );
    let mut heads = Heads::default();
    for head in &record.heads {
        let sound = head.head.index() < HEADS_MAX
            && head.segment < layout.segment_count
            && head.next_block <= layout.segment_blocks
            && heads.get(head.head).is_none()
            && heads.iter().all(|(_, other)| other.segment != head.segment);
        if !sound {
            return Err(wrong.into());
        }
        heads.set(head.head, HeadPosition { segment: head.segment, next_block: head.next_block });
    }
    if !record.has_sound_counts() {
        return Err(wrong.into());
    }
    Ok(heads)
}

#[cfg(test)]
mod tests {
    use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

    use super::*;
    use crate::Volume;
    use crate::fixture::{BLOCKS, NOW, create, new_volume, write};
    use crate::format::ROOT_INO;

    /// Opens a volume as if no segment were Clean for a checkpoint.
    fn open_without_checkpoint(device: Arc<dyn Device>) -> Volume {
        let options = VolumeOptions::default();
        let recovery =
            Recovery::read(device, options, NOW, &mut |_| {}).expect("the volume is read");
        recovery.flush_recovered().expect("a flush");
        let log = recovery.components.log.clone();
        recovery.continue_without_checkpoint(&mut log.lock()).expect("the mount continues");
        Volume::from_components(recovery.components)
    }

    /// Two mounts in a row have no space for a checkpoint and continue from the same chunk. The first mount
    /// leaves one of several chunks of a batch, at a head that is read before the head of the second mount:
    /// data that the second mount had synced was not found.
    #[test]
    fn chunks_of_a_mount_without_checkpoint_do_not_hide_those_of_the_next() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        let volume = new_volume(device.clone());
        let file = create(&volume, "file");
        write(&volume, file, &[1; 4096]);
        volume.close().expect("the volume closes");

        let base = device.inner().snapshot();
        device.take_events();
        let volume = open_without_checkpoint(device.clone());
        for no in 0..1000 {
            create(&volume, &format!("{no:0250}"));
        }
        volume.sync_all().expect("a sync");
        let events = device.take_events();
        let mut writes =
            events.iter().enumerate().filter(|(_, e)| matches!(e, Event::Write { .. }));
        let (first, _) = writes.next().expect("a chunk");
        assert!(writes.next().is_some(), "the batch has more than one chunk");

        let image = Arc::new(image_after(&base, &events[..=first]));
        let volume = open_without_checkpoint(image.clone());
        assert!(volume.lookup(ROOT_INO, format!("{:0250}", 0).as_bytes()).is_err());
        write(&volume, file, &[2; 4096]);
        volume.sync_all().expect("a sync");
        drop(volume);
        let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("the volume opens");
        assert_eq!(volume.read(file, 0, 1).expect("the file reads").as_bytes(), [2]);
    }
}
