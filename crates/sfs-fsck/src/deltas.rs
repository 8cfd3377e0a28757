//! What deltas before the checkpoint say of lost keys.
//!
//! Owns: putting the pieces of a batch together again.
//! Promises: a batch of which a chunk is missing, or another's, says nothing.
//! Never: overrules what was written later.

use sfs_core::format::{Change, ChunkSummary, ItemKind, Key, RUN_BLOCKS, VALUE_LEN_MAX, run_key};

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
pub(crate) fn replay(volume: &Volume<'_>, scan: &mut Scan<'_>, mut each: impl FnMut(Said)) {
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
        let changes = read(volume, &batch).unwrap_or_default();
        for change in changes {
            apply(scan, change, sequence, &mut each);
        }
        batch.clear();
    }
}

fn apply(scan: &mut Scan<'_>, change: Change, sequence: u64, each: &mut impl FnMut(Said)) {
    let (key, value) = match change {
        // Of a lost run nothing can be said: what is in its blocks now has no checksum.
        Change::NextIno(_) | Change::Release { .. } | Change::Map { .. } => return,
        Change::Unmap { ino, first, last } => return unmap(scan, ino, first, last, sequence),
        Change::Put { key, value } => (Key::decode(&key), Some(value)),
        Change::Delete { key } => (Key::decode(&key), None),
    };
    let is_sayable = is_restorable(&key)
        && key.kind != ItemKind::Mapping as u8
        && value.as_ref().is_none_or(|value| value.len() <= VALUE_LEN_MAX);
    if is_sayable && any_contains(scan.lost, &key) {
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

/// The changes of a whole batch.
fn read(volume: &Volume<'_>, batch: &[(u64, OldChunk)]) -> Option<Vec<Change>> {
    batch.iter().any(|(_, chunk)| chunk.has_delta).then_some(())?;
    let mut delta = Vec::new();
    let mut before: Option<ChunkSummary> = None;
    for (_, chunk) in batch {
        let summary = log::summary(volume, chunk.segment, chunk.block)?;
        let is_next = before.is_none_or(|before| before.checksum == summary.header.previous);
        is_next.then_some(())?;
        delta.extend_from_slice(&summary.delta);
        before = Some(summary);
    }
    let at = before.map_or(0, |chunk| chunk.header.address);
    Change::decode_all(&delta, at).ok()
}
