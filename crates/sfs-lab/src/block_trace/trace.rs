//! A trace in memory, and the choice of a parser for a file.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::record::TraceRecord;
use super::{blkparse, csv, iolog, requests};
use crate::{request_load, trace_text};

/// The requests of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTrace {
    /// The requests, in their order.
    pub records: Vec<TraceRecord>,
}

impl BlockTrace {
    /// Reads a file, plain or compressed by zstd: the requests of a mounted volume (`docs/trace-format.md`), CSV
    /// (`us,op,offset,len` or `op,offset,len`, see `docs/lab/traces.md`), the text of blkparse, fio's iolog, or system calls.
    pub fn open(path: &Path) -> Result<BlockTrace> {
        let text = trace_text::read(path)?;
        BlockTrace::parse(&text).with_context(|| path.display().to_string())
    }

    /// Parses the text of a trace in any of the formats of [`BlockTrace::open`].
    pub fn parse(text: &str) -> Result<BlockTrace> {
        let first = text.lines().next().unwrap_or("");
        let records = match first {
            sfs_trace::HEADING => requests::records(text)?,
            _ if request_load::is_call(first) => requests::records(text)?,
            _ if first.starts_with(iolog::HEADING) => iolog::records(text)?,
            _ if first.contains(',') && first.split_whitespace().count() == 1 => {
                csv::records(text)?
            }
            _ => blkparse::records(text)?,
        };
        if records.is_empty() {
            bail!("the trace has no request");
        }
        Ok(BlockTrace { records })
    }

    /// Returns the trace as CSV that [`BlockTrace::parse`] reads.
    pub fn to_csv(&self) -> String {
        csv::text(&self.records)
    }

    /// Returns the offset after the last byte that any request touches.
    pub fn end(&self) -> u64 {
        self.records.iter().map(TraceRecord::end).max().unwrap_or(0)
    }

    /// Returns the same trace for a smaller device: units of `unit` bytes that no request touches are
    /// left out, and the others keep their order. Offsets within a unit stay as they are. A request
    /// spans two units only if they were neighbours before.
    pub fn compact(&self, unit: u64) -> BlockTrace {
        let units = |record: &TraceRecord| record.offset / unit..record.end().div_ceil(unit);
        let mut touched: Vec<u64> = self.records.iter().flat_map(units).collect();
        touched.sort_unstable();
        touched.dedup();
        let moved = |record: &TraceRecord| {
            let index = touched.partition_point(|&touched| touched < record.offset / unit);
            TraceRecord { offset: index as u64 * unit + record.offset % unit, ..*record }
        };
        BlockTrace { records: self.records.iter().map(moved).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sfs_ssd::RequestKind::{self, Flush, Read, Trim, Write};

    fn kinds(text: &str) -> Vec<(u64, RequestKind, u64, u64)> {
        let trace = BlockTrace::parse(text).expect("a trace");
        trace.records.iter().map(|r| (r.at_us, r.kind, r.offset, r.len)).collect()
    }

    #[test]
    fn csv_may_have_times_and_streams() {
        let timed = "us,op,offset,len,file_id\n5,W,512,4096,9\n6,R,0,512,9\n7,T,0,8192,9\n";
        let expected = [(5, Write, 512, 4096), (6, Read, 0, 512), (7, Trim, 0, 8192)];
        assert_eq!(kinds(timed), expected);
        assert_eq!(
            kinds("op,offset,len\nW,0,512\nF,0,0\n"),
            [(0, Write, 0, 512), (0, Flush, 0, 0)]
        );
        assert_eq!(kinds("op,offset,len,stream\nW,0,512,3\n").len(), 1);
        let trace = BlockTrace::parse("op,offset,len,stream\nW,0,512,3\n").expect("a trace");
        assert_eq!(trace.records[0].stream, 3);
    }

    #[test]
    fn blkparse_prefers_issued_requests_to_queued_ones() {
        let text = "\
  8,0    1        1     0.000000000   697  Q   W 8 + 8 [fio]
  8,0    1        2     0.000002000   697  D   W 8 + 8 [fio]
  8,0    1        3     0.000500000   697  C   W 8 + 8 [0]
  8,0    1        4     0.001000000   697  D FWFS 16 + 16 [jbd2]
  8,0    1        5     0.002000000   697  D  FN [kworker]
  8,0    1        6     0.003000000   697  D  RA 0 + 8 [cat]
  8,0    1        7     0.004000000   697  D   D 64 + 128 [fstrim]
  8,0    1        0     0.004000000     0  m   N cfq something
CPU0 (8,0):
 Reads Queued:           1,        4KiB	 Writes Queued:           2,       12KiB
";
        let expected = [
            (2, Write, 4096, 4096),
            (1000, Flush, 0, 0),
            (1000, Write, 8192, 8192),
            (1000, Flush, 0, 0),
            (2000, Flush, 0, 0),
            (3000, Read, 0, 4096),
            (4000, Trim, 32768, 65536),
        ];
        assert_eq!(kinds(text), expected);
    }

    #[test]
    fn iologs_of_versions_2_and_3_are_read() {
        let second = "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x write 4096 512\n\
                      /dev/x wait 70 0\n/dev/x datasync 0 0\n/dev/x trim 0 4096\n/dev/x close\n";
        assert_eq!(kinds(second), [(0, Write, 4096, 512), (70, Flush, 0, 0), (70, Trim, 0, 4096)]);
        let third = "fio version 3 iolog\n30 /f add\n170 /f open\n177 /f write 0 4096\n\
                     190 /f read 8192 4096\n231 /f sync 28672 0\n";
        let expected = [(177, Write, 0, 4096), (190, Read, 8192, 4096), (231, Flush, 0, 0)];
        assert_eq!(kinds(third), expected);
    }

    #[test]
    fn the_files_of_an_iolog_follow_one_another() {
        let text = "fio version 2 iolog\n/a add\n/b add\n/b write 0 512\n/a write 4096 4096\n";
        let expected = [(0, Write, 1 << 20, 512), (0, Write, 4096, 4096)];
        assert_eq!(kinds(text), expected);
    }

    #[test]
    fn a_malformed_trace_is_an_error() {
        for text in [
            "",
            "us,op,offset,len\n1,X,0,0\n",
            "us,op,offset,len\n1,W,0\n",
            "us,kind,offset,len\n1,W,0,1\n",
            "us,op,offset,len\n1,W,a,1\n",
            "fio version 2 iolog\n/a write 0\n",
            "fio version 9 iolog\n",
        ] {
            assert!(BlockTrace::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn compacting_keeps_offsets_within_a_unit() {
        let text = "op,offset,len\nW,9000,100\nW,100000,4096\nW,12000,1000\n";
        let trace = BlockTrace::parse(text).expect("a trace").compact(4096);
        let offsets: Vec<u64> = trace.records.iter().map(|record| record.offset).collect();
        assert_eq!(offsets, [808, 2 * 4096 + 100_000 % 4096, 3808]);
        assert_eq!(trace.end(), 2 * 4096 + 100_000 % 4096 + 4096);
    }
}
