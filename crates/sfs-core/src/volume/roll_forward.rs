//! Roll-forward: what the log says since the last checkpoint.
//!
//! Owns: finding the chunks that follow a checkpoint, in order, and doing in memory what they say.
//! Promises: what comes after the last batch that is whole is as if it had never been; a checkpoint
//! that was durable and is no longer there is missed. Memory is bounded by the caches and one batch.
//! Never: writes.

use std::sync::atomic::Ordering;

use sfs_device::Block;

use super::Volume;
use super::scan::ROOM_MIN;
use crate::format::{
    Change, ChunkSummary, Corruption, CorruptionKind, DELTA_LEN_MAX, HEADS_MAX, ItemKind, Key,
    Layout, Location, Mapping, MappingRun, RUN_BLOCKS, Structure, SummaryEntry, run_key,
};
use crate::log::{HeadPosition, Heads, Log};
use crate::meta::{Meta, MetadataError};
use crate::mutant::{Mutant, mutated};
use crate::tree::NodeNotCached;
use crate::{Error, Result};

impl Volume {
    /// Applies the batches since the checkpoint, but for nodes at the end, whose checkpoint never was
    /// durable: their place is free, or the next checkpoint might have none. `damage` to the other slot
    /// is what a crash has left of a checkpoint, unless that was durable: what it alone said is missing
    /// then. Says whether the next checkpoint had been begun.
    pub(super) fn roll_forward(&self, damage: Option<Error>) -> Result<bool> {
        let mut log = self.log.lock();
        let mount = log.mount_count + u64::from(self.options.read_only);
        let (first, number, is_damaged) = (log.next_sequence, log.checkpoint + 1, damage.is_some());
        let (mut is_begun, mut is_lost) = (false, false);
        while let Some((batch, end)) = self.next_batch(Position::end_of(&log))? {
            if let Some(of) = self.checkpoint_of(&batch[0])? {
                is_begun |= of == number;
                is_lost = is_damaged && of == number && self.is_followed(&end)?;
                if is_lost || self.next_batch(end.clone())?.is_none() {
                    break;
                }
            }
            self.go_on(&mut log, &batch, end)?;
        }
        if is_damaged && !is_lost {
            // The mount after that may have begun its life with the lost checkpoint.
            let begun = self.next_batch(Position::end_of(&log).begun(mount))?;
            if let Some((nodes, end)) = begun
                && self.checkpoint_of(&nodes[0])? == Some(number)
            {
                is_begun = true;
                is_lost = self.is_followed(&end)?;
            }
        }
        // No crash damages a slot to whose nodes the log does not lead.
        if is_damaged && !is_begun {
            let nodes = self.first_nodes_of(number, first)?;
            is_lost = nodes.is_some_and(|nodes| nodes > log.next_sequence);
        }
        // Other damage is what a crash may have left of a checkpoint that was being written.
        let damage = match damage {
            Some(damage) if !is_begun && !self.is_of_blank_slot(&damage)? => {
                Some(self.counted(damage))
            }
            other => other,
        };
        match damage {
            Some(damage) if is_lost => Err(damage),
            _ => Ok(is_begun || is_damaged),
        }
    }

    /// Whether `damage` is that a slot was never written, or cleared by a repair.
    fn is_of_blank_slot(&self, damage: &Error) -> Result<bool> {
        let Error::Corrupt(Corruption {
            location: Location::Block(at),
            kind: CorruptionKind::Magic,
            ..
        }) = *damage
        else {
            return Ok(false);
        };
        let mut block = [Block::ZERO];
        self.read_device(at, &mut block)?;
        Ok(block[0].0 == Block::ZERO.0)
    }

