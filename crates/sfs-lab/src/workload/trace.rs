//! Recorded streams: CSV in zstd, `us,op,offset,len`, as `docs/lab/traces.md` describes.
//!
//! Owns: reading a trace, and its blocks renumbered from zero.
//! Promises: only blocks that are written at all have a number; reads are left out.
//! Never: keeps the time between operations.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;

use super::{Operation, Workload};

const BLOCK_BYTES: u64 = 4096;

/// Sectors by which a partition of old is off the 4 KiB grid: it began at sector 63.
const OLD_PARTITION_BYTES: u64 = 7 * 512;

/// A trace in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    operations: Vec<Operation>,
    block_count: u32,
}

/// The write and trim records of a trace, in bytes.
struct Record {
    trim: bool,
    offset: u64,
    len: u64,
}

impl TraceFile {
    /// Reads it whole.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("trace {}", path.display()))?;
        let decoder = ruzstd::decoding::StreamingDecoder::new(BufReader::new(file))
            .with_context(|| format!("{}: not zstd", path.display()))?;
        let mut records = Vec::new();
        for (line_no, line) in (1..).zip(BufReader::new(decoder).lines()) {
            let line = line.with_context(|| format!("{} line {line_no}", path.display()))?;
            let wrong = || format!("{} line {line_no}: {line}", path.display());
            records.extend(record(&line).with_context(wrong)?);
        }
        let trace = Self::from_records(&records);
        if trace.operations.is_empty() {
            bail!("{}: nothing is written", path.display());
        }
        Ok(trace)
    }

    fn from_records(records: &[Record]) -> Self {
        // Most requests of a partition that is off the grid begin as far off it.
        let off = records.iter().filter(|r| r.offset % BLOCK_BYTES == OLD_PARTITION_BYTES).count();
        let shift = if off * 2 > records.len() { OLD_PARTITION_BYTES } else { 0 };
        let mut numbers = FxHashMap::default();
        let mut operations = Vec::new();
        for record in records {
            let start = record.offset.saturating_sub(shift);
            let end = start + record.len;
            // A block that is written in part is written; one that is trimmed in part stays.
            let blocks = if record.trim {
                start.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES
            } else {
                start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
            };
            for block in blocks {
                if record.trim {
                    operations.extend(numbers.get(&block).copied().map(Operation::delete));
                } else {
                    let next = numbers.len() as u32;
                    operations.push(Operation::write(*numbers.entry(block).or_insert(next)));
                }
            }
        }
        Self { operations, block_count: numbers.len() as u32 }
    }

    /// Different blocks in it.
    pub fn block_count(&self) -> u32 {
        self.block_count
    }
}

/// A write or trim; `None` for a read and for the heading.
fn record(line: &str) -> Result<Option<Record>> {
    let mut fields = line.split(',');
    let mut field = || fields.next().context("a field is missing");
    field()?;
    let trim = match field()? {
        "W" => false,
        "T" => true,
        "R" | "op" => return Ok(None),
        other => bail!("no such operation: {other}"),
    };
    Ok(Some(Record { trim, offset: field()?.parse()?, len: field()?.parse()? }))
}

/// A trace, again and again.
pub struct Replay<'a> {
    trace: &'a TraceFile,
    next: usize,
}

impl<'a> Replay<'a> {
    /// From its beginning.
    pub fn new(trace: &'a TraceFile) -> Self {
        Self { trace, next: 0 }
    }
}

impl Workload for Replay<'_> {
    fn next(&mut self) -> Operation {
        let operation = self.trace.operations[self.next];
        self.next = (self.next + 1) % self.trace.operations.len();
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> TraceFile {
        let records: Vec<Record> =
            text.lines().filter_map(|line| record(line).expect("a record")).collect();
        TraceFile::from_records(&records)
    }

    #[test]
    fn requests_become_blocks() {
        let trace =
            trace("us,op,offset,len\n0,W,8192,4097\n1,R,0,4096\n2,W,12288,1\n3,T,8000,9000");
        let expected = [
            Operation::write(0),
            Operation::write(1),
            Operation::write(1),
            Operation::delete(0),
            Operation::delete(1),
        ];
        assert_eq!(trace.operations, expected);
        assert_eq!(trace.block_count(), 2);
    }

    #[test]
    fn an_old_partition_is_put_on_the_grid() {
        assert_eq!(trace("0,W,3584,4096\n0,W,7680,4096\n").operations.len(), 2);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        assert!(record("0,X,1,1").is_err());
        assert!(record("0,W,1").is_err());
    }
}
