//! Opening a volume: the last checkpoint, the log since then, and the beginning of a new life.
//!
//! Owns: choosing a superblock and a checkpoint, and what a mount writes first.
//! Promises: what a durable batch says is there afterwards, and nothing that an earlier life has left
//! can be taken for what this one writes.
//! Never: writes before all has been understood.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};
use zerocopy::{FromZeros, IntoBytes};

use super::Volume;
use super::roll_forward::{Position, chain_of_mount};
use super::superblocks::Superblocks;
use crate::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, Corruption, CorruptionKind, ErrorKind, HEADS_MAX,
    Layout, SegmentState, Structure, Superblock, Timestamp, USAGE_PER_ITEM, UsageEntry, usage_key,
};
use crate::log::{FIRST_GROUP_HEAD, HeadPosition, Heads, Log};
use crate::meta::Meta;
use crate::mutant::{Mutant, mutated};
use crate::request::VolumeOptions;
use crate::segments::UsageTable;
use crate::tree::Tree;
use crate::{Error, Result};

impl Volume {
    /// Opens the volume on `device`: loads its last checkpoint and rolls the log forward. Unless it
    /// is read-only, a checkpoint of its own begins the volume's new life.
    pub fn open(device: Arc<dyn Device>, options: VolumeOptions, now: Timestamp) -> Result<Self> {
        let (volume, record, is_begun) = Self::restore(device, options, now)?;
        if !volume.options.read_only {
            volume.settle_down()?;
            if !mutated(Mutant::UpgradeLate) {
                volume.superblocks.lock().settle(&*volume.device)?;
            }
            volume.begin_life(record, is_begun)?;
            if mutated(Mutant::UpgradeLate) {
                volume.superblocks.lock().settle(&*volume.device)?;
            }
            volume.errors.begin();
        }
        Ok(volume)
    }

    /// The volume as its log says, the record of its last checkpoint, and whether the next had been
    /// begun. Nothing has been written.
    fn restore(
        device: Arc<dyn Device>,
        options: VolumeOptions,
        now: Timestamp,
    ) -> Result<(Self, CheckpointRecord, bool)> {
        let superblocks = Superblocks::read(&*device)?;
        let superblock = superblocks.current().clone();
        let (record, damage) = read_checkpoints(&*device, &superblock)?;
        let writes = !options.read_only;
        let unknown = superblock.write_incompatibility().filter(|_| writes);
        if let Some(reason) = unknown.or(record.extensions.incompatibility(writes)) {
            return Err(reason.into());
        }
        let layout = superblock.layout;
        let log = Log {
            heads: open_heads(&record, &layout)?,
            next_sequence: record.next_sequence,
            previous: record.previous,
            unflushed: false,
            flushed: record.next_sequence,
            blocks_since_checkpoint: 0,
            checkpoint: record.number,
            synced: 0,
            mount_count: record.mount_count + u64::from(!options.read_only),
            user_bytes_before: record.user_bytes_written,
            device_bytes_before: record.device_bytes_written,
            extensions: record.extensions.repeated(),
        };
        let tree = Tree::open(record.root(), record.root_level);
        let policies = super::policies(&options, &superblock)?;
        let usage = UsageTable::new(layout, superblock.tick_shift);
        let meta = Meta::new(tree, usage, record.next_ino, policies);
        let volume = Self::assemble(device, superblocks, options, log, meta);
        volume.clock.start(now);
        if volume.remembered().is_damaged {
            let slot = layout.slots[(record.number % 2) as usize];
            volume.note_error(ErrorKind::Volume, slot);
        }
        volume.load_usage(record.blocks_written)?;
        volume.meta.write().restore_policies(&record.policies);
        let is_begun = volume.roll_forward(damage)?;
        volume.find_places()?;
        volume.find_orphans()?;
        Ok((volume, record, is_begun))
    }

    /// What was read becomes durable, before anything is written over that only an older state
    /// needs: a daemon that was killed has left its last requests in the device's cache.
    fn settle_down(&self) -> Result<()> {
        let mut log = self.log.lock();
        log.unflushed = true;
        self.flush(&mut log)
    }

    /// What was rolled forward becomes part of a checkpoint, and the chain of chunks goes on from a
    /// number that no earlier mount has used: a chunk that a crash left behind, of a batch that is
    /// not whole say, cannot fit, even if this mount writes again what an earlier one had written.
    ///
    /// Before anything else the number of a checkpoint that was begun is used up by another copy of the
    /// `last` record. Both slots are whole then, whatever happens to the nodes of the next; and where
    /// one is not, the log leads to its nodes, or it is no crash that has damaged it.
    fn begin_life(&self, last: CheckpointRecord, is_begun: bool) -> Result<()> {
        let mut log = self.log.lock();
        self.close_heads(&mut log);
        if is_begun {
            log.checkpoint = last.number + 1;
            let extensions = last.extensions.repeated();
            let number = log.checkpoint;
            self.write_record(&CheckpointRecord { number, extensions, ..last })?;
        }
        let previous = log.previous;
        log.previous = chain_of_mount(previous, log.mount_count);
        match self.checkpoint(&mut log, false) {
            Err(Error::NoSpace) => {
                log.previous = previous;
                self.live_on(&mut log)
            }
            other => other,
        }
    }

