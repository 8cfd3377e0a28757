//! Roll-forward: applies the log since the last checkpoint.
//!
//! Chunks are found in order and applied batch by batch (`apply_batch`), in memory only. Everything
//! after the last whole batch is as if it had never been written. Roll-forward notices the loss of
//! a checkpoint that was durable. Memory is bounded by the caches and one batch.

use sfs_device::Block;

use super::components::Components;
use crate::format::{
    ChunkSummary, Corruption, CorruptionKind, DELTA_LEN_MAX, HEADS_MAX, Head, Layout, Location,
    Structure,
};
use crate::log::{CHUNK_BLOCKS_MIN, HeadPosition, Heads, LogState};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// Progress of the checkpoint after the last known one, as the log shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextCheckpoint {
    /// No nodes of the checkpoint were found.
    None,
    /// The nodes of the checkpoint were written, and perhaps its record.
    Begun,
    /// A chunk follows the nodes of the checkpoint, so it was durable; its record is gone.
    Lost,
    /// The checkpoint was durable, and the log does not lead to its nodes.
    LostUnseen,
}

impl NextCheckpoint {
    fn begun_or_lost(is_lost: bool) -> Self {
        if is_lost { Self::Lost } else { Self::Begun }
    }

    fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::LostUnseen)
    }
}

impl Components {
    /// Applies the batches since the checkpoint. Nodes at the end of the log are left out, because their checkpoint
    /// was never durable: their blocks stay free, or the next checkpoint might lack space. Returns whether the next
    /// checkpoint had been begun. The loaded checkpoint is also meant for the other slot if it `is_of_resize`.
    ///
    /// # Errors
    ///
    /// `damage` of the other slot, unless a crash may have caused it while that checkpoint was being written.
    /// Otherwise the slot held a durable checkpoint, whose changes are missing now.
    pub(super) fn roll_forward(&self, damage: Option<Error>, is_of_resize: bool) -> Result<bool> {
        let mut log = self.log.lock();
        let mount = log.mount_count + u64::from(self.options.read_only);
        let (first, number) = (log.next_sequence, log.checkpoint + 1);
        let is_damaged = damage.is_some();
        let mut next = self.apply_batches(&mut log, number, is_damaged)?;
        if is_damaged && next != NextCheckpoint::Lost {
            // The mount after the lost checkpoint may have continued the chain with its own number.
            let begun = self.next_batch(LogCursor::end_of(&log).begun(mount))?;
            if let Some((nodes, end)) = begun
                && self.chunks.checkpoint_of(&nodes[0])? == Some(number)
            {
                next = NextCheckpoint::begun_or_lost(self.is_followed(&end)?);
            }
        }
        if is_damaged && next == NextCheckpoint::None {
            // No crash damages a slot while the log does not lead to the nodes of its checkpoint.
            let nodes = self.first_nodes_of(number, first)?;
            if nodes.is_some_and(|nodes| nodes > log.next_sequence) {
                next = NextCheckpoint::LostUnseen;
            }
        }
        let is_begun = matches!(next, NextCheckpoint::Begun | NextCheckpoint::Lost);
        let damage = match damage {
            // Damage that a crash may have left while a checkpoint was being written is not
            // counted.
            Some(damage) if !is_begun && !is_of_resize && !self.is_of_blank_slot(&damage)? => {
                Some(self.health.counted(damage))
            }
            other => other,
        };
        match damage {
            Some(damage) if next.is_lost() => Err(damage),
            _ => Ok(is_begun || is_damaged),
        }
    }

    /// Applies whole batches in order, up to the nodes of checkpoint `number` if they are the last
    /// ones or their record is lost. Returns the progress of that checkpoint.
    fn apply_batches(
        &self,
        log: &mut LogState,
        number: u64,
        is_damaged: bool,
    ) -> Result<NextCheckpoint> {
        let mut next = NextCheckpoint::None;
        while let Some((batch, end)) = self.next_batch(LogCursor::end_of(log))? {
            self.wear.add_recovered(&batch);
            if let Some(of) = self.chunks.checkpoint_of(&batch[0])? {
                if of == number {
                    next = NextCheckpoint::begun_or_lost(is_damaged && self.is_followed(&end)?);
                }
                if next == NextCheckpoint::Lost || self.next_batch(end.clone())?.is_none() {
                    break;
                }
            }
            self.apply(log, &batch, end)?;
        }
        Ok(next)
    }

