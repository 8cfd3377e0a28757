//! Roll-forward: the batches past the checkpoint, as edits of its tree.
//!
//! Owns: where the next chunk can be, and the effect of a batch.
//! Promises: each chunk is used once, as sequence numbers grow, so it ends with the log.
//! Never: writes.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{
    Change, CheckpointRecord, ChunkSummary, Corruption, CorruptionKind, DELTA_LEN_MAX, DecodeError,
    HEADS_MAX, Incompatibility, Key, Mapping, SegmentState, Structure, SummaryEntry, Tolerance,
    is_allowed_in_delta,
};

use crate::log;
use crate::progress::{Listener, Stage, tell};
use crate::scan::Chunks;
use crate::usage::Usage;
use crate::view::View;
use crate::volume::Volume;
use crate::{Finding, Findings, FsckError};

/// Fewest blocks that a head needs to append a chunk.
const ROOM_MIN: u32 = 2;

/// The log past a checkpoint.
struct Log<'f> {
    next_sequence: u64,
    previous: u32,
    /// Segment and next block of each head.
    heads: BTreeMap<u8, (u32, u32)>,
    /// Segments that may be opened, by stamp.
    clean: BTreeSet<(u64, u32)>,
    /// Segments that deltas have released.
    released: BTreeSet<u32>,
    /// Segments that are Placed.
    placed: BTreeSet<u32>,
    found: &'f Chunks,
}

/// What the log said.
#[derive(Default)]
pub(crate) struct Rolled {
    /// Chunks that took effect.
    pub(crate) chunks: u64,
    /// Inode numbers below this one have been given out.
    pub(crate) next_ino: u64,
    /// Where the log ends: what the next chunk would be.
    pub(crate) next_sequence: u64,
    pub(crate) previous: u32,
    /// The time of the last chunk, in ticks.
    pub(crate) time: u32,
    /// Segments that chunks past the checkpoint are in.
    pub(crate) segments: BTreeSet<u32>,
    /// Segments that were released, and have no chunk since.
    pub(crate) released: BTreeSet<u32>,
}

/// Applies what the log holds past `record` to `view`. Where the usage table does not lead to the next
/// chunk, it may be among those that were `found`.
pub(crate) fn roll_forward(
    view: &mut View<'_>,
    record: &CheckpointRecord,
    usage: &Usage,
    found: &Chunks,
    findings: &mut Findings,
    listener: Listener<'_>,
) -> Result<Rolled, FsckError> {
    let volume = view.volume;
    let mut log = Log::new(volume, record, usage, found);
    let mut rolled = Rolled { chunks: 0, next_ino: record.next_ino, ..Rolled::default() };
    let (mut batch, mut delta_len, mut blocks) = (Vec::new(), 0, 0);
    while let Some(chunk) = log.next(volume) {
        blocks += chunk.block_count();
        tell(listener, Stage::Log, blocks, 0)?;
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
        batch.push(chunk);
        if !is_end {
            continue;
        }
        let outcome = apply(&batch, view, &mut rolled.next_ino)
            .and_then(|said| Ok(log.settle(said, usage, &rolled.segments, &batch)?));
        match outcome {
            Ok(()) => {}
            Err(Obstacle::Incompatible(what)) => return Err(FsckError::Incompatible(what)),
            Err(Obstacle::Damage(finding)) => {
                findings.push(finding);
                break;
            }
        }
        rolled.chunks += batch.len() as u64;
        batch.clear();
        delta_len = 0;
    }
    (rolled.next_sequence, rolled.previous) = (log.next_sequence, log.previous);
    rolled.released = log.released;
    rolled.released.retain(|segment| !rolled.segments.contains(segment));
    Ok(rolled)
}

