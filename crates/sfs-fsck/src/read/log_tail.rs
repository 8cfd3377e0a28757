//! Position in the log past a checkpoint: the next chunk, and the states of segments there.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{
    CheckpointRecord, ChunkSummary, Corruption, CorruptionKind, HEADS_MAX, Head, SegmentState,
    Structure,
};

use crate::finding::Finding;
use crate::read::chunk;
use crate::read::segment_scan::ChunkPositions;
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Changes of segment states in a batch.
#[derive(Default)]
pub(crate) struct SegmentChanges {
    /// Stamps and numbers of released segments.
    pub(crate) released: Vec<(u64, u32)>,
    pub(crate) placed: BTreeSet<u32>,
}

/// Minimum number of blocks that a head needs to append a chunk.
const CHUNK_BLOCKS_MIN: u32 = 2;

/// Log past a checkpoint, as far as it was read.
pub(crate) struct LogTail<'f> {
    /// Sequence number of the next chunk.
    pub(crate) next_sequence: u64,
    /// Checksum of the last chunk.
    pub(crate) previous: u32,
    /// Segment and next block of each head.
    heads: BTreeMap<Head, (u32, u32)>,
    /// Segments that a head may open, by stamp.
    clean: BTreeSet<(u64, u32)>,
    /// Segments that deltas have released.
    pub(crate) released: BTreeSet<u32>,
    /// Segments that were taken into use, once for each time.
    pub(crate) opened: Vec<u32>,
    /// Segments that are Placed.
    placed: BTreeSet<u32>,
    /// Chunks that a scan of all segments found.
    found: &'f ChunkPositions,
}

impl<'f> LogTail<'f> {
    /// Returns the position after the checkpoint `record`.
    pub(crate) fn new(
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
            opened: Vec::new(),
            placed: in_state(&[SegmentState::InPlace]).map(|(_, segment)| segment).collect(),
            found,
        }
    }

    /// Returns the next chunk, if it is whole, and advances to its end. The chunk is at a head, at the start
    /// of the Clean segment with the lowest stamp, or at a position from the scan.
    pub(crate) fn next(&mut self, volume: &VolumeReader<'_>) -> Option<ChunkSummary> {
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
            self.opened.push(segment);
        }
        self.heads.insert(chunk.header.head, (segment, block + chunk.block_count() as u32));
        self.next_sequence = self.next_sequence.checked_add(1)?;
        self.previous = chunk.checksum;
        Some(chunk)
    }

    /// Applies the segment changes of `batch`. A segment that becomes Placed must be Placed or Clean. A
    /// released segment must be Placed, or Sealed with data at the checkpoint and without chunks past it.
    pub(crate) fn settle(
        &mut self,
        SegmentChanges { released, placed }: SegmentChanges,
        usage: &UsageEntries,
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
            if self.placed.insert(segment) {
                self.opened.push(segment);
            }
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
                && chunk.header.head.index() < HEADS_MAX
                && chunk::is_whole(volume, chunk)
        })
    }
}
