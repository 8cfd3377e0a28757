//! Chunks in their segments: summaries, and the blocks that a summary describes.
//!
//! No read goes beyond the segment.

use sfs_core::format::{ChunkSummary, LogEra, NodeHeader, NodePointer, SummaryEntry};
use sfs_device::Block;

use crate::read::volume::VolumeReader;

/// Maximum number of blocks per read request.
const READ_BLOCKS: usize = 256;

/// Returns the summary of the chunk at `block` of `segment`, if it is sound. An unreadable block holds no
/// chunk: the log ends there for every reader.
pub(crate) fn read_summary(
    volume: &VolumeReader<'_>,
    segment: u32,
    block: u32,
) -> Option<ChunkSummary> {
    read_with_era(volume, segment, block).map(|(summary, _)| summary)
}

/// Returns the summary as [`read_summary`] does, with the era that it names.
fn read_with_era(
    volume: &VolumeReader<'_>,
    segment: u32,
    block: u32,
) -> Option<(ChunkSummary, LogEra)> {
    let layout = volume.layout();
    let blocks_left = layout.segment_blocks.checked_sub(block).filter(|left| *left > 0)?;
    let at = layout.segment_address(segment) + u64::from(block);
    let mut first = Block::zeroed(1);
    volume.device.read(at, &mut first).ok()?;
    let count = ChunkSummary::peek(&first[0].0, at, blocks_left.into()).ok()?;
    let mut blocks = Block::zeroed(count);
    volume.device.read(at, &mut blocks).ok()?;
    let summary = ChunkSummary::decode(Block::bytes_of(&blocks), volume.id(), at).ok()?;
    let era = ChunkSummary::era_of(&blocks[0].0);
    (summary.block_count() <= u64::from(blocks_left)).then_some((summary, era))
}

/// Returns whether every block of the chunk matches its summary.
pub(crate) fn is_whole(volume: &VolumeReader<'_>, summary: &ChunkSummary) -> bool {
    let first = summary.header.address + summary.summary_blocks() as u64;
    let mut at = first;
    summary.entries.chunks(READ_BLOCKS).all(|entries| {
        let mut blocks = Block::zeroed(entries.len());
        let is_read = volume.device.read(at, &mut blocks).is_ok();
        let mut described = (at..).zip(entries).zip(&blocks);
        at += entries.len() as u64;
        is_read && described.all(|((at, entry), block)| matches_entry(volume, at, entry, block))
    })
}

/// Returns whether `block`, read at `address`, is the block that `entry` describes.
fn matches_entry(
    volume: &VolumeReader<'_>,
    address: u64,
    entry: &SummaryEntry,
    block: &Block,
) -> bool {
    match *entry {
        SummaryEntry::Data { checksum, .. } => crc32c::crc32c(&block.0) == checksum,
        SummaryEntry::Node { checksum } => {
            NodeHeader::verify(&block.0, volume.id(), NodePointer { address, checksum }).is_ok()
        }
    }
}

/// Returns the chunks of `segment` in order, up to the first place where no newer chunk follows.
pub(crate) fn chunks(
    volume: &VolumeReader<'_>,
    segment: u32,
) -> impl Iterator<Item = ChunkSummary> {
    chunks_with_eras(volume, segment).map(|(chunk, _)| chunk)
}

/// Returns the chunks of `segment` as [`chunks`] does, each with the era that it names.
pub(crate) fn chunks_with_eras(
    volume: &VolumeReader<'_>,
    segment: u32,
) -> impl Iterator<Item = (ChunkSummary, LogEra)> {
    let (mut block, mut last_sequence) = (0, None);
    std::iter::from_fn(move || {
        // Chunks from an earlier use of the segment are older.
        let (chunk, era) = read_with_era(volume, segment, block)
            .filter(|(chunk, _)| last_sequence < Some(chunk.header.sequence))?;
        last_sequence = Some(chunk.header.sequence);
        block += chunk.block_count() as u32;
        Some((chunk, era))
    })
}

/// Calls `each` with address and entry of every block of `segment` that a summary describes, ascending.
pub(crate) fn each_entry(
    volume: &VolumeReader<'_>,
    segment: u32,
    mut each: impl FnMut(u64, &SummaryEntry),
) {
    for chunk in chunks(volume, segment) {
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        for (address, entry) in (first..).zip(&chunk.entries) {
            each(address, entry);
        }
    }
}
