//! fio's iolog, versions 2 and 3.
//!
//! Owns: `[microseconds] file action [offset length]`.
//! Promises: several files lie one after the other, in the order in which they are added, each at
//! a whole mebibyte.
//! Never: opens the files.

use anyhow::{Context, Result, bail};
use sfs_ssd::RequestKind;

use super::{IOLOG_HEADING, Record, number};

const FILE_ALIGNMENT: u64 = 1 << 20;

/// A request of a file, by its number.
type FileRecord = (usize, Record);

#[derive(Default)]
struct Log<'a> {
    files: Vec<&'a str>,
    now_us: u64,
    records: Vec<FileRecord>,
}

pub(super) fn records(text: &str) -> Result<Vec<Record>> {
    let mut lines = (1..).zip(text.lines());
    let heading = lines.next().map_or("", |(_, line)| line);
    let version = heading.strip_prefix(IOLOG_HEADING).and_then(|rest| rest.split(' ').next());
    let timed = match version {
        Some("2") => false,
        Some("3") => true,
        _ => bail!("no iolog of version 2 or 3: {heading}"),
    };
    let mut log = Log::default();
    for (no, line) in lines {
        log.line(line, timed).with_context(|| format!("line {no}: {line}"))?;
    }
    Ok(log.placed())
}

impl<'a> Log<'a> {
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
            other => bail!("no such action: {other}"),
        };
        let record = match kind {
            RequestKind::Flush => Record::new(self.now_us, kind, 0, 0),
            _ => Record::new(self.now_us, kind, number(field()?)?, number(field()?)?),
        };
        let file = self.file(file);
        self.records.push((file, record));
        Ok(())
    }

    fn file(&mut self, name: &'a str) -> usize {
        let known = self.files.iter().position(|&file| file == name);
        known.unwrap_or_else(|| {
            self.files.push(name);
            self.files.len() - 1
        })
    }

    fn placed(self) -> Vec<Record> {
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
        let place = |(file, record): FileRecord| match record.kind {
            RequestKind::Flush => record,
            _ => Record { offset: starts[file] + record.offset, ..record },
        };
        self.records.into_iter().map(place).collect()
    }
}
