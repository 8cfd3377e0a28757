//! Roll-forward: the batches past the checkpoint, applied as edits of its tree.
//!
//! [`LogTail`] finds the next chunk, and a whole batch takes effect at its last one. Sequence numbers grow
//! from chunk to chunk, so the loop ends with the log.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{
    Change, CheckpointRecord, ChunkSummary, Corruption, CorruptionKind, DELTA_LEN_MAX, DecodeError,
    HEADS_MAX, Incompatibility, Key, Mapping, SegmentState, Structure, SummaryEntry, Tolerance,
    is_sayable,
};

use crate::error::FsckError;
use crate::finding::Finding;
use crate::findings::Findings;
use crate::progress::{self, ProgressListener, Stage};
use crate::read::chunk;
use crate::read::overlay_tree::OverlayTree;
use crate::read::segment_scan::ChunkPositions;
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Fewest blocks that a head needs to append a chunk.
const CHUNK_BLOCKS_MIN: u32 = 2;

/// Log past a checkpoint, as far as it was read.
struct LogTail<'f> {
    /// Sequence number of the next chunk.
    next_sequence: u64,
    /// Checksum of the last chunk.
    previous: u32,
    /// Segment and next block of each head.
    heads: BTreeMap<u8, (u32, u32)>,
    /// Segments that a head may open, by stamp.
    clean: BTreeSet<(u64, u32)>,
    /// Segments that deltas have released.
    released: BTreeSet<u32>,
    /// Segments that are Placed.
    placed: BTreeSet<u32>,
    /// Chunks that a scan of all segments found.
    found: &'f ChunkPositions,
}

/// Result of a roll-forward.
#[derive(Default)]
pub(crate) struct RollForward {
    /// Number of chunks that took effect.
    pub(crate) chunks: u64,
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
    /// Released segments without a chunk since.
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
            let corruption = Corruption::new(Structure::Delta, at, CorruptionKind::Length);
            findings.push(Finding::DeltaDamaged { corruption });
            break;
        }
        rolled.segments.extend(volume.layout().segment_of(chunk.header.address));
        rolled.time = rolled.time.max(chunk.header.time);
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
    rolled.released = tail.released;
    rolled.released.retain(|segment| !rolled.segments.contains(segment));
    Ok(rolled)
}

