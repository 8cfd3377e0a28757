//! Traces as CSV: a heading that names the columns, then one request a line.
//!
//! The columns are `us` (optional: microseconds), `op` (R, W, T for trim, F for flush), `offset` and
//! `len` (bytes), and `stream` (optional), in any order. Other columns are ignored.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sfs_ssd::RequestKind;

use super::record::TraceRecord;

/// A line of the file. The order of the fields is that of the columns which [`text`] writes.
#[derive(Serialize, Deserialize)]
struct CsvRow {
    #[serde(default)]
    us: u64,
    op: CsvKind,
    offset: u64,
    len: u64,
    #[serde(default)]
    stream: u8,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum CsvKind {
    #[serde(rename = "R")]
    Read,
    #[serde(rename = "W")]
    Write,
    #[serde(rename = "T")]
    Trim,
    #[serde(rename = "F")]
    Flush,
}

/// Parses all requests of a text.
pub(super) fn records(text: &str) -> Result<Vec<TraceRecord>> {
    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    reader.deserialize().map(|row| Ok(record(row?))).collect()
}

/// Returns the CSV of the requests.
pub(super) fn text(records: &[TraceRecord]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.serialize(row(record)).expect("a vector takes every row");
    }
    let bytes = writer.into_inner().expect("a vector takes every row");
    String::from_utf8(bytes).expect("numbers and letters are UTF-8")
}

fn record(row: CsvRow) -> TraceRecord {
    let kind = match row.op {
        CsvKind::Read => RequestKind::Read,
        CsvKind::Write => RequestKind::Write,
        CsvKind::Trim => RequestKind::Trim,
        CsvKind::Flush => RequestKind::Flush,
    };
    TraceRecord { stream: row.stream, ..TraceRecord::new(row.us, kind, row.offset, row.len) }
}

fn row(record: &TraceRecord) -> CsvRow {
    let op = match record.kind {
        RequestKind::Read => CsvKind::Read,
        RequestKind::Write => CsvKind::Write,
        RequestKind::Trim => CsvKind::Trim,
        RequestKind::Flush => CsvKind::Flush,
    };
    CsvRow { us: record.at_us, op, offset: record.offset, len: record.len, stream: record.stream }
}
