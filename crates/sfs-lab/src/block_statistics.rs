//! What a block trace looks like from outside.
//!
//! Owns: the figures of Shin's slides (mean size, segmented sequentiality) and of the FAST'09
//! paper (focal factor, what a sync writes).
//! Promises: only the trace matters, no device.
//! Never: counts a flush that nothing was written before.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use sfs_ssd::RequestKind;

use crate::block_trace::{BlockTrace, Record};

/// Shin's segment (slide "I/O statistics (2/2)").
const SEGMENT_SIZE: u64 = 1 << 20;

/// What R counts.
const BLOCK_SIZE: u64 = 4096;

/// Figures of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BlockStatistics {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Trim requests.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Share of the written bytes that begin a segment of 1 MiB, or go on where the last write to
    /// their segment ended. Shin's slides do not define it; this is what the name says.
    pub segmented_sequentiality: f64,
    /// Syncs that something was written for.
    pub syncs: u64,
    /// R: blocks of 4 KiB that a sync writes, in the mean; zero if there is none.
    pub sync_blocks: f64,
    /// f: the share of a sync's blocks that go to one logical block: syncs over visits of syncs to
    /// logical blocks, so that f R blocks are written a visit. Zero if there is no sync.
    pub focal_factor: f64,
}

/// When the host waits for its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// When the trace has a flush.
    Flushes,
    /// After so many writes: for traces without flushes.
    EveryWrites(u64),
}

impl BlockStatistics {
    /// The figures of `trace`, with logical blocks of `logical_block` bytes (FAST'09 paper,
    /// section 3.3).
    pub fn of(trace: &BlockTrace, logical_block: u64, syncs: Syncs) -> BlockStatistics {
        let mut figures = BlockStatistics::default();
        let mut sequence = Sequence::default();
        let mut focus = Focus::default();
        for record in &trace.records {
            match record.kind {
                RequestKind::Read => {
                    figures.reads += 1;
                    figures.read_bytes += record.len;
                }
                RequestKind::Write => {
                    figures.writes += 1;
                    figures.written_bytes += record.len;
                    sequence.write(record);
                    focus.write(record, logical_block);
                    if matches!(syncs, Syncs::EveryWrites(count) if figures.writes % count == 0) {
                        focus.sync();
                    }
                }
                RequestKind::Trim => figures.trims += 1,
                RequestKind::Flush => {
                    figures.flushes += 1;
                    if syncs == Syncs::Flushes {
                        focus.sync();
                    }
                }
            }
        }
        figures.segmented_sequentiality = share(sequence.sequential_bytes, figures.written_bytes);
        figures.syncs = focus.syncs;
        figures.sync_blocks = share(focus.blocks, focus.syncs);
        figures.focal_factor = share(focus.syncs, focus.visits);
        figures
    }

    /// Mean size of a write, in KiB.
    pub fn write_kib(&self) -> f64 {
        share(self.written_bytes, self.writes) / 1024.0
    }

    /// Mean size of a read, in KiB.
    pub fn read_kib(&self) -> f64 {
        share(self.read_bytes, self.reads) / 1024.0
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Where each segment was last written.
#[derive(Default)]
struct Sequence {
    ends: FxHashMap<u64, u64>,
    sequential_bytes: u64,
}

impl Sequence {
    fn write(&mut self, record: &Record) {
        for (segment, first, end) in pieces(record, SEGMENT_SIZE) {
            let last_end = self.ends.insert(segment, end);
            if first == segment * SEGMENT_SIZE || last_end == Some(first) {
                self.sequential_bytes += end - first;
            }
        }
    }
}

/// What syncs write, and where.
#[derive(Default)]
struct Focus {
    /// Since the last sync: logical blocks, and blocks of 4 KiB.
    visited: FxHashSet<u64>,
    written: FxHashSet<u64>,
    syncs: u64,
    visits: u64,
    blocks: u64,
}

impl Focus {
    fn write(&mut self, record: &Record, logical_block: u64) {
        self.visited.extend(pieces(record, logical_block).map(|(block, ..)| block));
        self.written.extend(pieces(record, BLOCK_SIZE).map(|(block, ..)| block));
    }

    fn sync(&mut self) {
        if !self.written.is_empty() {
            self.syncs += 1;
            self.visits += self.visited.len() as u64;
            self.blocks += self.written.len() as u64;
            self.visited.clear();
            self.written.clear();
        }
    }
}

/// The units of `size` bytes that a request touches: their numbers, and where it begins and ends in
/// each.
fn pieces(record: &Record, size: u64) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
    let (offset, end) = (record.offset, record.end());
    (offset / size..end.div_ceil(size))
        .map(move |unit| (unit, offset.max(unit * size), end.min((unit + 1) * size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(text: &str, syncs: Syncs) -> BlockStatistics {
        let text = format!("op,offset,len\n{text}");
        let trace = BlockTrace::parse(&text).expect("a trace");
        BlockStatistics::of(&trace, 4 << 20, syncs)
    }

    #[test]
    fn sequentiality_is_within_segments() {
        // Two segments are written in turn, each in order: all is sequential but what jumps.
        let text = "W,0,4096\nW,1048576,4096\nW,4096,8192\nW,1052672,4096\nW,40960,4096\n";
        let figures = figures(text, Syncs::Flushes);
        assert_eq!(figures.segmented_sequentiality, 20480.0 / 24576.0);
        assert_eq!(figures.write_kib(), 4.8);
    }

    #[test]
    fn a_write_over_a_border_is_in_two_segments() {
        let figures = figures("W,1044480,8192\n", Syncs::Flushes);
        assert_eq!(figures.segmented_sequentiality, 0.5);
    }

    #[test]
    fn focus_is_blocks_of_a_sync_in_one_logical_block() {
        // Four blocks to one logical block, then two to two; the flush without writes is none.
        let text = "W,0,8192\nW,65536,8192\nF,0,0\nF,0,0\nW,0,4096\nW,8388608,4096\nF,0,0\n";
        let figures = figures(text, Syncs::Flushes);
        assert_eq!((figures.flushes, figures.syncs), (3, 2));
        assert_eq!((figures.sync_blocks, figures.focal_factor), (3.0, 2.0 / 3.0));
    }

    #[test]
    fn a_trace_without_flushes_can_be_cut_by_writes() {
        let text = "W,0,4096\nW,0,4096\nW,4096,4096\nR,0,4096\nW,8388608,4096\n";
        assert_eq!(figures(text, Syncs::Flushes).syncs, 0);
        let figures = figures(text, Syncs::EveryWrites(2));
        assert_eq!((figures.syncs, figures.sync_blocks, figures.read_kib()), (2, 1.5, 4.0));
        assert_eq!(figures.focal_factor, 2.0 / 3.0);
    }
}
