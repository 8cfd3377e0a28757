//! What deltas before the checkpoint say of lost keys.
//!
//! Owns: putting the pieces of a batch together again.
//! Promises: a batch of which a chunk is missing, or another's, says nothing.
//! Never: overrules what was written later.

use sfs_core::format::{
    Change, ChunkSummary, DecodeError, Key, RUN_BLOCKS, Tolerance, VALUE_LEN_MAX,
    is_allowed_in_delta, run_key,
};

use crate::FsckError;
use crate::log;
use crate::scan::{OldChunk, Scan, is_restorable};
use crate::volume::Volume;
use crate::walk::any_contains;

/// What the last delta that names it says of an item.
pub(crate) struct Said {
    pub(crate) key: Key,
    /// `None` if it is gone.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) sequence: u64,
}

/// Calls `each` for what deltas say of lost items, in their order. Blocks that they unmap are forgotten,
/// where they were written before.
pub(crate) fn replay(
    volume: &Volume<'_>,
    scan: &mut Scan<'_>,
    mut each: impl FnMut(Said),
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
        let changes = match read(volume, &batch).as_deref().map(Change::decode_batch) {
            Some(Err(DecodeError::Incompatible(what))) => {
                return Err(FsckError::Incompatible(what));
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
    scan: &mut Scan<'_>,
    change: Change,
    sequence: u64,
    tolerance: Tolerance,
    each: &mut impl FnMut(Said),
) {
    let (key, value) = match change {
        // Of a lost run nothing can be said: what is in its blocks now has no checksum.
        Change::NextIno(_) | Change::Release { .. } | Change::Map { .. } => return,
        Change::Unmap { ino, first, last } => return unmap(scan, ino, first, last, sequence),
        Change::Put { key, value } => (Key::decode(&key), Some(value)),
        Change::Delete { key } => (Key::decode(&key), None),
    };
    let is_allowed_in_delta = is_restorable(&key)
        && is_allowed_in_delta(&key, tolerance)
        && value.as_ref().is_none_or(|value| value.len() <= VALUE_LEN_MAX);
    if is_allowed_in_delta && any_contains(scan.lost, &key) {
        each(Said { key, value, sequence });
    }
}

fn unmap(scan: &mut Scan<'_>, ino: u64, first: u32, last: u32, sequence: u64) {
    let lost = scan.lost;
    let is_lost = (first / RUN_BLOCKS..=last / RUN_BLOCKS)
        .take(RUNS_MAX)
        .any(|run| any_contains(lost, &run_key(ino, run * RUN_BLOCKS)));
    if is_lost {
        scan.blocks.retain(|(owner, block), found| {
            *owner != ino || !(first..=last).contains(block) || found.sequence >= sequence
        });
    }
}

/// Runs of a file that are compared with what is lost: 1 GiB of it. Beyond, blocks of what was cut off
/// may come back, as far as the file's size allows.
const RUNS_MAX: usize = 8192;

/// The chunks of a whole batch, if it has a delta.
fn read(volume: &Volume<'_>, batch: &[(u64, OldChunk)]) -> Option<Vec<ChunkSummary>> {
    batch.iter().any(|(_, chunk)| chunk.has_delta).then_some(())?;
    let mut chunks: Vec<ChunkSummary> = Vec::with_capacity(batch.len());
    for (_, chunk) in batch {
        let summary = log::summary(volume, chunk.segment, chunk.block)?;
        let is_next = chunks.last().is_none_or(|before| before.checksum == summary.header.previous);
        is_next.then_some(())?;
        chunks.push(summary);
    }
    Some(chunks)
}
