//! Traces from the log of [`sfs_device::RecordingDevice`], without the contents of writes.

use sfs_device::{BLOCK_SIZE, BlockRange, Event};
use sfs_ssd::RequestKind;

use super::record::TraceRecord;
use super::trace::BlockTrace;

impl From<&[Event]> for BlockTrace {
    /// Returns the writes, discards and flushes of a recording device, without times.
    fn from(events: &[Event]) -> BlockTrace {
        BlockTrace { records: events.iter().map(record).collect() }
    }
}

fn record(event: &Event) -> TraceRecord {
    let of = |kind, range: &BlockRange| {
        let block = BLOCK_SIZE as u64;
        TraceRecord::new(0, kind, range.address * block, range.block_count * block)
    };
    match event {
        Event::Write { range, stream, .. } => {
            TraceRecord { stream: stream.0, ..of(RequestKind::Write, range) }
        }
        Event::Discard { range } => of(RequestKind::Trim, range),
        Event::Flush => TraceRecord::new(0, RequestKind::Flush, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use sfs_device::{Block, Device, Keep, RamDevice, RecordingDevice, Stream};

    use super::*;

    #[test]
    fn a_recording_survives_writing_and_reading_csv() {
        let device = RecordingDevice::new(RamDevice::new(100), Keep::Requests);
        let blocks = Block::zeroed(3);
        device.write(7, &[&blocks[..2], &blocks[2..]], Stream(4)).expect("written");
        device.flush().expect("flushed");
        device.discard(1, 2).expect("discarded");
        let trace = BlockTrace::from(&device.events()[..]);
        let write =
            TraceRecord { stream: 4, ..TraceRecord::new(0, RequestKind::Write, 28672, 12288) };
        let flush = TraceRecord::new(0, RequestKind::Flush, 0, 0);
        let trim = TraceRecord::new(0, RequestKind::Trim, 4096, 8192);
        assert_eq!(trace.records, [write, flush, trim]);
        assert_eq!(BlockTrace::parse(&trace.to_csv()).expect("a trace"), trace);
    }
}
