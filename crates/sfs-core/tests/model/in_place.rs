//! Data layouts that overwrite data in place: the behaviour that differs from the log.

use std::sync::Arc;

use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::{AttributeChanges, VolumeOptions, WriteMode};
use sfs_core::{Error, Volume};
use sfs_device::{Event, Keep, RecordingDevice};

use crate::fixture::{FILE, SEGMENT_BLOCKS, after, caller, open, ram_as, settle, tight};
use crate::random::SplitMix64;

const OVERWRITING: &[DataLayout] = DataLayout::ALL.split_at(1).1;

fn make(volume: &Volume, name: &str) -> Result<u64, Error> {
    volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller()).map(|entry| entry.ino)
}

fn write(volume: &Volume, ino: u64, block: u64, blocks: usize, byte: u8) -> Result<(), Error> {
    let bytes = vec![byte; blocks * 4096];
    volume.write(ino, block * 4096, &bytes, WriteMode::default(), &caller())
}

/// Syncs, and returns for each request of the sync whether it is a flush.
fn flushes_of_sync(device: &RecordingDevice<sfs_device::RamDevice>, volume: &Volume) -> Vec<bool> {
    device.take_events();
    volume.sync_all().expect("a sync");
    device.take_events().iter().map(|event| *event == Event::Flush).collect()
}

fn set_size(volume: &Volume, ino: u64, size: u64) {
    let changes = AttributeChanges { size: Some(size), ..Default::default() };
    volume.set_attributes(ino, &changes, &caller()).map(drop).expect("a size");
}

/// New blocks, and the last block of a file that an append extends, must be durable before the
/// delta that refers to them. For overwritten blocks one flush is enough.
#[test]
fn only_new_blocks_need_a_flush_before_the_delta() {
    for data_layout in OVERWRITING {
        let device =
            RecordingDevice::new(ram_as(16 << 20, SEGMENT_BLOCKS, *data_layout), Keep::Contents);
        let device = Arc::new(device);
        let volume = open(device.clone(), VolumeOptions::default());
        let ino = make(&volume, "file").expect("a file");
        write(&volume, ino, 0, 8, 1).expect("a write");
        let (data, flush, delta) = (false, true, false);
        assert_eq!(
            flushes_of_sync(&device, &volume),
            [data, flush, delta, true],
            "{data_layout:?}"
        );
        write(&volume, ino, 2, 4, 2).expect("an overwrite");
        assert_eq!(flushes_of_sync(&device, &volume), [data, delta, flush], "{data_layout:?}");
        // The truncated content is still on the device past the new end, and the new length must not show it.
        set_size(&volume, ino, 7 * 4096 + 100);
        volume.sync_all().expect("a sync");
        let mode = WriteMode::default();
        volume.write(ino, 7 * 4096 + 100, &[3; 50], mode, &caller()).expect("a write");
        assert_eq!(
            flushes_of_sync(&device, &volume),
            [data, flush, delta, true],
            "{data_layout:?}"
        );
    }
}

/// No overwrite moves a block.
#[test]
fn an_overwritten_block_keeps_its_address() {
    for data_layout in OVERWRITING {
        let device =
            RecordingDevice::new(ram_as(16 << 20, SEGMENT_BLOCKS, *data_layout), Keep::Contents);
        let device = Arc::new(device);
        let volume = open(device.clone(), tight());
        let ino = make(&volume, "file").expect("a file");
        write(&volume, ino, 0, 200, 1).expect("a write");
        volume.sync_all().expect("a sync");
        let written = |events: Vec<Event>| {
            let data = events.into_iter().filter_map(|event| match event {
                Event::Write { range, stream, .. } if stream.0 > 0 => Some(range),
                _ => None,
            });
            data.flat_map(|e| e.address..e.address + e.block_count).collect::<Vec<u64>>()
        };
        let mut addresses = written(device.take_events());
        for round in 0..5 {
            (0..200).for_each(|block| write(&volume, ino, block, 1, round).expect("an overwrite"));
            volume.sync_all().expect("a sync");
        }
        let mut again = written(device.take_events());
        addresses.sort_unstable();
        again.sort_unstable();
        again.dedup();
        assert_eq!(again, addresses, "{data_layout:?}");
    }
}

