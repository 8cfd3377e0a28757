//! The requests of a mounted volume, or system calls, as requests to a device: the files follow one another in the order of their first
//! requests, each from a whole mebibyte on, as those of an iolog do.
//!
//! Data is written, read and trimmed where it is in its file; a sync of any file is a flush. A file that loses its last
//! name is trimmed.

use anyhow::{Context, Result};
use sfs_ssd::RequestKind;

use super::record::TraceRecord;
use crate::request_load::{LoadAction, RequestLoad};

/// Alignment of the files in the address space, in bytes.
const FILE_ALIGNMENT: u64 = 1 << 20;

/// Parses all requests of a text that [`RequestLoad::parse`] takes.
pub(super) fn records(text: &str) -> Result<Vec<TraceRecord>> {
    let load = RequestLoad::parse(text)?;
    let mut bases = Vec::with_capacity(load.files.len());
    let mut end = 0_u64;
    for file in &load.files {
        bases.push(end);
        let room = file.end.checked_next_multiple_of(FILE_ALIGNMENT);
        let next = room.and_then(|room| end.checked_add(room)).filter(|end| *end < 1 << 62);
        end = next.context("the files of the trace are too large together")?;
    }
    let mut records = Vec::with_capacity(load.operations.len());
    for operation in &load.operations {
        let file = operation.file as usize;
        let (kind, offset, len) = match operation.action {
            LoadAction::Read { offset, len } => (RequestKind::Read, offset, len),
            LoadAction::Write { offset, len } => (RequestKind::Write, offset, len),
            LoadAction::Punch { offset, len } => {
                (RequestKind::Trim, offset, len.min(load.files[file].end.saturating_sub(offset)))
            }
            LoadAction::Truncate { size } => {
                (RequestKind::Trim, size, load.files[file].end.saturating_sub(size))
            }
            LoadAction::Delete => (RequestKind::Trim, 0, load.files[file].end),
            LoadAction::Sync | LoadAction::SyncAll => {
                records.push(TraceRecord::new(operation.at_us, RequestKind::Flush, 0, 0));
                continue;
            }
            LoadAction::Make => continue,
        };
        if len > 0 {
            records.push(TraceRecord::new(operation.at_us, kind, bases[file] + offset, len));
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use sfs_ssd::RequestKind::{Flush, Trim, Write};

    use crate::block_trace::BlockTrace;

    #[test]
    fn the_files_of_a_volume_follow_one_another() {
        let text = format!(
            "{}1,create,9,0,0,5,0,1\n2,write,9,0,8192,5,0,0\n3,write,7,4096,100,5,0,0\n\
             4,write,9,0,8192,5,28,0\n5,fsync,7,0,0,5,0,0\n6,truncate,9,4096,0,5,0,0\n\
             7,unlink,9,0,0,5,0,1\n",
            sfs_trace::TraceProperties::default()
        );
        let trace = BlockTrace::parse(&text).expect("a trace");
        let seen: Vec<_> =
            trace.records.iter().map(|r| (r.at_us, r.kind, r.offset, r.len)).collect();
        let expected = [
            (2, Write, 0, 8192),
            (3, Write, (1 << 20) + 4096, 100),
            (5, Flush, 0, 0),
            (6, Trim, 4096, 4096),
            (7, Trim, 0, 8192),
        ];
        assert_eq!(seen, expected, "the request that failed is left out");
    }
}