    /// Returns whether `damage` only means that a slot was never written, or was cleared by a
    /// repair.
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
        self.io.read_stored(at, &mut block)?;
        Ok(block[0].0 == Block::ZERO.0)
    }

    /// Applies the batch that ends at `next`.
    pub(super) fn apply(
        &self,
        log: &mut LogState,
        batch: &[ChunkSummary],
        next: LogCursor,
    ) -> Result<()> {
        for (segment, head) in next.opened {
            self.open_found(log, head, segment)?;
        }
        let first = log.next_sequence;
        log.heads = next.heads;
        log.next_sequence = next.sequence;
        log.previous = next.previous;
        self.metadata.publish_sequence(next.sequence);
        log.blocks_since_checkpoint += batch.iter().map(ChunkSummary::block_count).sum::<u64>();
        self.apply_batch(batch, first)
    }

    /// Returns whether a chunk follows at `end`, where the nodes of a checkpoint end. Such a chunk
    /// is written only once the checkpoint is durable, and may be in a segment that the checkpoint
    /// made Clean.
    fn is_followed(&self, end: &LogCursor) -> Result<bool> {
        let layout = &self.superblock.layout();
        let heads = end.heads.iter().map(|(_, head)| (head.segment, head.next_block));
        for (segment, block) in heads.chain((0..layout.segment_count).map(|segment| (segment, 0))) {
            let room = layout.segment_blocks - block;
            let address = layout.segment_address(segment) + u64::from(block);
            if room >= CHUNK_BLOCKS_MIN
                && let Some(chunk) = self.chunks.read_summary(address, room)?
                && chunk.header.sequence == end.sequence
                && chunk.header.previous == end.previous
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the lowest sequence number, from `first` on, of a chunk with nodes of checkpoint `number` in any
    /// segment.
    fn first_nodes_of(&self, number: u64, first: u64) -> Result<Option<u64>> {
        let mut lowest = None;
        for segment in 0..self.superblock.layout().segment_count {
            for chunk in self.chunks.segment_chunks(segment) {
                let chunk = chunk?;
                let sequence = chunk.header.sequence;
                let is_lower = sequence >= first && lowest.is_none_or(|lowest| sequence < lowest);
                if is_lower && self.chunks.checkpoint_of(&chunk)? == Some(number) {
                    lowest = Some(sequence);
                }
            }
        }
        Ok(lowest)
    }

    /// Opens `segment`, the next Clean one, for `head`, as the log shows.
    fn open_found(&self, log: &mut LogState, head: Head, segment: u32) -> Result<()> {
        let mut metadata = self.metadata.write();
        let opened = metadata.usage.open(head, log.next_sequence);
        assert_eq!(opened, Some(segment), "the search follows the order of allocation");
        if mutated(Mutant::EraseUnreplayed) {
            metadata.usage.uncount_erase(segment);
        }
        log.heads.switch(head, segment, &mut metadata.usage);
        Ok(())
    }

    /// Returns the next whole batch of the log, and the position of its end.
    pub(super) fn next_batch(
        &self,
        mut position: LogCursor,
    ) -> Result<Option<(Vec<ChunkSummary>, LogCursor)>> {
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

    /// Returns the chunk with the next sequence number, at any head.
    pub(super) fn next_chunk(&self, position: &mut LogCursor) -> Result<Option<ChunkSummary>> {
        let layout = &self.superblock.layout();
        for (no, head) in position.heads.clone().iter() {
            let room = layout.segment_blocks - head.next_block;
            if room < CHUNK_BLOCKS_MIN {
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
        let Some(segment) = self.metadata.read().usage.clean().nth(skip) else { return Ok(None) };
        let address = layout.segment_address(segment);
        match self.expected_chunk(address, layout.segment_blocks, position)? {
            Some(chunk) if chunk.header.head.index() < HEADS_MAX => {
                let head = chunk.header.head;
                position.opened.push((segment, head));
                position.heads.set(head, HeadPosition { segment, next_block: 0 });
                position.take(head, &chunk, layout);
                Ok(Some(chunk))
            }
            _ => Ok(None),
        }
    }

    /// Returns the chunk at `address` if it is whole and the next one.
    fn expected_chunk(
        &self,
        address: u64,
        room: u32,
        position: &LogCursor,
    ) -> Result<Option<ChunkSummary>> {
        let Some(chunk) = self.chunks.read_summary(address, room)? else { return Ok(None) };
        let next = chunk.header.sequence == position.sequence
            && (chunk.header.previous == position.previous || mutated(Mutant::ChainIgnored));
        Ok(if next && self.chunks.is_whole(&chunk)? { Some(chunk) } else { None })
    }
}

/// Position in the log up to which it has been read.
#[derive(Clone)]
pub(super) struct LogCursor {
    heads: Heads,
    sequence: u64,
    previous: u32,
    /// Segments opened by the batch, with their heads.
    opened: Vec<(u32, Head)>,
}

impl LogCursor {
    /// Returns the position after the last chunk of `log`.
    pub(super) fn end_of(log: &LogState) -> Self {
        Self {
            heads: log.heads.clone(),
            sequence: log.next_sequence,
            previous: log.previous,
            opened: Vec::new(),
        }
    }

    /// Returns the position from which mount number `mount_count` continues the chain.
    fn begun(mut self, mount_count: u64) -> Self {
        self.previous = chain_of_mount(self.previous, mount_count);
        self
    }

    /// Moves on past `chunk` of `head`.
    fn take(&mut self, head: Head, chunk: &ChunkSummary, layout: &Layout) {
        self.heads.advance(head, chunk.block_count() as u32, layout);
        self.sequence += 1;
        self.previous = chunk.checksum;
    }
}

/// Returns the `previous` field of the first chunk of a mount, from the checksum of the chunk
/// before it.
pub(super) fn chain_of_mount(previous: u32, mount_count: u64) -> u32 {
    crc32c::crc32c_append(previous, &mount_count.to_le_bytes())
}
