//! Recorded traces as workloads, at the granularity of blocks.
//!
//! Blocks that the trace writes are numbered from zero in the order of their first write; blocks that
//! it only reads or trims have no number. Reads, flushes and times are left out.

use std::path::Path;

use anyhow::{Result, bail};
use rustc_hash::FxHashMap;
use sfs_ssd::RequestKind;

use super::operation::{BlockOperation, Workload};
use crate::block_trace::{BlockTrace, TraceRecord};

const BLOCK_BYTES: u64 = 4096;

/// Offset from the 4 KiB grid of a partition that begins at sector 63.
const OLD_PARTITION_BYTES: u64 = 7 * 512;

/// A trace in memory, as operations on blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    operations: Vec<BlockOperation>,
    block_count: u32,
}

impl TraceFile {
    /// Reads a trace in any format of [`BlockTrace::open`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read or parsed, or writes nothing.
    pub fn open(path: &Path) -> Result<Self> {
        let trace = BlockTrace::open(path)?;
        let file = Self::from_records(&trace.records);
        if file.operations.is_empty() {
            bail!("{}: the trace writes nothing", path.display());
        }
        Ok(file)
    }

    fn from_records(records: &[TraceRecord]) -> Self {
        let shift = grid_shift(records);
        let mut numbers = FxHashMap::default();
        let mut operations = Vec::new();
        for record in records {
            let start = record.offset.saturating_sub(shift);
            let end = start + record.len;
            match record.kind {
                // A block that is written in part is written; a block that is trimmed in part stays.
                RequestKind::Write => {
                    for block in start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
                        let next = numbers.len() as u32;
                        let number = *numbers.entry(block).or_insert(next);
                        operations.push(BlockOperation::write(number));
                    }
                }
                RequestKind::Trim => {
                    for block in start.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES {
                        operations.extend(numbers.get(&block).copied().map(BlockOperation::delete));
                    }
                }
                RequestKind::Read | RequestKind::Flush => {}
            }
        }
        Self { operations, block_count: numbers.len() as u32 }
    }

    /// Returns the number of different blocks that the trace writes.
    pub fn block_count(&self) -> u32 {
        self.block_count
    }
}

/// Returns the number of bytes by which the partition of a trace is off the 4 KiB grid. Most
/// requests of an old partition have the same offset from the grid as the partition.
fn grid_shift(records: &[TraceRecord]) -> u64 {
    let changes =
        || records.iter().filter(|r| matches!(r.kind, RequestKind::Write | RequestKind::Trim));
    let off = changes().filter(|r| r.offset % BLOCK_BYTES == OLD_PARTITION_BYTES).count();
    if off * 2 > changes().count() { OLD_PARTITION_BYTES } else { 0 }
}

/// The endless stream of a trace, which starts again after its last operation.
pub struct TraceReplay<'a> {
    trace: &'a TraceFile,
    next: usize,
}

impl<'a> TraceReplay<'a> {
    /// Returns a stream that starts at the first operation of `trace`.
    pub fn new(trace: &'a TraceFile) -> Self {
        Self { trace, next: 0 }
    }
}

impl Workload for TraceReplay<'_> {
    fn next(&mut self) -> BlockOperation {
        let operation = self.trace.operations[self.next];
        self.next = (self.next + 1) % self.trace.operations.len();
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &str) -> TraceFile {
        let text = format!("us,op,offset,len\n{lines}");
        TraceFile::from_records(&BlockTrace::parse(&text).expect("a trace").records)
    }

    #[test]
    fn partial_writes_write_a_block_and_partial_trims_keep_it() {
        let trace = trace("0,W,8192,4097\n1,R,0,4096\n2,W,12288,1\n3,T,8000,9000\n");
        let expected = [
            BlockOperation::write(0),
            BlockOperation::write(1),
            BlockOperation::write(1),
            BlockOperation::delete(0),
            BlockOperation::delete(1),
        ];
        assert_eq!(trace.operations, expected);
        assert_eq!(trace.block_count(), 2);
    }

    #[test]
    fn a_partition_at_sector_63_is_moved_to_the_grid() {
        assert_eq!(trace("0,W,3584,4096\n0,W,7680,4096\n").operations.len(), 2);
    }

    #[test]
    fn a_trace_that_writes_nothing_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("reads.csv");
        std::fs::write(&path, "us,op,offset,len\n0,R,0,4096\n").expect("a file");
        let error = TraceFile::open(&path).expect_err("no workload").to_string();
        assert!(error.ends_with("reads.csv: the trace writes nothing"), "{error}");
    }
}
