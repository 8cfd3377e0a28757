//! Changes of lost keys in the deltas before the checkpoint.
//!
//! A batch counts only if all its chunks are present and form one chain. A delta does not override
//! a newer leaf: salvage compares the sequence number of each change with that of the leaf.

use std::ops::RangeInclusive;

use sfs_core::format::{
    Change, ChunkSummary, DecodeError, Key, Tolerance, VALUE_LEN_MAX, is_allowed_in_delta, run_key,
};

use crate::error::FsckError;
use crate::read::chunk;
use crate::read::key_range::{KeyRange, any_contains, any_overlaps};
use crate::read::segment_scan::{OldChunk, SegmentScan, is_restorable};
use crate::read::volume::VolumeReader;

/// Change of lost items by a delta.
pub(crate) enum OldChange {
    /// An item gets a value, or is deleted (`None`).
    Item(Key, Option<Vec<u8>>),
    /// Blocks of a file are unmapped; the range includes both ends.
    Unmap(u64, RangeInclusive<u32>),
}

/// Calls `each` for the changes of lost items, oldest first, with the sequence number of the last chunk of the
/// batch. An unmap also removes the older blocks in its range from `scan`.
pub(crate) fn replay(
    volume: &VolumeReader<'_>,
    scan: &mut SegmentScan<'_>,
    mut each: impl FnMut(OldChange, u64),
) -> Result<(), FsckError> {
    let older = std::mem::take(&mut scan.older);
    let mut batch: Vec<(u64, OldChunk)> = Vec::new();
    for (sequence, chunk) in older {
        if batch.last().is_some_and(|(last, _)| last + 1 != sequence) {
            batch.clear();
        }
        batch.push((sequence, chunk));
        if !chunk.end {
            continue;
        }
        let changes = match read_batch(volume, &batch).as_deref().map(Change::decode_batch) {
            Some(Err(DecodeError::Incompatible(reason))) => {
                return Err(FsckError::Incompatible(reason));
            }
            Some(Ok(changes)) => changes,
            Some(Err(DecodeError::Corrupt(_))) | None => Vec::new(),
        };
        let tolerance = volume.superblock.tolerance();
        for change in changes {
            apply(scan, change, sequence, tolerance, &mut each);
        }
        batch.clear();
    }
    Ok(())
}

fn apply(
    scan: &mut SegmentScan<'_>,
    change: Change,
    sequence: u64,
    tolerance: Tolerance,
    each: &mut impl FnMut(OldChange, u64),
) {
    let (key, value) = match change {
        // Blocks that are overwritten in place have no checksum, so salvage does not map such
        // blocks.
        Change::NextIno(_) | Change::Release { .. } | Change::Map { .. } => return,
        Change::Unmap { ino, first, last } => {
            if unmap(scan, ino, first, last, sequence) {
                each(OldChange::Unmap(ino, first..=last), sequence);
            }
            return;
        }
        Change::Put { key, value } => (Key::decode(&key), Some(value)),
        Change::Delete { key } => (Key::decode(&key), None),
    };
    let is_valid = is_restorable(&key)
        && is_allowed_in_delta(&key, tolerance)
        && value.as_ref().is_none_or(|value| value.len() <= VALUE_LEN_MAX);
    if is_valid && any_contains(scan.lost, &key) {
        each(OldChange::Item(key, value), sequence);
    }
}

/// Removes older blocks from `scan`, and returns whether any mapping in the range is lost.
fn unmap(scan: &mut SegmentScan<'_>, ino: u64, first: u32, last: u32, sequence: u64) -> bool {
    let (low, last_key) = (run_key(ino, first), run_key(ino, last));
    let is_lost = any_overlaps(scan.lost, &KeyRange { low, high: Some(last_key.next()) });
    if is_lost {
        scan.blocks.retain(|(owner, block), found| {
            *owner != ino || !(first..=last).contains(block) || found.sequence >= sequence
        });
    }
    is_lost
}

/// Reads the chunks of a whole batch, if it has a delta.
fn read_batch(volume: &VolumeReader<'_>, batch: &[(u64, OldChunk)]) -> Option<Vec<ChunkSummary>> {
    batch.iter().any(|(_, chunk)| chunk.has_delta).then_some(())?;
    let mut chunks: Vec<ChunkSummary> = Vec::with_capacity(batch.len());
    for (_, chunk) in batch {
        let summary = chunk::read_summary(volume, chunk.segment, chunk.block)?;
        let is_next = chunks.last().is_none_or(|before| before.checksum == summary.header.previous);
        is_next.then_some(())?;
        chunks.push(summary);
    }
    Some(chunks)
}
