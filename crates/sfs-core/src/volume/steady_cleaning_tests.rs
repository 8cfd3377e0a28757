//! Cleaning beside programs that write or read without a pause.

use sfs_device::{BLOCK_SIZE, MmapRegion};

use super::Volume;
use crate::AheadRead;
use crate::clean::watermarks::{Urgency, urgency};
use crate::fixture::{NOW, create, new_with_large_segments, put};
use crate::format::Timestamp;
use crate::request::{VolumeOptions, Work};

/// Returns a volume, and a file of half of its space.
fn half_full() -> (Volume, u64) {
    let volume = new_with_large_segments(100, VolumeOptions::default());
    let file = create(&volume, "f");
    for block in (0..50 * 500).step_by(250) {
        put(&volume, file, block, 250, 1).expect("there is room");
        volume.sync_all().expect("RAM");
    }
    (volume, file)
}

/// Overwrites a part of that file, the number `no`, and syncs it.
fn overwrite(volume: &Volume, file: u64, no: u64) {
    put(volume, file, no * 7919 % (50 * 500 - 16), 16, 2).expect("there is room");
    volume.sync_all().expect("RAM");
}

/// The background yields to requests, but not so long that the program has to clean itself.
#[test]
fn a_program_without_a_pause_need_not_clean() {
    let (volume, file) = half_full();
    for no in 0..4000 {
        overwrite(&volume, file, no);
        // The background sees a request each time that it looks.
        volume.work(NOW).expect("RAM");
    }
    let counters = volume.counters();
    assert!(counters.segments_cleaned > 50, "{} segments", counters.segments_cleaned);
    assert_eq!(counters.stalls, 0);
}

/// Returns a volume that is not cleaned yet, below the steady watermark, and a file of half of its space.
fn below_the_steady_watermark() -> (Volume, u64) {
    let (volume, file) = half_full();
    for no in 0.. {
        if urgency_of(&volume) >= Urgency::Steady {
            break;
        }
        overwrite(&volume, file, no);
    }
    assert_eq!(urgency_of(&volume), Urgency::Steady);
    (volume, file)
}

fn urgency_of(volume: &Volume) -> Urgency {
    urgency(&volume.superblock.layout(), &volume.metadata.read())
}

/// Does background work `secs` after the writes, until nothing more is due at once; returns the number of segments cleaned.
fn cleaned(volume: &Volume, secs: i64) -> u64 {
    let before = volume.counters().segments_cleaned;
    let now = Timestamp { secs: NOW.secs + secs, ..NOW };
    while volume.work(now).expect("RAM") == Work::More {}
    volume.counters().segments_cleaned - before
}

/// Regression: below the steady watermark, as after a long job of random writes, the background cleaned beside a program that
/// read a file in order, and took a card half of its time. Between two reads of a megabyte it took the volume for idle.
#[test]
fn cleaning_waits_for_a_window_that_is_being_read() {
    let (volume, file) = below_the_steady_watermark();
    // The background sees the writes.
    volume.work(NOW).expect("RAM");
    let memory = MmapRegion::new(1024).expect("memory");
    volume.set_read_turn(64);
    let looks = std::cell::Cell::new(0);
    let is_wanted = || {
        looks.set(looks.get() + 1);
        assert_eq!(cleaned(&volume, 5), 0, "look {}", looks.get());
        true
    };
    let read = volume.read_ahead(file, 0, memory, &is_wanted).expect("RAM");
    assert!(
        matches!(read, AheadRead::Content(content) if content.bytes().len() == 1024 * BLOCK_SIZE)
    );
    assert!(looks.get() > 1, "{} looks", looks.get());
    assert!(cleaned(&volume, 5) > 0, "the read has ended");
}

/// The background yields to readers, but not while somebody writes.
#[test]
fn cleaning_goes_on_beside_readers_while_somebody_writes() {
    let (volume, file) = below_the_steady_watermark();
    volume.work(NOW).expect("RAM");
    let read = volume.space.begin_read();
    assert_eq!(cleaned(&volume, 2), 0, "nobody has written for two seconds");
    put(&volume, file, 0, 1, 3).expect("there is room");
    assert!(cleaned(&volume, 3) > 0);
    drop(read);
}
