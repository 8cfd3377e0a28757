//! Statistics of a block trace, which depend on no device: those of Shin's slides (mean size, segmented
//! sequentiality), and those of the FAST 2009 paper (focal factor, blocks a sync).
//!
//! A flush counts as a sync only if a write came after the last sync.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use sfs_ssd::RequestKind;

use super::record::TraceRecord;
use super::trace::BlockTrace;

/// Size of Shin's segment, in bytes (slide "I/O statistics (2/2)").
const SEGMENT_SIZE: u64 = 1 << 20;

/// Size of the blocks that R counts, in bytes.
const BLOCK_SIZE: u64 = 4096;

/// Statistics of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceStatistics {
    /// Number of read requests.
    pub reads: u64,
    /// Number of write requests.
    pub writes: u64,
    /// Number of trim requests.
    pub trims: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Number of bytes of all reads.
    pub read_bytes: u64,
    /// Number of bytes of all writes.
    pub written_bytes: u64,
    /// Share, 0..=1, of the written bytes that begin a segment of 1 MiB, or continue at the end of the
    /// last write to their segment. Shin's slides do not define the term.
    pub segmented_sequentiality: f64,
    /// Number of syncs with at least one write since the sync before.
    pub syncs: u64,
    /// R: mean number of 4 KiB blocks that a sync writes; zero without syncs.
    pub sync_blocks: f64,
    /// f: the share of a sync's blocks that go to one logical block, which is syncs over visits of
    /// syncs to logical blocks. A visit writes f R blocks. Zero without syncs.
    pub focal_factor: f64,
}

/// Moments at which the host waits for its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// Every flush of the trace.
    Flushes,
    /// The end of each interval of this number of writes, for traces without flushes.
    EveryWrites(u64),
}

impl TraceStatistics {
    /// Returns the statistics of `trace`, with logical blocks of `logical_block` bytes (FAST 2009
    /// paper, section 3.3).
    pub fn of(trace: &BlockTrace, logical_block: u64, syncs: Syncs) -> TraceStatistics {
        let mut statistics = TraceStatistics::default();
        let mut sequence = Sequence::default();
        let mut focus = Focus::default();
        for record in &trace.records {
            match record.kind {
                RequestKind::Read => {
                    statistics.reads += 1;
                    statistics.read_bytes += record.len;
                }
                RequestKind::Write => {
                    statistics.writes += 1;
                    statistics.written_bytes += record.len;
                    sequence.write(record);
                    focus.write(record, logical_block);
                    if matches!(syncs, Syncs::EveryWrites(count) if statistics.writes % count == 0)
                    {
                        focus.sync();
                    }
                }
                RequestKind::Trim => statistics.trims += 1,
                RequestKind::Flush => {
                    statistics.flushes += 1;
                    if syncs == Syncs::Flushes {
                        focus.sync();
                    }
                }
            }
        }
        statistics.segmented_sequentiality =
            share(sequence.sequential_bytes, statistics.written_bytes);
        statistics.syncs = focus.syncs;
        statistics.sync_blocks = share(focus.blocks, focus.syncs);
        statistics.focal_factor = share(focus.syncs, focus.visits);
        statistics
    }

    /// Returns the mean size of a write in KiB.
    pub fn write_kib(&self) -> f64 {
        share(self.written_bytes, self.writes) / 1024.0
    }

    /// Returns the mean size of a read in KiB.
    pub fn read_kib(&self) -> f64 {
        share(self.read_bytes, self.reads) / 1024.0
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The end of the last write to each segment.
#[derive(Default)]
struct Sequence {
    ends: FxHashMap<u64, u64>,
    sequential_bytes: u64,
}

impl Sequence {
    fn write(&mut self, record: &TraceRecord) {
        for (segment, first, end) in pieces(record, SEGMENT_SIZE) {
            let last_end = self.ends.insert(segment, end);
            if first == segment * SEGMENT_SIZE || last_end == Some(first) {
                self.sequential_bytes += end - first;
            }
        }
    }
}

/// Logical blocks and blocks that syncs write.
#[derive(Default)]
struct Focus {
    /// Logical blocks written since the last sync.
    visited: FxHashSet<u64>,
    /// Blocks of 4 KiB written since the last sync.
    written: FxHashSet<u64>,
    syncs: u64,
    visits: u64,
    blocks: u64,
}

impl Focus {
    fn write(&mut self, record: &TraceRecord, logical_block: u64) {
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

/// Returns the units of `size` bytes that a request touches: the number of each, and the offsets at
/// which the request begins and ends in it.
fn pieces(record: &TraceRecord, size: u64) -> impl Iterator<Item = (u64, u64, u64)> + use<> {
    let (offset, end) = (record.offset, record.end());
    (offset / size..end.div_ceil(size))
        .map(move |unit| (unit, offset.max(unit * size), end.min((unit + 1) * size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(text: &str, syncs: Syncs) -> TraceStatistics {
        let text = format!("op,offset,len\n{text}");
        let trace = BlockTrace::parse(&text).expect("a trace");
        TraceStatistics::of(&trace, 4 << 20, syncs)
    }

    #[test]
    fn sequentiality_is_counted_within_segments() {
        // Two segments are written in turn, each in order; only the last write is not sequential.
        let text = "W,0,4096\nW,1048576,4096\nW,4096,8192\nW,1052672,4096\nW,40960,4096\n";
        let statistics = statistics(text, Syncs::Flushes);
        assert_eq!(statistics.segmented_sequentiality, 20480.0 / 24576.0);
        assert_eq!(statistics.write_kib(), 4.8);
    }

    #[test]
    fn a_write_across_a_border_counts_in_two_segments() {
        let statistics = statistics("W,1044480,8192\n", Syncs::Flushes);
        assert_eq!(statistics.segmented_sequentiality, 0.5);
    }

    #[test]
    fn the_focal_factor_is_syncs_over_visits_to_logical_blocks() {
        // Four blocks go to one logical block, then one block to each of two. The flush without
        // writes is no sync.
        let text = "W,0,8192\nW,65536,8192\nF,0,0\nF,0,0\nW,0,4096\nW,8388608,4096\nF,0,0\n";
        let statistics = statistics(text, Syncs::Flushes);
        assert_eq!((statistics.flushes, statistics.syncs), (3, 2));
        assert_eq!((statistics.sync_blocks, statistics.focal_factor), (3.0, 2.0 / 3.0));
    }

    #[test]
    fn a_number_of_writes_can_stand_for_a_sync() {
        let text = "W,0,4096\nW,0,4096\nW,4096,4096\nR,0,4096\nW,8388608,4096\n";
        assert_eq!(statistics(text, Syncs::Flushes).syncs, 0);
        let statistics = statistics(text, Syncs::EveryWrites(2));
        assert_eq!(
            (statistics.syncs, statistics.sync_blocks, statistics.read_kib()),
            (2, 1.5, 4.0)
        );
        assert_eq!(statistics.focal_factor, 2.0 / 3.0);
    }
}