/// Data occupies all segments that it may have, and each has free blocks. The log keeps its share, so metadata can still
/// be written.
#[test]
fn holes_in_full_segments_do_not_reduce_the_share_of_the_log() {
    for data_layout in OVERWRITING {
        let device = Arc::new(ram_as(16 << 20, SEGMENT_BLOCKS, *data_layout));
        let volume = open(device, VolumeOptions::default());
        let mut files = Vec::new();
        let refused = loop {
            let outcome = make(&volume, &format!("{}", files.len()))
                .and_then(|ino| write(&volume, ino, 0, 2, 1).map(|()| files.push(ino)));
            if let Err(error) = outcome {
                break error;
            }
        };
        assert!(matches!(refused, Error::NoSpace), "{refused:?}");
        volume.sync_all().expect("admitted writes can be synced");
        for (no, _) in files.iter().enumerate().filter(|(no, _)| no % 2 == 0) {
            volume
                .unlink(ROOT_INO, no.to_string().as_bytes(), &caller())
                .expect("the name is removed");
            volume.forget(files[no], 1);
        }
        settle(&volume, after(1000)).expect("background work succeeds");
        volume.sync_all().expect("a sync");
        let placed = volume.status().segments.in_place;
        // Small files are stored inline in the tree.
        for no in 0..200 {
            let ino = make(&volume, &format!("small-{no}")).expect("metadata has space");
            let bytes = [no as u8; 500];
            volume.write(ino, 0, &bytes, WriteMode::default(), &caller()).expect("a write");
            if no % 20 == 0 {
                volume.sync_all().expect("a sync");
            }
        }
        // New data fills the free blocks and takes no further segments.
        let free = volume.space().free_blocks;
        let ino = make(&volume, "large").expect("a name");
        write(&volume, ino, 0, free as usize - 100, 3).expect("the free blocks have space");
        volume.sync_all().expect("a sync");
        assert!(volume.status().segments.in_place <= placed + 2, "{data_layout:?}");
        assert_eq!(volume.audit().expect("the audit succeeds"), []);
        volume.close().expect("the volume closes");
    }
}

/// A partial write reads the rest of its block. Other writers may change that block, and a commit overwrite it in place,
/// at the same time.
#[test]
fn concurrent_writers_of_one_block_do_not_lose_writes() {
    const WRITERS: usize = 4;
    for data_layout in [DataLayout::Log, DataLayout::GreedySpace] {
        let volume = open(Arc::new(ram_as(16 << 20, SEGMENT_BLOCKS, data_layout)), tight());
        let ino = make(&volume, "file").expect("a file");
        write(&volume, ino, 0, 4, 0).expect("a write");
        volume.sync_all().expect("a sync");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let volume = &volume;
                scope.spawn(move || {
                    let mut random = SplitMix64::new(writer as u64);
                    for round in 1..=200u8 {
                        let block = random.below(4);
                        for block in [block, 3 - block] {
                            let at = block * 4096 + 100 * writer as u64;
                            let bytes = [round; 100];
                            let mode = WriteMode::default();
                            volume.write(ino, at, &bytes, mode, &caller()).expect("a write");
                            let read = volume.read(ino, at, 100).expect("the read succeeds");
                            assert_eq!(read.as_bytes(), bytes, "{data_layout:?}");
                        }
                        if random.one_in(3) {
                            volume.sync_file(ino).expect("a sync");
                        }
                    }
                });
            }
        });
        assert_eq!(volume.audit().expect("the audit succeeds"), []);
    }
}

/// Freed blocks wait for a flush before their reuse; a writer that needs them causes that flush.
#[test]
fn deleted_blocks_can_be_reused_at_once() {
    for data_layout in OVERWRITING {
        let volume = open(Arc::new(ram_as(16 << 20, SEGMENT_BLOCKS, *data_layout)), tight());
        let blocks = volume.space().free_blocks as usize * 8 / 10;
        for round in 0..6 {
            let ino = make(&volume, "file").expect("a name");
            write(&volume, ino, 0, blocks, round).expect("there is space");
            let read =
                volume.read(ino, 4096 * (blocks as u64 - 1), 4096).expect("the read succeeds");
            assert_eq!(read.as_bytes(), [round; 4096]);
            volume.unlink(ROOT_INO, b"file", &caller()).expect("the name is removed");
            volume.forget(ino, 1);
        }
        volume.close().expect("the volume closes");
    }
}
