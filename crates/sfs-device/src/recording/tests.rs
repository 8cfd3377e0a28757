//! Tests of recordings, and of the images made from them.

use super::*;
use crate::{FaultyDevice, Operation, RamDevice};

fn block(tag: u8) -> Block {
    Block([tag; 4096])
}

fn range(address: u64, block_count: u64) -> BlockRange {
    BlockRange { address, block_count }
}

fn write<D: Device>(device: &D, address: u64, tags: &[u8]) {
    let blocks: Vec<Block> = tags.iter().map(|tag| block(*tag)).collect();
    device.write(address, &[&blocks], Stream(1)).unwrap();
}

fn tags(device: &RamDevice) -> Vec<u8> {
    let mut buffer = Block::zeroed(device.geometry().block_count as usize);
    device.read(0, &mut buffer).unwrap();
    buffer.iter().map(|block| block.0[0]).collect()
}

#[test]
fn requests_are_listed_in_order_and_counted() {
    let device = RecordingDevice::new(RamDevice::new(8), Keep::Contents);
    device.write(2, &[&[block(1)], &[block(2), block(3)]], Stream(4)).unwrap();
    device.flush().unwrap();
    device.read(1, &mut Block::zeroed(2)).unwrap();
    device.discard(3, 2).unwrap();

    let content = vec![block(1), block(2), block(3)];
    let expected = [
        Event::Write { range: range(2, 3), stream: Stream(4), content: Some(content.into()) },
        Event::Flush,
        Event::Discard { range: range(3, 2) },
    ];
    let counts = RequestCounts {
        reads: 1,
        read_blocks: 2,
        writes: 1,
        written_blocks: 3,
        flushes: 1,
        discards: 1,
        discarded_blocks: 2,
    };
    assert_eq!(device.events(), expected);
    assert_eq!(device.event_count(), 3);
    assert_eq!(device.take_events(), expected);
    assert_eq!(device.events(), []);
    assert_eq!(device.take_reads(), [range(1, 2)]);
    assert_eq!(device.take_reads(), []);
    assert_eq!(device.counts(), counts);
    device.reset();
    assert_eq!(device.counts(), RequestCounts::default());
    assert_eq!(tags(device.inner()), [0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_recording_without_contents_has_the_same_counts() {
    for (keep, event_count) in [(Keep::Counts, 0), (Keep::Requests, 1)] {
        let device = RecordingDevice::new(RamDevice::new(8), keep);
        write(&device, 0, &[1]);
        device.read(0, &mut [Block::ZERO]).unwrap();
        assert_eq!((device.counts().writes, device.counts().reads), (1, 1));
        assert_eq!(device.take_reads().len(), event_count);
        let without_content = Event::Write { range: range(0, 1), stream: Stream(1), content: None };
        assert_eq!(device.events(), vec![without_content; event_count]);
    }
}

#[test]
fn a_failed_request_is_not_recorded() {
    let device = RecordingDevice::new(FaultyDevice::new(RamDevice::new(8)), Keep::Contents);
    for operation in [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard] {
        device.inner().fail_all(operation, true);
    }
    device.read(0, &mut [Block::ZERO]).unwrap_err();
    device.write(0, &[&[block(1)]], Stream::default()).unwrap_err();
    device.flush().unwrap_err();
    device.discard(0, 1).unwrap_err();
    assert_eq!(device.events(), []);
    assert_eq!(device.take_reads(), []);
    assert_eq!(device.counts(), RequestCounts::default());
}

#[test]
fn images_are_made_from_any_subset_of_the_events() {
    let base = RamDevice::new(4);
    write(&base, 0, &[9, 9, 9, 9]);
    let device = RecordingDevice::new(base.snapshot(), Keep::Contents);
    write(&device, 0, &[1, 2]);
    device.flush().unwrap();
    write(&device, 1, &[3, 4]);
    device.discard(0, 1).unwrap();
    let log = device.take_events();

    let first = |count: usize| tags(&image_after(&base, &log[..count]));
    assert_eq!(first(0), [9, 9, 9, 9]);
    assert_eq!(first(1), [1, 2, 9, 9]);
    assert_eq!(first(2), [1, 2, 9, 9]);
    assert_eq!(first(3), [1, 3, 4, 9]);
    assert_eq!(first(4), [0, 3, 4, 9]);
    assert_eq!(first(4), tags(device.inner()));
    assert_eq!(tags(&image_after(&base, [&log[0], &log[3]])), [0, 2, 9, 9]);
    assert_eq!(tags(&base), [9, 9, 9, 9]);
}

#[test]
fn a_torn_write_changes_only_the_surviving_sectors() {
    let image = RamDevice::new(2);
    write(&image, 0, &[9, 9]);
    let event = Event::Write {
        range: range(0, 2),
        stream: Stream(0),
        content: Some(vec![block(1), block(2)].into()),
    };
    assert_eq!(event.sector_count(), 16);
    event.apply_torn(&image, |sector_no| sector_no == 7 || sector_no == 8);
    let mut found = Block::zeroed(2);
    image.read(0, &mut found).unwrap();
    let sectors: Vec<u8> = Block::bytes_of(&found).chunks(512).map(|sector| sector[511]).collect();
    assert_eq!(sectors, [9, 9, 9, 9, 9, 9, 9, 1, 2, 9, 9, 9, 9, 9, 9, 9]);
}

#[test]
#[should_panic(expected = "the recording was not made with Keep::Contents")]
fn an_image_from_a_recording_without_contents_panics() {
    let device = RecordingDevice::new(RamDevice::new(1), Keep::Requests);
    write(&device, 0, &[1]);
    image_after(&RamDevice::new(1), &device.events());
}