impl<'f> LogTail<'f> {
    fn new(
        volume: &VolumeReader<'_>,
        record: &CheckpointRecord,
        usage: &UsageEntries,
        found: &'f ChunkPositions,
    ) -> Self {
        let layout = volume.layout();
        let heads = record.heads.iter().filter(|head| {
            head.segment < layout.segment_count && head.next_block <= layout.segment_blocks
        });
        let in_state = |states: &'static [SegmentState]| {
            let entries = usage.iter().filter(|(_, entry)| states.contains(&entry.state));
            entries.map(|(segment, entry)| (entry.stamp, segment))
        };
        let clean = in_state(&[SegmentState::Clean, SegmentState::Drained]);
        Self {
            next_sequence: record.next_sequence,
            previous: record.previous,
            heads: heads.map(|head| (head.head, (head.segment, head.next_block))).collect(),
            clean: clean.collect(),
            released: BTreeSet::new(),
            placed: in_state(&[SegmentState::Placed]).map(|(_, segment)| segment).collect(),
            found,
        }
    }

    /// Returns the next chunk, if it is whole, and advances behind it. The chunk is at a head, at the start
    /// of the Clean segment with the lowest stamp, or at a position from the scan.
    fn next(&mut self, volume: &VolumeReader<'_>) -> Option<ChunkSummary> {
        let layout = volume.layout();
        let at_heads = self.heads.iter().map(|(head, (segment, block))| (*head, *segment, *block));
        let found = at_heads
            .filter(|(_, _, block)| layout.segment_blocks - block >= CHUNK_BLOCKS_MIN)
            .find_map(|(head, segment, block)| {
                self.expected(volume, segment, block)
                    .filter(|chunk| chunk.header.head == head)
                    .map(|chunk| (chunk, segment, block))
            })
            .or_else(|| {
                let (_, segment) = *self.clean.first()?;
                self.expected(volume, segment, 0).map(|chunk| (chunk, segment, 0))
            })
            .or_else(|| {
                let positions = self.found.get(&self.next_sequence)?;
                positions.iter().find_map(|(segment, block)| {
                    let chunk = self.expected(volume, *segment, *block)?;
                    Some((chunk, *segment, *block))
                })
            });
        let (chunk, segment, block) = found?;
        if block == 0 {
            self.clean.retain(|(_, other)| *other != segment);
        }
        self.heads.insert(chunk.header.head, (segment, block + chunk.block_count() as u32));
        self.next_sequence = self.next_sequence.checked_add(1)?;
        self.previous = chunk.checksum;
        Some(chunk)
    }

    /// Applies the segment changes of `batch`. A segment that becomes Placed must be Placed or Clean. A
    /// released segment must be Placed, or Sealed with data at the checkpoint and without chunks past it.
    fn settle(
        &mut self,
        SegmentChanges { released, placed }: SegmentChanges,
        usage: &UsageEntries,
        recent: &BTreeSet<u32>,
        batch: &[ChunkSummary],
    ) -> Result<(), Finding> {
        let at = batch.first().map_or(0, |chunk| chunk.header.address);
        let corruption = Corruption::new(Structure::Delta, at, CorruptionKind::Value);
        let wrong = Finding::DeltaDamaged { corruption };
        for segment in placed {
            let count = self.clean.len();
            self.clean.retain(|(_, clean)| *clean != segment);
            if self.clean.len() == count && !self.placed.contains(&segment) {
                return Err(wrong);
            }
            self.placed.insert(segment);
            self.released.remove(&segment);
        }
        for (stamp, segment) in released {
            let sealed = usage.get(segment).is_some_and(|entry| {
                entry.state == SegmentState::Sealed && entry.data_group().is_some()
            });
            let is_log = sealed && !recent.contains(&segment);
            let drained = self.placed.remove(&segment) || is_log;
            if !drained || !self.released.insert(segment) {
                return Err(wrong);
            }
            self.clean.insert((stamp, segment));
        }
        Ok(())
    }

    /// Returns the chunk at this position, if it is the next one and whole.
    fn expected(
        &self,
        volume: &VolumeReader<'_>,
        segment: u32,
        block: u32,
    ) -> Option<ChunkSummary> {
        chunk::read_summary(volume, segment, block).filter(|chunk| {
            chunk.header.sequence == self.next_sequence
                && chunk.header.previous == self.previous
                && usize::from(chunk.header.head) < HEADS_MAX
                && chunk::is_whole(volume, chunk)
        })
    }
}

/// Reason why a batch has no effect.
enum BatchError {
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

/// Changes of segment states in a batch.
#[derive(Default)]
struct SegmentChanges {
    /// Stamps and numbers of released segments.
    released: Vec<(u64, u32)>,
    placed: BTreeSet<u32>,
}

/// Applies a batch to `tree`: first unmaps, then items, then the mappings of its data. Returns its changes of
/// segment states.
fn apply_batch(
    batch: &[ChunkSummary],
    tree: &mut OverlayTree<'_>,
    next_ino: &mut u64,
) -> Result<SegmentChanges, BatchError> {
    let at = batch.first().map_or(0, |chunk| chunk.header.address);
    let wrong = Corruption::new(Structure::Delta, at, CorruptionKind::Value);
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

/// Maps blocks that are overwritten in place. Returns their segment, if they lie in one.
fn apply_map(map: &Change, tree: &mut OverlayTree<'_>) -> Result<Option<u32>, DecodeError> {
    let Change::Map { ino, block, count, address } = *map else { return Ok(None) };
    let segment = map.mapped_segment(tree.volume.layout());
    for at in (0..count).filter(|_| segment.is_some()) {
        tree.map(ino, block + at, Some(Mapping::placed(address + u64::from(at))))?;
    }
    Ok(segment)
}

/// Refuses a change of an item that no delta changes.
fn check_key(change: &Change, at: u64, tolerance: Tolerance) -> Result<(), Finding> {
    let (Change::Put { key, .. } | Change::Delete { key }) = change else { return Ok(()) };
    let key = Key::decode(key);
    if is_sayable(&key, tolerance) { Ok(()) } else { Err(Finding::DeltaKey { address: at, key }) }
}
