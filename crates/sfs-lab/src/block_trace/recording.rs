//! The log of [`sfs_device::RecordingDevice`], as a trace and as CSV.
//!
//! Owns: the translation from its events.
//! Promises: what is written as CSV and read again is the same trace.
//! Never: keeps contents.

use std::fmt::Write;

use sfs_device::{BLOCK_SIZE, BlockRange, Event};
use sfs_ssd::RequestKind;

use super::{BlockTrace, Record};

impl BlockTrace {
    /// The trace of what a device recorded: its writes, discards and flushes, without times.
    pub fn from_events(events: &[Event]) -> BlockTrace {
        BlockTrace { records: events.iter().map(record).collect() }
    }

    /// The trace as CSV that [`BlockTrace::parse`] reads.
    pub fn to_csv(&self) -> String {
        let mut text = String::from("us,op,offset,len,stream\n");
        for Record { at_us, kind, offset, len, stream } in &self.records {
            let op = match kind {
                RequestKind::Read => 'R',
                RequestKind::Write => 'W',
                RequestKind::Trim => 'T',
                RequestKind::Flush => 'F',
            };
            writeln!(text, "{at_us},{op},{offset},{len},{stream}").expect("memory");
        }
        text
    }
}

fn record(event: &Event) -> Record {
    let of = |kind, range: &BlockRange| {
        let block = BLOCK_SIZE as u64;
        Record::new(0, kind, range.address * block, range.block_count * block)
    };
    match event {
        Event::Write { range, stream, .. } => {
            Record { stream: stream.0, ..of(RequestKind::Write, range) }
        }
        Event::Discard { range } => of(RequestKind::Trim, range),
        Event::Flush => Record::new(0, RequestKind::Flush, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::{Block, Device, Keep, RamDevice, RecordingDevice, Stream};

    use super::*;

    #[test]
    fn a_recording_comes_back_from_csv() {
        let device = RecordingDevice::new(RamDevice::new(100), Keep::Requests);
        let blocks = Block::zeroed(3);
        device.write(7, &[&blocks[..2], &blocks[2..]], Stream(4)).expect("written");
        device.flush().expect("flushed");
        device.discard(1, 2).expect("discarded");
        let trace = BlockTrace::from_events(&device.events());
        let write = Record { stream: 4, ..Record::new(0, RequestKind::Write, 28672, 12288) };
        let flush = Record::new(0, RequestKind::Flush, 0, 0);
        let trim = Record::new(0, RequestKind::Trim, 4096, 8192);
        assert_eq!(trace.records, [write, flush, trim]);
        assert_eq!(BlockTrace::parse(&trace.to_csv()).expect("a trace"), trace);
    }
}
