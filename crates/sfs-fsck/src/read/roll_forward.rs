//! Roll-forward: the batches past the checkpoint, applied as edits of its tree.
//!
//! [`LogTail`] finds the next chunk, and a whole batch takes effect at its last chunk. Sequence
//! numbers grow from chunk to chunk, so the loop ends with the log.

use std::collections::BTreeSet;

use sfs_core::format::{
    CheckpointRecord, Corruption, CorruptionKind, DELTA_LEN_MAX, Structure, WearBytes,
};

use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::{self, ProgressListener, Stage};
use crate::read::batch::{BatchError, apply_batch};
use crate::read::log_tail::LogTail;
use crate::read::overlay_tree::OverlayTree;
use crate::read::segment_scan::ChunkPositions;
use crate::read::usage::UsageEntries;

/// Result of a roll-forward.
#[derive(Default)]
pub(crate) struct RollForward {
    /// Number of chunks that took effect.
    pub(crate) chunks: u64,
    /// Bytes of all chunks, whether they took effect or not.
    pub(crate) bytes: WearBytes,
    /// Segments that were taken into use, once for each time.
    pub(crate) opened: Vec<u32>,
    /// Lowest inode number that was never allocated.
    pub(crate) next_ino: u64,
    /// Sequence number of the chunk that would follow the log.
    pub(crate) next_sequence: u64,
    /// Checksum of the last chunk of the log.
    pub(crate) previous: u32,
    /// Latest time of all chunks, in ticks.
    pub(crate) time: u32,
    /// Segments with chunks past the checkpoint.
    pub(crate) segments: BTreeSet<u32>,
    /// Released segments without chunks past the checkpoint.
    pub(crate) released: BTreeSet<u32>,
}

/// Applies the log past the checkpoint `record` to `tree`. A next chunk to which the heads and the usage
/// table do not lead is taken from `found`.
pub(crate) fn roll_forward(
    tree: &mut OverlayTree<'_>,
    record: &CheckpointRecord,
    usage: &UsageEntries,
    found: &ChunkPositions,
    findings: &mut Findings,
    listener: ProgressListener<'_>,
) -> Result<RollForward, FsckError> {
    let volume = tree.volume;
    let mut tail = LogTail::new(volume, record, usage, found);
    let mut rolled = RollForward { chunks: 0, next_ino: record.next_ino, ..RollForward::default() };
    let (mut batch, mut delta_len, mut blocks) = (Vec::new(), 0, 0);
    while let Some(chunk) = tail.next(volume) {
        blocks += chunk.block_count();
        progress::report(listener, Stage::Log, blocks, 0)?;
        let is_end = chunk.header.end;
        delta_len += chunk.delta.len();
        if delta_len > DELTA_LEN_MAX {
            let at = chunk.header.address;
            let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Length);
            findings.push(Finding::DeltaDamaged { corruption });
            break;
        }
        rolled.segments.extend(volume.layout().segment_of(chunk.header.address));
        rolled.time = rolled.time.max(chunk.header.time);
        rolled.bytes.add(WearBytes::of_chunk(&chunk));
        batch.push(chunk);
        if !is_end {
            continue;
        }
        let applied = apply_batch(&batch, tree, &mut rolled.next_ino)
            .and_then(|changes| Ok(tail.settle(changes, usage, &rolled.segments, &batch)?));
        match applied {
            Ok(()) => {}
            Err(BatchError::Incompatible(reason)) => return Err(FsckError::Incompatible(reason)),
            Err(BatchError::Damaged(finding)) => {
                findings.push(finding);
                break;
            }
        }
        rolled.chunks += batch.len() as u64;
        batch.clear();
        delta_len = 0;
    }
    (rolled.next_sequence, rolled.previous) = (tail.next_sequence, tail.previous);
    (rolled.released, rolled.opened) = (tail.released, tail.opened);
    rolled.released.retain(|segment| !rolled.segments.contains(segment));
    Ok(rolled)
}