    /// Applies the batch that ends at `next`.
    pub(super) fn go_on(
        &self,
        log: &mut Log,
        batch: &[ChunkSummary],
        next: Position,
    ) -> Result<()> {
        for (segment, head) in next.opened {
            self.open_found(log, head, segment)?;
        }
        let first = log.next_sequence;
        log.heads = next.heads;
        log.next_sequence = next.sequence;
        log.previous = next.previous;
        self.next_sequence.store(next.sequence, Ordering::Relaxed);
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
    pub(super) fn next_batch(
        &self,
        mut position: Position,
    ) -> Result<Option<(Vec<ChunkSummary>, Position)>> {
        let mut batch = Vec::new();
        let mut delta_len = 0;

        while let Some(chunk) = self.next_chunk(&mut position)? {
            delta_len += chunk.delta.len();
            if delta_len > DELTA_LEN_MAX {
                let at = chunk.header.address;
                return Err(
                    Corruption::in_block(Structure::Delta, at, CorruptionKind::Length).into()
                );
            }
            let end = chunk.header.end || mutated(Mutant::EndIgnored);
            batch.push(chunk);
            if end {
                return Ok(Some((batch, position)));
            }
        }
        Ok(None)
    }

    /// The chunk with the next sequence number, wherever a head may have put it.
    pub(super) fn next_chunk(&self, position: &mut Position) -> Result<Option<ChunkSummary>> {
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
                position.heads.set(head, HeadPosition { segment, next_block: 0 });
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
        let changes = Change::decode_batch(batch)?;
        if !Change::are_sound(&changes, &self.superblock) {
            return Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into());
        }
        for change in &changes {
            if let Change::Unmap { ino, first, last } = *change {
                self.unmap(ino, first, last, sequence)?;
            }
        }
        let (mut released, mut maps) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Map { .. } => maps.push(change),
                Change::Release { segment, stamp } => released.push((segment, stamp)),
                change => self.apply_change(change)?,
            }
        }
        for chunk in batch {
            self.meta.write().usage.clock.catch_up(chunk.header.time);
            self.apply_mappings(chunk, sequence)?;
        }
        for map in maps {
            self.apply_map(&map, at, sequence)?;
        }
        let usage = &mut self.meta.write().usage;
        usage.settle_sealed(sequence);
        match released.iter().all(|(segment, stamp)| usage.replay_release(*segment, *stamp)) {
            true => Ok(()),
            false => Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into()),
        }
    }

    fn apply_change(&self, change: Change) -> Result<()> {
        let (key, value) = match change {
            Change::Unmap { .. } | Change::Release { .. } | Change::Map { .. } => return Ok(()),
            Change::NextIno(next) => {
                let mut meta = self.meta.write();
                meta.restore_next_ino(next);
                return Ok(());
            }
            Change::Put { key, value } => (Key::decode(&key), Some(value)),
            Change::Delete { key } => (Key::decode(&key), None),
        };
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
                    Some((ino, block, Mapping { address, checksum: Some(checksum), history }))
                }
                SummaryEntry::Node { .. } => None,
            })
            .collect();
        self.map_found(&data, sequence)
    }

    /// Blocks beside the log are mapped.
    fn apply_map(&self, map: &Change, at: u64, sequence: u64) -> Result<()> {
        let Change::Map { ino, block, count, address } = *map else { return Ok(()) };
        let segment = map.mapped_segment(&self.superblock.layout);
        if !segment.is_some_and(|at| self.meta.write().usage.replay_in_place(at, sequence)) {
            return Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Value).into());
        }
        let placed =
            (0..count).map(|n| (ino, block + n, Mapping::in_place(address + u64::from(n))));
        self.map_found(&placed.collect::<Vec<_>>(), sequence)?;
        // Other deltas have placed blocks there, too.
        let live = segment.map_or(0, |at| self.meta.read().usage.entry(at).live_blocks);
        match live <= self.superblock.layout.segment_blocks {
            true => Ok(()),
            false => Err(Corruption::in_block(Structure::Delta, at, CorruptionKind::Count).into()),
        }
    }

    /// Maps blocks, each with its file and its place there.
    fn map_found(&self, data: &[(u64, u32, Mapping)], sequence: u64) -> Result<()> {
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
                let mut run = MappingRun::decode(value, &key, meta.tolerance)?;
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
        mut step: impl FnMut(&mut Meta) -> std::result::Result<T, MetadataError>,
    ) -> Result<T> {
        let mut failed: Option<NodeNotCached> = None;
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
                Err(MetadataError::NodeNotCached(missing)) => self.load(&missing, &mut failed)?,
                Err(MetadataError::Error(error)) => return Err(error),
            }
        }
    }
}

/// How far the log has been read.
#[derive(Clone)]
pub(super) struct Position {
    heads: Heads,
    sequence: u64,
    previous: u32,
    /// Segments that were opened on the way, and by which head.
    opened: Vec<(u32, u8)>,
}

impl Position {
    /// Where the next chunk of `log` is looked for.
    pub(super) fn end_of(log: &Log) -> Self {
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
pub(super) fn chain_of_mount(previous: u32, mount_count: u64) -> u32 {
    crc32c::crc32c_append(previous, &mount_count.to_le_bytes())
}
