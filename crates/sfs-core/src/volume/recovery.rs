//! Opening a volume: the last checkpoint, and the log since then.
//!
//! Owns: choosing a superblock and a checkpoint, and roll-forward.
//! Promises: what a durable batch says is there afterwards; what comes after the first chunk that
//! is not whole is as if it had never been. Memory is bounded by the caches and one batch.
//! Never: writes before all has been understood.

use std::sync::Arc;

use sfs_device::{Block, Device, Stream};
use zerocopy::{FromZeros, IntoBytes};

use super::Volume;
use super::scan::ROOM_MIN;
use crate::format::{
    CHECKPOINT_SLOT_BLOCKS, COUNT_MAX, Change, CheckpointRecord, ChunkSummary, Corruption,
    CorruptionKind, FIRST_INO, FORMAT_VERSION, HEADS_MAX, ItemKind, Key, Layout, Mapping,
    MappingRun, RUN_BLOCKS, SUPERBLOCK_ADDRESS, SegmentState, Structure, SummaryEntry, Superblock,
    Timestamp, USAGE_PER_ITEM, UsageEntry, run_key, usage_key,
};
use crate::log::{FIRST_GROUP_HEAD, Head, Heads, Log};
use crate::meta::{Fault, Meta};
use crate::mutant::{Mutant, mutated};
use crate::request::Options;
use crate::tree::{Missing, Tree};
use crate::usage::UsageTable;
use crate::{Error, Result};

/// No commit says more than this, in bytes: changes are written out long before.
const DELTA_LEN_MAX: usize = 256 << 20;

