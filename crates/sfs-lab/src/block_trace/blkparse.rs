//! The text of blkparse(1), in its default format.
//!
//! Owns: `major,minor cpu sequence seconds pid action RWBS sector + sectors [process]`.
//! Promises: each request once: as it was issued to the driver (D), or, if nothing was, as it was
//! queued (Q).
//! Never: takes the summary at the end for requests.

use anyhow::{Context, Result};
use sfs_ssd::RequestKind;

use super::{Record, number};

const SECTOR_SIZE: u64 = 512;

pub(super) fn records(text: &str) -> Result<Vec<Record>> {
    let issued = of_action(text, "D")?;
    if issued.is_empty() { of_action(text, "Q") } else { Ok(issued) }
}

fn of_action(text: &str, action: &str) -> Result<Vec<Record>> {
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

/// An F before the kind of a request means a flush before it, one behind it a flush after it.
fn add(records: &mut Vec<Record>, fields: &[&str]) -> Result<()> {
    let seconds: f64 = fields[3].parse().context("the time")?;
    let at_us = (seconds * 1e6).round() as u64;
    let rwbs = fields.get(6).context("no RWBS")?;
    let flush = Record::new(at_us, RequestKind::Flush, 0, 0);
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
        records.push(Record::new(at_us, kind, offset, len));
        records.extend(rest.contains('F').then_some(flush));
    }
    Ok(())
}