    /// Goes on with the chain of the last checkpoint, as there is no room for one: the first commit will
    /// make it. Until then the chain leads past the nodes of the checkpoint that was begun; and chunks of
    /// a batch that is not whole are removed, or a mount might find them instead of what this one writes.
    fn live_on(&self, log: &mut Log) -> Result<()> {
        if let Some((nodes, end)) = self.next_batch(Position::end_of(log))? {
            self.go_on(log, &nodes, end)?;
        }
        while let Some(chunk) = self.next_chunk(&mut Position::end_of(log))? {
            let nothing = [Block::new_zeroed()];
            self.device.write(chunk.header.address, &[&nothing], Stream::default())?;
            self.device.flush()?;
        }
        Ok(())
    }

    /// Seals what groups have open that the grouping policy of this mount does not have.
    fn close_heads(&self, log: &mut Log) {
        let mut meta = self.meta.write();
        let first = FIRST_GROUP_HEAD + meta.grouping.group_count();
        for head in first..HEADS_MAX as u8 {
            log.heads.close(head, &mut meta.usage);
        }
    }

    fn load_usage(&self, blocks_written: u64) -> Result<()> {
        let layout = self.superblock.layout;
        let mut entries = Vec::with_capacity(layout.segment_count as usize);
        while entries.len() < layout.segment_count as usize {
            let first = entries.len() as u32;
            let key = usage_key(first);
            let item = self.consult(|txn| {
                let missing = Corruption::in_usage_entry(first, CorruptionKind::Dangling);
                let value = txn.get(&key)?.ok_or(missing)?;
                Ok(UsageEntry::decode_item(value, first)?)
            })?;
            let expected = USAGE_PER_ITEM.min(layout.segment_count - first) as usize;
            if item.len() != expected {
                let kind = CorruptionKind::Length;
                return Err(Corruption::in_usage_entry(first, kind).into());
            }
            entries.extend(item);
        }
        UsageTable::check(&layout, &entries)?;
        let wrong = |segment: u32| Corruption::in_usage_entry(segment, CorruptionKind::Value);
        for (_, head) in self.log.lock().heads.iter() {
            let UsageEntry { state, live_blocks, .. } = entries[head.segment as usize];
            if state != SegmentState::Open || live_blocks > head.next_block {
                return Err(wrong(head.segment).into());
            }
        }
        self.meta.write().usage =
            UsageTable::from_entries(layout, entries, self.superblock.tick_shift, blocks_written);
        Ok(())
    }
}

/// The newest checkpoint that is sound, and what is wrong with the other slot.
pub(super) fn read_checkpoints(
    device: &dyn Device,
    superblock: &Superblock,
) -> Result<(CheckpointRecord, Option<Error>)> {
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
            let first = (a.number > b.number) != mutated(Mutant::OldCheckpoint);
            Ok((if first { a } else { b }, None))
        }
        (Ok(record), Err(damage)) | (Err(damage), Ok(record)) => Ok((record, Some(damage))),
        (Err(damage), Err(_)) => Err(damage),
    }
}

/// The heads of a checkpoint.
fn open_heads(record: &CheckpointRecord, layout: &Layout) -> Result<Heads> {
    let wrong = Corruption::in_block(
        Structure::Checkpoint,
        layout.slots[(record.number % 2) as usize],
        CorruptionKind::Value,
    );
    let mut heads = Heads::default();
    for head in &record.heads {
        let sound = usize::from(head.head) < HEADS_MAX
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

    use super::super::rig::{BLOCKS, NOW, create, new_volume, write};
    use super::*;
    use crate::format::ROOT_INO;

    /// As a mount that has no room for a checkpoint of its own.
    fn open_without_room(device: Arc<dyn Device>) -> Volume {
        let (volume, _, _) =
            Volume::restore(device, VolumeOptions::default(), NOW).expect("it opens");
        volume.settle_down().expect("a flush");
        volume.live_on(&mut volume.log.lock()).expect("it goes on");
        volume
    }

    /// Two mounts in a row have no room, and go on from the same chunk. The first leaves one of several
    /// chunks of a batch, at a head that is asked before the one where the second writes: what the
    /// second had synced was not found.
    #[test]
    fn what_a_life_without_a_checkpoint_has_left_does_not_hide_the_next() {
        let device = Arc::new(RecordingDevice::new(RamDevice::new(BLOCKS), Keep::Contents));
        let volume = new_volume(device.clone());
        let file = create(&volume, "file");
        write(&volume, file, &[1; 4096]);
        volume.close().expect("it closes");

        let base = device.inner().snapshot();
        device.take_events();
        let volume = open_without_room(device.clone());
        for no in 0..1000 {
            create(&volume, &format!("{no:0250}"));
        }
        volume.sync_all().expect("a sync");
        let events = device.take_events();
        let mut writes =
            events.iter().enumerate().filter(|(_, e)| matches!(e, Event::Write { .. }));
        let (first, _) = writes.next().expect("a chunk");
        assert!(writes.next().is_some(), "the batch has more than one");

        let image = Arc::new(image_after(&base, &events[..=first]));
        let volume = open_without_room(image.clone());
        assert!(volume.lookup(ROOT_INO, format!("{:0250}", 0).as_bytes()).is_err());
        write(&volume, file, &[2; 4096]);
        volume.sync_all().expect("a sync");
        drop(volume);
        let volume = Volume::open(image, VolumeOptions::default(), NOW).expect("it opens");
        assert_eq!(volume.read(file, 0, 1).expect("it reads").as_bytes(), [2]);
    }
}
