//! The text of blkparse(1), in its default format:
//! `major,minor cpu sequence seconds pid action RWBS sector + sectors [process]`.
//!
//! Each request is taken once: at its issue to the driver (D) or, in a text without such events, at
//! its queueing (Q). Other lines, such as the summary at the end, are ignored.

use anyhow::{Context, Result};
use sfs_ssd::RequestKind;

use super::record::{TraceRecord, number};

const SECTOR_SIZE: u64 = 512;

/// Parses all requests of a text.
pub(super) fn records(text: &str) -> Result<Vec<TraceRecord>> {
    let issued = records_of_action(text, "D")?;
    if issued.is_empty() { records_of_action(text, "Q") } else { Ok(issued) }
}

fn records_of_action(text: &str, action: &str) -> Result<Vec<TraceRecord>> {
    let mut records = Vec::new();
    for (no, line) in (1..).zip(text.lines()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_event = fields.first().is_some_and(|device| device.contains(','))
            && fields.get(5) == Some(&action);
        if is_event {
            add(&mut records, &fields).with_context(|| format!("line {no}: {line}"))?;
        }
    }
    Ok(records)
}

/// Adds the requests of an event. An F before the kind means a flush before the request, an F after
/// the kind a flush after it.
fn add(records: &mut Vec<TraceRecord>, fields: &[&str]) -> Result<()> {
    let seconds: f64 = fields[3].parse().context("the time")?;
    let at_us = (seconds * 1e6).round() as u64;
    let rwbs = fields.get(6).context("no RWBS")?;
    let flush = TraceRecord::new(at_us, RequestKind::Flush, 0, 0);
    let (before, rest) = match rwbs.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, *rwbs),
    };
    records.extend(before.then_some(flush));
    let kind = match rest.chars().next() {
        Some('R') => RequestKind::Read,
        Some('W') => RequestKind::Write,
        Some('D') => RequestKind::Trim,
        _ => return Ok(()),
    };
    if let [sector, "+", sectors, ..] = fields[7..] {
        let (offset, len) = (number(sector)? * SECTOR_SIZE, number(sectors)? * SECTOR_SIZE);
        records.push(TraceRecord::new(at_us, kind, offset, len));
        records.extend(rest.contains('F').then_some(flush));
    }
    Ok(())
}