impl<'f> Log<'f> {
    fn new(
        volume: &Volume<'_>,
        record: &CheckpointRecord,
        usage: &Usage,
        found: &'f Chunks,
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
            placed: in_state(&[SegmentState::InPlace]).map(|(_, segment)| segment).collect(),
            found,
        }
    }

    /// The next whole chunk, after which the log stands behind it.
    fn next(&mut self, volume: &Volume<'_>) -> Option<ChunkSummary> {
        let layout = volume.layout();
        let at_heads = self.heads.iter().map(|(head, (segment, block))| (*head, *segment, *block));
        let found = at_heads
            .filter(|(_, _, block)| layout.segment_blocks - block >= ROOM_MIN)
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
                let places = self.found.get(&self.next_sequence)?;
                places.iter().find_map(|(segment, block)| {
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

    /// `batch` says that segments are Placed, which had to be so or Clean, and that others are Clean. They
    /// had to be Drained, and to hold nothing that is needed to read the log: data that was there at the
    /// checkpoint or is placed, and no chunk since.
    fn settle(
        &mut self,
        Said { released, placed }: Said,
        usage: &Usage,
        recent: &BTreeSet<u32>,
        batch: &[ChunkSummary],
    ) -> Result<(), Finding> {
        let at = batch.first().map_or(0, |chunk| chunk.header.address);
        let corruption = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
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

    /// The chunk at that place, if it is the next one, and whole.
    fn expected(&self, volume: &Volume<'_>, segment: u32, block: u32) -> Option<ChunkSummary> {
        log::summary(volume, segment, block).filter(|chunk| {
            chunk.header.sequence == self.next_sequence
                && chunk.header.previous == self.previous
                && usize::from(chunk.header.head) < HEADS_MAX
                && log::is_whole(volume, chunk)
        })
    }
}

/// Why a batch has no effect.
enum Obstacle {
    Damage(Finding),
    Incompatible(Incompatibility),
}

impl From<Finding> for Obstacle {
    fn from(finding: Finding) -> Self {
        Self::Damage(finding)
    }
}

impl From<DecodeError> for Obstacle {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt(corruption) => Self::Damage(Finding::DeltaDamaged { corruption }),
            DecodeError::Incompatible(what) => Self::Incompatible(what),
        }
    }
}

impl From<Corruption> for Obstacle {
    fn from(corruption: Corruption) -> Self {
        DecodeError::Corrupt(corruption).into()
    }
}

/// What a batch says of segments.
#[derive(Default)]
struct Said {
    /// With their stamps.
    released: Vec<(u64, u32)>,
    placed: BTreeSet<u32>,
}

/// Applies a batch: unmaps, then items, then the mappings of its data. Gives what it says of segments.
fn apply(
    batch: &[ChunkSummary],
    view: &mut View<'_>,
    next_ino: &mut u64,
) -> Result<Said, Obstacle> {
    let at = batch.first().map_or(0, |chunk| chunk.header.address);
    let wrong = Corruption::in_block(Structure::Delta, at, CorruptionKind::Value);
    let changes = Change::decode_batch(batch)?;
    let tolerance = view.volume.superblock.tolerance();
    changes.iter().try_for_each(|change| check_key(change, at, tolerance))?;
    if !Change::are_sound(&changes, &view.volume.superblock) {
        return Err(wrong.into());
    }
    for change in &changes {
        match *change {
            Change::Unmap { ino, first, last } => {
                view.unmap(ino, first..=last)?;
            }
            Change::NextIno(ino) => *next_ino = ino.max(*next_ino),
            Change::Put { .. }
            | Change::Delete { .. }
            | Change::Release { .. }
            | Change::Map { .. } => {}
        }
    }
    let mut said = Said::default();
    let mut maps = Vec::new();
    for change in changes {
        match change {
            Change::Release { segment, stamp } => said.released.push((stamp, segment)),
            Change::Map { .. } => maps.push(change),
            Change::Put { key, value } => view.edits.put(Key::decode(&key), value),
            Change::Delete { key } => view.edits.delete(Key::decode(&key)),
            Change::Unmap { .. } | Change::NextIno(_) => {}
        }
    }
    for chunk in batch {
        let first = chunk.header.address + chunk.summary_blocks() as u64;
        for (address, entry) in (first..).zip(&chunk.entries) {
            let SummaryEntry::Data { ino, block, checksum, history } = *entry else {
                continue;
            };
            let mapping = Mapping { address, checksum: Some(checksum), history };
            view.map(ino, block, Some(mapping))?;
        }
    }
    for map in maps {
        said.placed.insert(apply_map(&map, view)?.ok_or(wrong)?);
    }
    Ok(said)
}

/// Maps blocks beside the log; gives their segment, if they lie in one.
fn apply_map(map: &Change, view: &mut View<'_>) -> Result<Option<u32>, DecodeError> {
    let Change::Map { ino, block, count, address } = *map else { return Ok(None) };
    let segment = map.mapped_segment(view.volume.layout());
    for at in (0..count).filter(|_| segment.is_some()) {
        view.map(ino, block + at, Some(Mapping::in_place(address + u64::from(at))))?;
    }
    Ok(segment)
}

/// A change of an item that deltas do not change is told by its key.
fn check_key(change: &Change, at: u64, tolerance: Tolerance) -> Result<(), Finding> {
    let (Change::Put { key, .. } | Change::Delete { key }) = change else { return Ok(()) };
    let key = Key::decode(key);
    if is_allowed_in_delta(&key, tolerance) {
        Ok(())
    } else {
        Err(Finding::DeltaKey { address: at, key })
    }
}
