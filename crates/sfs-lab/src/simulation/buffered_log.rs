//! A write buffer in front of the log: the choice of the blocks that are written out, and the room for
//! them.
//!
//! After a user's write the buffer is within its capacity, except for the blocks that one cleaning
//! adds. No segment is opened that has the only copy of a block in the buffer.

use sfs_core::format::{Group, Head};

use super::buffer::{GroupedBlock, WriteBuffer, group_counts};
use super::buffering::{Buffering, SyncRemainder, WriteOutPolicy};
use super::cleaner::{self, LiveBlocks};
use super::log::{GROUP_HEADS, MIXED_HEAD};
use super::no_room::NoRoom;
use super::writer::SimulatedLogWriter;

/// Divisor of the buffer's capacity, for the part that [`WriteOutPolicy::Largest`] and
/// [`WriteOutPolicy::Coldest`] write out at once: a volume begins when half its budget is used, and
/// writes an eighth of the budget.
const WRITE_OUT_DIVISOR: usize = 4;

/// The log and its write buffer.
pub(super) struct BufferedLog {
    pub(super) writer: SimulatedLogWriter,
    buffer: WriteBuffer,
    buffering: Buffering,
    capacity_blocks: usize,
}

impl BufferedLog {
    /// Returns the log with an empty buffer for `blocks` different blocks.
    pub(super) fn new(mut writer: SimulatedLogWriter, buffering: Buffering, blocks: u32) -> Self {
        if buffering.writing == WriteOutPolicy::Coldest {
            writer.track_lifetimes();
        }
        let capacity_blocks = buffering.capacity_blocks(writer.log.segment_blocks());
        Self { writer, buffer: WriteBuffer::new(blocks), buffering, capacity_blocks }
    }

    /// Takes a user's write.
    pub(super) fn write(&mut self, block: u32) -> Result<(), NoRoom> {
        self.writer.tick();
        if self.capacity_blocks == 0 {
            let group = self.writer.group(block, false);
            self.make_room()?;
            self.writer.write_user(block, Head::of(group), group)
        } else {
            self.write_buffered(block)
        }
    }

    /// Takes a user's deletion.
    pub(super) fn delete(&mut self, block: u32) {
        if self.buffer.origins(block).is_copied_out {
            self.writer.log.leave(block);
        }
        self.buffer.remove(block);
        self.writer.delete(block);
    }

    fn make_room(&mut self) -> Result<(), NoRoom> {
        let live = self.live_blocks();
        cleaner::make_room(&mut self.writer, &mut self.buffer, live)
    }

    fn live_blocks(&self) -> LiveBlocks {
        let defers = self.buffering.writing == WriteOutPolicy::Deferred;
        if self.capacity_blocks > 0 && defers { LiveBlocks::Defer } else { LiveBlocks::Write }
    }

    fn is_full(&self) -> bool {
        self.buffer.len() >= self.capacity_blocks
    }

    fn write_buffered(&mut self, block: u32) -> Result<(), NoRoom> {
        self.buffer.write(block);
        let clock = self.writer.clock_blocks();
        let sync = self.buffering.sync_interval.is_some_and(|n| clock.is_multiple_of(n));
        let full = self.is_full();
        match self.buffering.writing {
            _ if sync => self.write_out(true)?,
            WriteOutPolicy::Heads if full => self.write_out(true)?,
            WriteOutPolicy::Largest | WriteOutPolicy::Coldest if full => self.write_out(false)?,
            _ => (),
        }
        if self.buffering.writing == WriteOutPolicy::Deferred {
            self.settle()?;
        }
        Ok(())
    }

