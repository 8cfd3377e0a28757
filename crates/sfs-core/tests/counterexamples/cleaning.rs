//! Cleaning: damaged segments, cleaning without gain, discards.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{AttributeChanges, VolumeOptions, Work};
use sfs_device::{Event, FaultyDevice, Keep, RamDevice, RecordingDevice};

use crate::fixture::{NOW, Random, blocks_for, caller, create, fill, format, open, write};

/// A damaged summary hides the owners of the blocks after it: the segment cannot be emptied.
#[test]
fn a_damaged_summary_does_not_stop_cleaning() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(40))));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "f");
    let blocks = 500;
    for at in 0..blocks {
        write(&volume, file, at, &[1; 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    // One in eight blocks of the first segments stays live.
    for at in (0..blocks).filter(|at| at % 8 != 0) {
        write(&volume, file, at, &[2; 4096]).unwrap();
        if at % 31 == 0 {
            volume.sync_all().unwrap();
        }
    }
    volume.sync_all().unwrap();
    for segment in 0..8 {
        let start = 32 + segment * 32;
        device.corrupt_reads(start..start + 1);
    }
    let mut random = Random(3);
    for round in 0..4000 {
        let at = random.below(400) + 100;
        write(&volume, file, at, &[3; 4096]).unwrap();
        if round % 10 == 0 {
            volume.sync_all().unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
    }
}

/// Returns the number of blocks written in nine minutes to a full volume. With `changes`, a caller
/// attempts a write and changes a mode each second.
fn written_when_full(changes: bool) -> u64 {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(200)), Keep::Counts));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "f");
    let count = fill(&volume, file, 16, 16);
    let later = |secs: i64| Timestamp { secs: NOW.secs + 60 + secs, nanos: 0 };
    for secs in 0..60 {
        while volume.work(later(secs)).unwrap() == Work::More {}
    }
    device.reset();
    for secs in 60..600 {
        if changes {
            assert!(write(&volume, file, count, &[1; 16 * 4096]).is_err(), "the volume is full");
            let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
            volume.set_attributes(file, &mode, &caller()).unwrap();
        }
        while volume.work(later(secs)).unwrap() == Work::More {}
    }
    device.counts().written_blocks
}

/// A full idle volume must not wear the device out.
#[test]
fn cleaning_that_gains_nothing_is_not_repeated() {
    let written = written_when_full(false);
    assert!(written < 2000, "{written} blocks were written by an idle volume");
}

/// Refused writes and small changes to a full volume must not wear the device out either.
#[test]
fn cleaning_that_gains_nothing_is_not_repeated_for_every_change() {
    let written = written_when_full(true);
    assert!(written < 40_000, "{written} blocks were written for 540 changes of a mode");
}

/// Segments that a delta had freed were discarded one by one between the write and the flush of a sync.
#[test]
fn a_small_sync_does_not_wait_for_discards() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(600)), Keep::Requests));
    format(&device, 32);
    let options = || VolumeOptions { grouping: "none".into(), ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options(), NOW).unwrap();
    let (gone, kept) = (create(&volume, "gone"), create(&volume, "kept"));
    for at in 0..250 {
        for file in [gone, kept] {
            write(&volume, file, at * 31, &[1; 31 * 4096]).unwrap();
            volume.sync_all().unwrap();
        }
    }
    volume.close().unwrap();
    drop(volume);
    let volume = Volume::open(device.clone(), options(), NOW).unwrap();
    volume.unlink(ROOT_INO, b"gone", &caller()).unwrap();
    volume.forget(gone, 2);
    volume.sync_all().unwrap();
    let is_discard = |event: &Event| matches!(event, Event::Discard { .. });
    device.take_events();
    for _ in 0..4 {
        write(&volume, kept, 0, &[2; 4096]).unwrap();
        volume.sync_file(kept).unwrap();
    }
    assert!(!device.take_events().iter().any(is_discard));
    assert!(volume.status().segments.clean > 200, "the segments are Clean");

    // The background discards the segments, each once.
    while volume.work(NOW).unwrap() == Work::More {}
    let events = device.take_events();
    let blocks = |event: &Event| match event {
        Event::Discard { range } => range.block_count,
        _ => 0,
    };
    let discarded: u64 = events.iter().map(blocks).sum();
    assert!(discarded >= 240 * 32, "{discarded} blocks");
}

/// The checkpoint of a mount releases the segments that the log has drained since the last
/// checkpoint. These segments were not discarded before they were reused.
#[test]
fn segments_that_a_mount_releases_are_discarded() {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(blocks_for(200)), Keep::Requests));
    format(&device, 32);
    let volume = open(&device);
    let gone = create(&volume, "gone");
    for at in 0..60 {
        write(&volume, gone, at * 31, &[1; 31 * 4096]).unwrap();
        volume.sync_all().unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device);
    volume.unlink(ROOT_INO, b"gone", &caller()).unwrap();
    volume.forget(gone, 1);
    volume.sync_all().unwrap();
    drop(volume);

    let volume = open(&device);
    device.take_events();
    while volume.work(NOW).unwrap() == Work::More {}
    let blocks = |event: &Event| match event {
        Event::Discard { range } => range.block_count,
        _ => 0,
    };
    let discarded: u64 = device.take_events().iter().map(blocks).sum();
    assert!(discarded >= 50 * 32, "{discarded} blocks");
}
