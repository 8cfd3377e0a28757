//! fio's iolog, versions 2 and 3: `[microseconds] file action [offset length]`.
//!
//! The trace has one address space: the files follow one another in the order in which the log adds
//! them, each from a whole mebibyte on. The files themselves are not opened.

use anyhow::{Context, Result, bail};
use sfs_ssd::RequestKind;

use super::record::{TraceRecord, number};

/// Beginning of the first line.
pub(super) const HEADING: &str = "fio version ";

/// Alignment of the files in the address space, in bytes.
const FILE_ALIGNMENT: u64 = 1 << 20;

/// A request and the number of its file; the offset is within the file.
type FileRecord = (usize, TraceRecord);

#[derive(Default)]
struct IologParser<'a> {
    files: Vec<&'a str>,
    now_us: u64,
    records: Vec<FileRecord>,
}

/// Parses all requests of a text.
pub(super) fn records(text: &str) -> Result<Vec<TraceRecord>> {
    let mut lines = (1..).zip(text.lines());
    let heading = lines.next().map_or("", |(_, line)| line);
    let version = heading.strip_prefix(HEADING).and_then(|rest| rest.split(' ').next());
    let timed = match version {
        Some("2") => false,
        Some("3") => true,
        _ => bail!("not an iolog of version 2 or 3: {heading}"),
    };
    let mut log = IologParser::default();
    for (no, line) in lines {
        log.line(line, timed).with_context(|| format!("line {no}: {line}"))?;
    }
    Ok(log.into_records())
}

impl<'a> IologParser<'a> {
    /// Parses a line.
    fn line(&mut self, line: &'a str, timed: bool) -> Result<()> {
        let mut fields = line.split_whitespace();
        let mut field = || fields.next().context("a field is missing");
        if timed {
            self.now_us = number(field()?)?;
        }
        let (file, action) = (field()?, field()?);
        let kind = match action {
            "add" | "open" | "close" => {
                self.file(file);
                return Ok(());
            }
            "wait" => {
                self.now_us += number(field()?)?;
                return Ok(());
            }
            "read" => RequestKind::Read,
            "write" => RequestKind::Write,
            "trim" => RequestKind::Trim,
            "sync" | "datasync" => RequestKind::Flush,
            other => bail!("unknown action: {other}"),
        };
        let record = match kind {
            RequestKind::Flush => TraceRecord::new(self.now_us, kind, 0, 0),
            _ => TraceRecord::new(self.now_us, kind, number(field()?)?, number(field()?)?),
        };
        let file = self.file(file);
        self.records.push((file, record));
        Ok(())
    }

    /// Returns the number of a file, which is a new number for a new name.
    fn file(&mut self, name: &'a str) -> usize {
        let known = self.files.iter().position(|&file| file == name);
        known.unwrap_or_else(|| {
            self.files.push(name);
            self.files.len() - 1
        })
    }

    /// Returns the requests with offsets in the common address space.
    fn into_records(self) -> Vec<TraceRecord> {
        let mut ends = vec![0; self.files.len()];
        for (file, record) in &self.records {
            ends[*file] = record.end().max(ends[*file]);
        }
        let mut next = 0;
        let starts: Vec<u64> = ends
            .iter()
            .map(|end: &u64| {
                let start = next;
                next += end.next_multiple_of(FILE_ALIGNMENT);
                start
            })
            .collect();
        let shifted = |(file, record): FileRecord| match record.kind {
            RequestKind::Flush => record,
            _ => TraceRecord { offset: starts[file] + record.offset, ..record },
        };
        self.records.into_iter().map(shifted).collect()
    }
}
