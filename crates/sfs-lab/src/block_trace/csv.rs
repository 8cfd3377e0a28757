//! CSV: a heading that names the columns, then a request a line.
//!
//! Owns: the columns `us` (missing: no times), `op` (R, W, T for trim, F for flush), `offset`,
//! `len` (bytes) and `stream` (missing: none); others are passed over.
//! Promises: a column may stand anywhere.
//! Never: guesses a heading.

use anyhow::{Context, Result, bail};
use sfs_ssd::RequestKind;

use super::{Record, number};

struct Columns {
    us: Option<usize>,
    op: usize,
    offset: usize,
    len: usize,
    stream: Option<usize>,
}

impl Columns {
    fn of(heading: &str) -> Result<Columns> {
        let place = |name: &str| heading.split(',').position(|column| column.trim() == name);
        let needed = |name: &str| place(name).with_context(|| format!("no column {name}"));
        Ok(Columns {
            us: place("us"),
            op: needed("op")?,
            offset: needed("offset")?,
            len: needed("len")?,
            stream: place("stream"),
        })
    }

    fn record(&self, line: &str) -> Result<Record> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |no: usize| fields.get(no).copied().context("a field is missing");
        let optional = |no: Option<usize>| no.map_or(Ok(0), |no| number(field(no)?));
        let kind = match field(self.op)? {
            "R" => RequestKind::Read,
            "W" => RequestKind::Write,
            "T" => RequestKind::Trim,
            "F" => RequestKind::Flush,
            other => bail!("no such operation: {other}"),
        };
        let (offset, len) = (number(field(self.offset)?)?, number(field(self.len)?)?);
        let stream = u8::try_from(optional(self.stream)?).context("a stream is below 256")?;
        Ok(Record { stream, ..Record::new(optional(self.us)?, kind, offset, len) })
    }
}

pub(super) fn records(text: &str) -> Result<Vec<Record>> {
    let mut lines = (1..).zip(text.lines());
    let (_, heading) = lines.next().context("it is empty")?;
    let columns = Columns::of(heading)?;
    lines
        .map(|(no, line)| columns.record(line).with_context(|| format!("line {no}: {line}")))
        .collect()
}
