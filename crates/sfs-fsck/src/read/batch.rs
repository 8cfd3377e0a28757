//! Effect of one batch of the log on the tree.

use sfs_core::format::{
    Change, ChunkSummary, Corruption, CorruptionKind, DecodeError, Incompatibility, Key, Mapping,
    Structure, SummaryEntry, Tolerance, is_allowed_in_delta,
};

use crate::finding::Finding;
use crate::read::log_tail::SegmentChanges;
use crate::read::overlay_tree::OverlayTree;

/// Reason why a batch has no effect.
pub(crate) enum BatchError {
    Damaged(Finding),
    Incompatible(Incompatibility),
}

impl From<Finding> for BatchError {
    fn from(finding: Finding) -> Self {
        Self::Damaged(finding)
    }
}

impl From<DecodeError> for BatchError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt(corruption) => Self::Damaged(Finding::DeltaDamaged { corruption }),
            DecodeError::Incompatible(reason) => Self::Incompatible(reason),
        }
    }
}

impl From<Corruption> for BatchError {
    fn from(corruption: Corruption) -> Self {
        DecodeError::Corrupt(corruption).into()
    }
}

/// Applies a batch to `tree`: first unmaps, then items, then the mappings of its data. Returns its changes of
/// segment states.
pub(crate) fn apply_batch(
    batch: &[ChunkSummary],
    tree: &mut OverlayTree<'_>,
    next_ino: &mut u64,
) -> Result<SegmentChanges, BatchError> {
    let at = batch.first().map_or(0, |chunk| chunk.header.address);
    let wrong = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
    let changes = Change::decode_batch(batch)?;
    let tolerance = tree.volume.superblock.tolerance();
    changes.iter().try_for_each(|change| check_key(change, at, tolerance))?;
    if !Change::are_sound(&changes, &tree.volume.superblock) {
        return Err(wrong.into());
    }
    for change in &changes {
        match *change {
            Change::Unmap { ino, first, last } => {
                tree.unmap(ino, first..=last)?;
            }
            Change::NextIno(ino) => *next_ino = ino.max(*next_ino),
            Change::Put { .. }
            | Change::Delete { .. }
            | Change::Release { .. }
            | Change::Map { .. } => {}
        }
    }
    let mut segments = SegmentChanges::default();
    let mut maps = Vec::new();
    for change in changes {
        match change {
            Change::Release { segment, stamp } => segments.released.push((stamp, segment)),
            Change::Map { .. } => maps.push(change),
            Change::Put { key, value } => tree.edits.put(Key::decode(&key), value),
            Change::Delete { key } => tree.edits.delete(Key::decode(&key)),
            Change::Unmap { .. } | Change::NextIno(_) => {}
        }
    }
    map_data(batch, tree)?;
    for map in maps {
        segments.placed.insert(apply_map(&map, tree)?.ok_or(wrong)?);
    }
    Ok(segments)
}

/// Maps the data blocks that the summaries of `batch` describe.
fn map_data(batch: &[ChunkSummary], tree: &mut OverlayTree<'_>) -> Result<(), DecodeError> {
    for chunk in batch {
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        for (address, entry) in (first..).zip(&chunk.entries) {
            let SummaryEntry::Data { ino, block, checksum, history } = *entry else {
                continue;
            };
            let mapping = Mapping { address, checksum: Some(checksum), history };
            tree.map(ino, block, Some(mapping))?;
        }
    }
    Ok(())
}

/// Maps blocks that are overwritten in place. Returns their segment, if they lie in a segment.
fn apply_map(map: &Change, tree: &mut OverlayTree<'_>) -> Result<Option<u32>, DecodeError> {
    let Change::Map { ino, block, count, address } = *map else { return Ok(None) };
    let segment = map.mapped_segment(tree.volume.layout());
    for at in (0..count).filter(|_| segment.is_some()) {
        tree.map(ino, block + at, Some(Mapping::in_place(address + u64::from(at))))?;
    }
    Ok(segment)
}

/// Refuses a change of an item that no delta changes.
fn check_key(change: &Change, at: u64, tolerance: Tolerance) -> Result<(), Finding> {
    let (Change::Put { key, .. } | Change::Delete { key }) = change else { return Ok(()) };
    let key = Key::decode(key);
    if is_allowed_in_delta(&key, tolerance) {
        Ok(())
    } else {
        Err(Finding::DeltaKey { address: at, key })
    }
}