    /// Writes out and cleans until the buffer has room and the reserve is full. Writing out uses
    /// clean segments, and cleaning fills the buffer, so both may be necessary several times.
    fn settle(&mut self) -> Result<(), NoRoom> {
        let mut tries = cleaner::tries_max(&self.writer.log) + self.capacity_blocks as u64;
        loop {
            tries = tries.checked_sub(1).ok_or(NoRoom)?;
            // Writing out leaves a segment for blocks whose only copy the next segment has.
            if self.is_full() && self.writer.log.clean_segments() > 1 {
                self.write_out(false)?;
            } else if !self.writer.log.has_reserve() {
                let live = self.live_blocks();
                cleaner::clean(&mut self.writer, &mut self.buffer, live)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Writes out the blocks that the policy chooses, and for a `sync` all other blocks too.
    fn write_out(&mut self, sync: bool) -> Result<(), NoRoom> {
        self.writer.begin_writing();
        let queue = self.buffer.take_queue();
        let grouped = |block: u32| {
            let is_moved = !self.buffer.origins(block).is_dirty;
            (self.writer.group(block, is_moved), block)
        };
        let mut blocks: Vec<GroupedBlock> = queue.into_iter().map(grouped).collect();
        self.group_neighbours(&mut blocks);
        match self.buffering.writing {
            WriteOutPolicy::Deferred => self.write_whole_segments(&mut blocks)?,
            WriteOutPolicy::Largest | WriteOutPolicy::Coldest if !sync => {
                self.write_share(&mut blocks)?;
            }
            _ => (),
        }
        if sync {
            self.write_remainder(&mut blocks)?;
        }
        self.buffer.put_back(blocks.into_iter().map(|(_, block)| block).collect());
        Ok(())
    }

    /// Puts neighbours that users wrote into the group that the policy has for them.
    fn group_neighbours(&mut self, blocks: &mut [GroupedBlock]) {
        let is_dirty = |block: &&mut GroupedBlock| self.buffer.origins(block.1).is_dirty;
        let mut dirty: Vec<&mut GroupedBlock> = blocks.iter_mut().filter(is_dirty).collect();
        dirty.sort_unstable_by_key(|block| block.1);
        for neighbours in dirty.chunk_by_mut(|a, b| a.1 + 1 == b.1) {
            self.writer.note_neighbours(&mut neighbours.iter().map(|block| block.1));
            let mut blocks = neighbours.iter().map(|block| block.1);
            if let Some(group) = self.writer.group_of_neighbours(&mut blocks) {
                neighbours.iter_mut().for_each(|block| block.0 = group);
            }
        }
    }

    /// Takes all blocks, and writes them.
    fn write_remainder(&mut self, blocks: &mut Vec<GroupedBlock>) -> Result<(), NoRoom> {
        let pure = self.buffering.remainder == SyncRemainder::Pure;
        let groups = group_counts(blocks).iter().filter(|count| **count > 0).count() as u64;
        self.writer.counters.syncs += u64::from(groups > 0);
        self.writer.counters.sync_heads += if pure { groups } else { groups.min(1) };
        for (group, block) in blocks.drain(..) {
            self.write_from_buffer(block, if pure { Head::of(group) } else { MIXED_HEAD }, group)?;
        }
        Ok(())
    }

    /// Takes a share of the blocks, and writes it: from the largest groups in the order of the file, or
    /// from the groups whose blocks live longest in the order of arrival.
    fn write_share(&mut self, blocks: &mut Vec<GroupedBlock>) -> Result<(), NoRoom> {
        let counts = group_counts(blocks);
        if self.buffering.writing == WriteOutPolicy::Coldest {
            self.sort_coldest_first(blocks);
        } else {
            let key = |group: Group| std::cmp::Reverse(counts[group.index()]);
            blocks.sort_unstable_by_key(|&(group, block)| (key(group), group, block));
        }
        let count = (self.capacity_blocks / WRITE_OUT_DIVISOR).max(1).min(blocks.len());
        for (group, block) in blocks.drain(..count) {
            self.write_from_buffer(block, Head::of(group), group)?;
        }
        Ok(())
    }

    /// Sorts blocks by expected lifetime, the longest first: the lifetime of the block, if the
    /// policy predicts it, otherwise the mean of the group.
    fn sort_coldest_first(&self, blocks: &mut [GroupedBlock]) {
        blocks.sort_by_cached_key(|(_, block)| {
            // The bits of floats that are not negative have the same order as the floats.
            std::cmp::Reverse(
                self.writer.lifetime(*block).map_or(0, |octaves| octaves.max(0.0).to_bits()),
            )
        });
        let compare = |a: Group, b: Group| self.writer.compare_lifetimes(b, a).then(a.cmp(&b));
        if self.writer.lifetime(0).is_none() {
            blocks.sort_by(|(a, _), (b, _)| compare(*a, *b));
        }
    }

    /// Takes the blocks that fill segments, and writes them. If no group fills a segment, takes the
    /// largest group.
    fn write_whole_segments(&mut self, blocks: &mut Vec<GroupedBlock>) -> Result<(), NoRoom> {
        let segment_blocks = self.writer.log.segment_blocks() as usize;
        let mut counts = group_counts(blocks);
        let largest = self.force(blocks, &mut counts);
        let mut left = counts.map(|count| count / segment_blocks * segment_blocks);
        if left.iter().all(|count| *count == 0) {
            left[largest.index()] = counts[largest.index()];
        }
        let mut room_blocks =
            (self.writer.log.clean_segments() as usize).saturating_sub(1) * segment_blocks;
        let mut batch: Vec<GroupedBlock> = Vec::new();
        blocks.retain(|&(group, block)| {
            let left = &mut left[group.index()];
            let taken = *left > 0 && room_blocks > 0;
            if taken {
                *left -= 1;
                room_blocks -= 1;
                batch.push((group, block));
            }
            !taken
        });
        batch.sort_by_key(|(group, _)| *group);
        for (group, block) in batch {
            self.write_from_buffer(block, Head::of(group), group)?;
        }
        Ok(())
    }

    /// Applies the safety rule of SFS: a block that was copied out of a segment which may be opened now
    /// is written now, with the largest group. Returns that group.
    fn force(&mut self, blocks: &mut [GroupedBlock], counts: &mut [usize; GROUP_HEADS]) -> Group {
        let segments = blocks.len() / self.writer.log.segment_blocks() as usize + 1;
        let opened: Vec<u32> = self.writer.log.next_clean(segments).collect();
        let largest = Group::first(GROUP_HEADS as u8).max_by_key(|group| counts[group.index()]);
        let largest = largest.unwrap_or(Group(0));
        let mut forced = Vec::new();
        for (index, (group, block)) in blocks.iter_mut().enumerate() {
            let segment = self.writer.log.segment_of(*block);
            if self.buffer.origins(*block).is_copied_out
                && segment.is_some_and(|segment| opened.contains(&segment))
            {
                counts[group.index()] -= 1;
                counts[largest.index()] += 1;
                *group = largest;
                forced.push(index);
            }
        }
        self.writer.counters.forced_blocks += forced.len() as u64;
        // The first blocks of the largest group are written, so forced blocks go to the front.
        for (front, index) in forced.into_iter().enumerate() {
            blocks.swap(front, index);
        }
        largest
    }

    fn write_from_buffer(&mut self, block: u32, head: Head, group: Group) -> Result<(), NoRoom> {
        if self.buffering.writing != WriteOutPolicy::Deferred {
            self.make_room()?;
        }
        let origins = self.buffer.take(block);
        if origins.is_copied_out {
            self.writer.log.leave(block);
        }
        if origins.is_dirty {
            self.writer.write_user(block, head, group)?;
        } else if let Some(history) = self.writer.log.history(block) {
            self.writer.write_moved(block, history, head, group)?;
        }
        Ok(())
    }
}