impl Volume {
    /// Opens the volume on `device`: loads its last checkpoint and rolls the log forward. Unless it
    /// is read-only, a checkpoint of its own begins the volume's new life.
    pub fn open(device: Arc<dyn Device>, options: Options, now: Timestamp) -> Result<Self> {
        let superblock = read_superblock(&*device)?;
        let (record, damage) = read_checkpoints(&*device, &superblock)?;
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
        };
        let tree = Tree::open(record.root(), record.root_level);
        let policies = super::policies(&options, &layout)?;
        let meta = Meta::new(tree, UsageTable::new(layout), record.next_ino, policies);
        let volume = Self::assemble(device, superblock, options, log, meta);
        volume.clock.start(now);
        volume.load_usage(record.blocks_written)?;
        volume.meta.write().restore_policies(&record.policies);
        let is_begun = volume.roll_forward(damage)?;
        volume.find_orphans()?;
        if !volume.options.read_only {
            volume.settle_down()?;
            volume.begin_life(record, is_begun)?;
        }
        Ok(volume)
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
            self.write_record(&CheckpointRecord { number: log.checkpoint, ..last })?;
        }
        let previous = log.previous;
        log.previous = chain_of_mount(previous, log.mount_count);
        match self.checkpoint(&mut log, false) {
            Err(Error::NoSpace) => {
                // Nothing was written; the first commit will make room. Until then the chain goes on
                // from the last checkpoint, and past the nodes of the one that was begun.
                log.previous = previous;
                if let Some((nodes, next)) = self.next_batch(Position::end_of(&log))? {
                    self.go_on(&mut log, &nodes, next)?;
                }
                self.cut_off(&log)
            }
            other => other,
        }
    }

    /// Removes chunks of a batch that is not whole and would come next: of two lives that have gone on from
    /// the same chunk, only the later may be found.
    fn cut_off(&self, log: &Log) -> Result<()> {
        while let Some(chunk) = self.next_chunk(&mut Position::end_of(log))? {
            let nothing = [Block::new_zeroed()];
            self.device.write(chunk.header.address, &[&nothing], Stream::default())?;
            self.device.flush()?;
        }
        Ok(())
    }

    /// Seals what groups have open that the placement policy of this mount does not have.
    fn close_heads(&self, log: &mut Log) {
        let mut meta = self.meta.write();
        let first = FIRST_GROUP_HEAD + meta.placement.group_count();
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
                let missing =
                    Corruption::new(Structure::Usage, first.into(), CorruptionKind::Dangling);
                let value = txn.get(&key)?.ok_or(missing)?;
                Ok(UsageEntry::decode_item(value, first)?)
            })?;
            let expected = USAGE_PER_ITEM.min(layout.segment_count - first) as usize;
            if item.len() != expected {
                let kind = CorruptionKind::Length;
                return Err(Corruption::new(Structure::Usage, first.into(), kind).into());
            }
            entries.extend(item);
        }
        UsageTable::check(&layout, &entries)?;
        let wrong =
            |segment: u32| Corruption::new(Structure::Usage, segment.into(), CorruptionKind::Value);
        for (_, head) in self.log.lock().heads.iter() {
            if entries[head.segment as usize].state != SegmentState::Open {
                return Err(wrong(head.segment).into());
            }
        }
        self.meta.write().usage = UsageTable::from_entries(layout, entries, blocks_written);
        Ok(())
    }

    /// Applies the batches since the checkpoint, but for nodes at the end, whose checkpoint never was
    /// durable: their place is free, or the next checkpoint might have none. `damage` to the other slot
    /// is what a crash has left of a checkpoint, unless that was durable: what it alone said is missing
    /// then. Says whether the next checkpoint had been begun.
    fn roll_forward(&self, damage: Option<Error>) -> Result<bool> {
        let mut log = self.log.lock();
        let mount = log.mount_count + u64::from(self.options.read_only);
        let (first, number) = (log.next_sequence, log.checkpoint + 1);
        let (mut is_begun, mut is_lost) = (false, false);
        loop {
            let position = Position::end_of(&log);
            if damage.is_some() {
                for position in [position.clone(), position.clone().begun(mount)] {
                    let Some(end) = self.nodes_of(number, position)? else { continue };
                    is_begun = true;
                    is_lost |= self.is_followed(&end)?;
                }
            }
            if is_lost {
                break;
            }
            let Some((batch, next)) = self.next_batch(position)? else { break };
            if let Some(of) = self.checkpoint_of(&batch[0])? {
                is_begun |= of == number;
                if self.next_batch(next.clone())?.is_none() {
                    break;
                }
            }
            self.go_on(&mut log, &batch, next)?;
        }
        // No crash damages a slot to whose nodes the log does not lead.
        if damage.is_some() && !is_begun {
            let nodes = self.first_nodes_of(number, first)?;
            is_lost = nodes.is_some_and(|nodes| nodes > log.next_sequence);
        }
        match damage {
            Some(damage) if is_lost => Err(damage),
            damage => Ok(is_begun || damage.is_some()),
        }
    }

    /// Applies the batch that ends at `next`.
    fn go_on(&self, log: &mut Log, batch: &[ChunkSummary], next: Position) -> Result<()> {
        for (segment, head) in next.opened {
            self.open_found(log, head, segment)?;
        }
        let first = log.next_sequence;
        log.heads = next.heads;
        log.next_sequence = next.sequence;
        log.previous = next.previous;
        self.next_sequence.store(next.sequence, std::sync::atomic::Ordering::Relaxed);
        log.blocks_since_checkpoint += batch.iter().map(ChunkSummary::block_count).sum::<u64>();
        self.apply_batch(batch, first)
    }

    /// Whether a chunk follows at `end`, where the nodes of a checkpoint end: it is only written when that is
    /// durable, and may be in a segment that is Clean since then.
    fn is_followed(&self, end: &Position) -> Result<bool> {
        let layout = &self.superblock.layout;
        let heads = end.heads.iter().map(|(_, head)| (head.segment, head.next_block));
        for (segment, block) in heads.chain((0..layout.segment_count).map(|segment| (segment, 0))) {
            let room = layout.segment_blocks - block;
            let address = layout.segment_address(segment) + u64::from(block);
            if room >= ROOM_MIN
                && let Some(chunk) = self.read_summary(address, room)?
                && chunk.header.sequence == end.sequence
                && chunk.header.previous == end.previous
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where the nodes of checkpoint `number` end, if they come next.
    fn nodes_of(&self, number: u64, position: Position) -> Result<Option<Position>> {
        let Some((batch, end)) = self.next_batch(position)? else { return Ok(None) };
        Ok((self.checkpoint_of(&batch[0])? == Some(number)).then_some(end))
    }

    /// The lowest number, from `first` on, of a chunk with nodes of checkpoint `number`, in any segment.
    fn first_nodes_of(&self, number: u64, first: u64) -> Result<Option<u64>> {
        let mut lowest = None;
        for segment in 0..self.superblock.layout.segment_count {
            for chunk in self.segment_chunks(segment) {
                let chunk = chunk?;
                let sequence = chunk.header.sequence;
                let is_lower = sequence >= first && lowest.is_none_or(|lowest| sequence < lowest);
                if is_lower && self.checkpoint_of(&chunk)? == Some(number) {
                    lowest = Some(sequence);
                }
            }
        }
        Ok(lowest)
    }

    /// `head` was found to have gone on in `segment`, the next that was Clean.
    fn open_found(&self, log: &mut Log, head: u8, segment: u32) -> Result<()> {
        let mut meta = self.meta.write();
        let opened = meta.usage.open(head, log.next_sequence);
        assert_eq!(opened, Some(segment), "the search follows the order of allocation");
        log.heads.switch(head, segment, &mut meta.usage);
        Ok(())
    }

    /// The next whole batch of the log, and where it ends.
    fn next_batch(&self, mut position: Position) -> Result<Option<(Vec<ChunkSummary>, Position)>> {
        let mut batch = Vec::new();
        let mut delta_len = 0;

        while let Some(chunk) = self.next_chunk(&mut position)? {
            delta_len += chunk.delta.len();
            let end = chunk.header.end || mutated(Mutant::EndIgnored);
            batch.push(chunk);
            if end {
                return Ok(Some((batch, position)));
            }
            if delta_len > DELTA_LEN_MAX {
                let at = position.sequence;
                return Err(Corruption::new(Structure::Delta, at, CorruptionKind::Length).into());
            }
        }
        Ok(None)
    }

    /// The chunk with the next sequence number, wherever a head may have put it.
    fn next_chunk(&self, position: &mut Position) -> Result<Option<ChunkSummary>> {
        let layout = &self.superblock.layout;
        for (no, head) in position.heads.clone().iter() {
            let room = layout.segment_blocks - head.next_block;
            if room < ROOM_MIN {
                continue;
            }
            let address = layout.segment_address(head.segment) + u64::from(head.next_block);
            if let Some(chunk) = self.expected_chunk(address, room, position)?
                && chunk.header.head == no
            {
                position.take(no, &chunk, layout);
                return Ok(Some(chunk));
            }
        }
        let skip = position.opened.len();
        let Some(segment) = self.meta.read().usage.clean().nth(skip) else { return Ok(None) };
        let address = layout.segment_address(segment);
        match self.expected_chunk(address, layout.segment_blocks, position)? {
            Some(chunk) if usize::from(chunk.header.head) < HEADS_MAX => {
                let head = chunk.header.head;
                position.opened.push((segment, head));
                position.heads.set(head, Head { segment, next_block: 0 });
                position.take(head, &chunk, layout);
                Ok(Some(chunk))
            }
            _ => Ok(None),
        }
    }

    /// The chunk at `address` if it is whole and the one that comes next.
    fn expected_chunk(
        &self,
        address: u64,
        room: u32,
        position: &Position,
    ) -> Result<Option<ChunkSummary>> {
        let Some(chunk) = self.read_summary(address, room)? else { return Ok(None) };
        let next = chunk.header.sequence == position.sequence
            && (chunk.header.previous == position.previous || mutated(Mutant::ChainIgnored));
        Ok(if next && self.is_whole(&chunk)? { Some(chunk) } else { None })
    }

    /// Does in memory what a batch says whose first chunk is number `sequence`.
    fn apply_batch(&self, batch: &[ChunkSummary], sequence: u64) -> Result<()> {
        let at = batch.first().map_or(0, |chunk| chunk.header.address);
        let delta: Vec<u8> = batch.iter().flat_map(|chunk| chunk.delta.iter().copied()).collect();
        let changes = Change::decode_all(&delta, at)?;
        for change in &changes {
            if let Change::Unmap { ino, first, last } = *change {
                self.unmap(ino, first, last, sequence)?;
            }
        }
        let mut released = Vec::new();
        for change in changes {
            match change {
                Change::Release { segment, stamp } => released.push((segment, stamp)),
                change => self.apply_change(change, at)?,
            }
        }
        for chunk in batch {
            self.meta.write().usage.clock.catch_up(chunk.header.time);
            self.apply_mappings(chunk, sequence)?;
        }
        let usage = &mut self.meta.write().usage;
        usage.settle(sequence);
        match released.iter().all(|(segment, stamp)| usage.release_found(*segment, *stamp)) {
            true => Ok(()),
            false => Err(Corruption::new(Structure::Delta, at, CorruptionKind::Value).into()),
        }
    }

    fn apply_change(&self, change: Change, at: u64) -> Result<()> {
        let (key, value) = match change {
            Change::Unmap { .. } | Change::Release { .. } => return Ok(()),
            Change::NextIno(next) if next >= COUNT_MAX => {
                return Err(Corruption::new(Structure::Delta, at, CorruptionKind::Value).into());
            }
            Change::NextIno(next) => {
                let mut meta = self.meta.write();
                meta.restore_next_ino(next);
                return Ok(());
            }
            Change::Put { key, value } => (Key::decode(&key), Some(value)),
            Change::Delete { key } => (Key::decode(&key), None),
        };
        let wrong = Corruption::new(Structure::Delta, at, CorruptionKind::Value);
        let allowed = ItemKind::decode(key.kind)
            .is_some_and(|kind| !matches!(kind, ItemKind::Mapping | ItemKind::Usage));
        let fits = value.as_ref().is_none_or(|value| value.len() <= crate::format::VALUE_LEN_MAX);
        if !allowed || !fits {
            return Err(wrong.into());
        }
        self.recover(|meta| match &value {
            Some(value) => Ok(meta.tree.put(&key, value)?),
            None => Ok(meta.tree.remove(&key).map(drop)?),
        })
    }

    fn apply_mappings(&self, chunk: &ChunkSummary, sequence: u64) -> Result<()> {
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        let data: Vec<(u64, u32, Mapping)> = (first..)
            .zip(&chunk.entries)
            .filter_map(|(address, entry)| match *entry {
                SummaryEntry::Data { ino, block, checksum, history } => {
                    Some((ino, block, Mapping { address, checksum, history }))
                }
                SummaryEntry::Node { .. } => None,
            })
            .collect();
        for run in data.chunk_by(|a, b| run_key(a.0, a.1) == run_key(b.0, b.1)) {
            let ino = run[0].0;
            let blocks: Vec<(u32, Mapping)> = run.iter().map(|(_, b, m)| (*b, *m)).collect();
            self.recover(|meta| {
                meta.tree.prepare(&run_key(ino, blocks[0].0))?;
                Ok(meta.map_run(ino, &blocks, sequence)?)
            })?;
        }
        Ok(())
    }

    /// Unmaps `first..=last` of `ino`.
    fn unmap(&self, ino: u64, first: u32, last: u32, sequence: u64) -> Result<()> {
        let mut end = Key::new(ino, ItemKind::Mapping, u64::from(last / RUN_BLOCKS) + 1);
        loop {
            let next = self.recover(|meta| {
                let Some((key, value)) = meta.tree.last_before(&end)? else { return Ok(None) };
                if key < run_key(ino, first) {
                    return Ok(None);
                }
                let mut run = MappingRun::decode(value, &key)?;
                let base = super::txn::run_base(&key)?;
                let gone: Vec<(u32, Mapping)> =
                    run.iter(base).filter(|(block, _)| (first..=last).contains(block)).collect();
                for (block, _) in &gone {
                    run.set(*block, None);
                }
                if run.is_empty() {
                    meta.tree.remove(&key)?;
                } else {
                    let mut value = Vec::new();
                    run.encode(&mut value);
                    meta.tree.put(&key, &value)?;
                }
                gone.iter().for_each(|(_, mapping)| meta.let_go(mapping, sequence));
                Ok(Some(key))
            })?;
            match next {
                Some(key) => end = key,
                None => return Ok(()),
            }
        }
    }

    /// One step of roll-forward, which changes nothing when a node is missing.
    fn recover<T>(
        &self,
        mut step: impl FnMut(&mut Meta) -> std::result::Result<T, Fault>,
    ) -> Result<T> {
        let mut failed: Option<Missing> = None;
        let _keep = self.keep_nodes();
        loop {
            let outcome = {
                let mut meta = self.meta.write();
                let outcome = step(&mut meta);
                meta.tree.prune();
                outcome
            };
            match outcome {
                Ok(value) => return Ok(value),
                Err(Fault::Missing(missing)) => self.load(&missing, &mut failed)?,
                Err(Fault::Error(error)) => return Err(error),
            }
        }
    }
}

/// How far the log has been read.
#[derive(Clone)]
struct Position {
    heads: Heads,
    sequence: u64,
    previous: u32,
    /// Segments that were opened on the way, and by which head.
    opened: Vec<(u32, u8)>,
}

impl Position {
    /// Where the next chunk of `log` is looked for.
    fn end_of(log: &Log) -> Self {
        Self {
            heads: log.heads.clone(),
            sequence: log.next_sequence,
            previous: log.previous,
            opened: Vec::new(),
        }
    }

    /// Where the chain goes on that the mount after the checkpoint began.
    fn begun(mut self, mount_count: u64) -> Self {
        self.previous = chain_of_mount(self.previous, mount_count);
        self
    }

    /// `chunk` of `head` is the next.
    fn take(&mut self, head: u8, chunk: &ChunkSummary, layout: &Layout) {
        self.heads.advance(head, chunk.block_count() as u32, layout);
        self.sequence += 1;
        self.previous = chunk.checksum;
    }
}

/// What the first chunk of a mount says of the chunk before it.
fn chain_of_mount(previous: u32, mount_count: u64) -> u32 {
    crc32c::crc32c_append(previous, &mount_count.to_le_bytes())
}

/// The superblock, or its backup if it is damaged.
fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    let device_blocks = device.geometry().block_count;
    if device_blocks <= SUPERBLOCK_ADDRESS {
        return Err(Error::DeviceTooSmall {
            device: device_blocks,
            volume: SUPERBLOCK_ADDRESS + 1,
        });
    }
    let read = |at: u64| -> Result<Superblock> {
        let mut blocks = Block::new_vec_zeroed(1).expect("memory for a block");
        device.read(at, &mut blocks)?;
        match Superblock::version_of(&blocks[0].0) {
            Some(version) if version > FORMAT_VERSION => Err(Error::NewerFormat(version)),
            _ => Ok(Superblock::decode(&blocks[0].0, at)?),
        }
    };
    let superblock = match read(SUPERBLOCK_ADDRESS) {
        Err(Error::Corrupt(damage)) => match read(device_blocks - 1) {
            Ok(backup) if backup.layout.backup == device_blocks - 1 => backup,
            _ => return Err(damage.into()),
        },
        other => other?,
    };
    let volume_blocks = superblock.layout.block_count;
    if volume_blocks > device_blocks {
        return Err(Error::DeviceTooSmall { device: device_blocks, volume: volume_blocks });
    }
    Ok(superblock)
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
        Err(Corruption::new(Structure::Checkpoint, at, CorruptionKind::Value).into())
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
    let wrong = Corruption::new(
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
        heads.set(head.head, Head { segment: head.segment, next_block: head.next_block });
    }
    let counts = [
        record.next_sequence,
        record.number,
        record.next_ino,
        record.mount_count,
        record.user_bytes_written,
        record.device_bytes_written,
        record.blocks_written,
    ];
    let sound = record.next_sequence > 0 && record.next_ino >= FIRST_INO;
    if !sound || counts.iter().any(|count| *count >= COUNT_MAX) {
        return Err(wrong.into());
    }
    Ok(heads)
}
