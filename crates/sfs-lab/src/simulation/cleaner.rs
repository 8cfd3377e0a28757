//! Cleaning: empties victims until the reserve of clean segments is full.
//!
//! Live blocks of a victim go back to the log or, with [`LiveBlocks::Defer`], into the write buffer.

use sfs_core::format::{Group, Head, History, UsageEntry};

use super::buffer::WriteBuffer;
use super::counters::bin;
use super::log::{GROUP_HEADS, SegmentLog};
use super::no_room::NoRoom;
use super::writer::SimulatedLogWriter;

/// The destination of a victim's live blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveBlocks {
    /// The head of each block's group.
    Write,
    /// The write buffer, until the group fills a segment.
    Defer,
}

/// Cleans until the reserve is full. Runs before every block that a user writes, because a user
/// could otherwise fill the segments that the cleaner opened, without any cleaning.
pub(super) fn make_room(
    writer: &mut SimulatedLogWriter,
    buffer: &mut WriteBuffer,
    live: LiveBlocks,
) -> Result<(), NoRoom> {
    let mut tries = tries_max(&writer.log);
    while !writer.log.has_reserve() {
        tries = tries.checked_sub(1).ok_or(NoRoom)?;
        clean(writer, buffer, live)?;
    }
    Ok(())
}

/// Returns the number of cleanings after which a log without its reserve will never have it: each victim then had as
/// many live blocks as its segment holds.
pub(super) fn tries_max(log: &SegmentLog) -> u64 {
    16 * log.entries().len() as u64
}

/// Empties the victim with the highest score.
pub(super) fn clean(
    writer: &mut SimulatedLogWriter,
    buffer: &mut WriteBuffer,
    live: LiveBlocks,
) -> Result<(), NoRoom> {
    let (victim, entry) = writer.take_victim()?;
    let segment_blocks = writer.log.segment_blocks();
    count(writer, &entry);
    if entry.live_blocks > 0 {
        let first = victim * segment_blocks;
        for slot in first..first + segment_blocks {
            if let Some((block, history)) = writer.log.live_at(slot) {
                move_out(writer, buffer, live, (block, history, entry.data_group()))?;
            }
        }
    }
    writer.log.free(victim);
    Ok(())
}

fn count(writer: &mut SimulatedLogWriter, entry: &UsageEntry) {
    let segment_blocks = writer.log.segment_blocks();
    let counters = &mut writer.counters;
    counters.victims += 1;
    counters.histogram_cleaning[bin(entry.live_blocks, segment_blocks)] += 1;
    let group = entry.data_group().map_or(0, Group::index) % GROUP_HEADS;
    counters.group_victims[group].0 += 1;
    counters.group_victims[group].1 += u64::from(entry.live_blocks);
}

fn move_out(
    writer: &mut SimulatedLogWriter,
    buffer: &mut WriteBuffer,
    live: LiveBlocks,
    (block, history, group): (u32, History, Option<Group>),
) -> Result<(), NoRoom> {
    if live == LiveBlocks::Defer {
        writer.counters.cleaning_reads += u64::from(buffer.copy_out(block));
        return Ok(());
    }
    if buffer.origins(block).is_dirty {
        // A newer copy in the buffer goes to the log soon, so the old copy need not be moved.
        writer.log.leave(block);
        return Ok(());
    }
    writer.counters.cleaning_reads += 1;
    let group = writer.group_moved(block, history, group);
    writer.write_moved(block, history, Head::of(group), group)
}
