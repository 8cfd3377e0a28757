//! Tests that blocks are moved in bounded batches, whoever asks for it: a sync waits for one batch at most.

use std::sync::Arc;

use sfs_device::{FaultyDevice, Operation, RamDevice};

use crate::clean::watermarks::{Urgency, urgency};
use crate::fixture::{
    BLOCKS, LARGE_SEGMENT_BLOCKS, NOW, create, large_segments_on, new_volume_of,
    new_with_large_segments, put, set_size,
};
use crate::request::{VolumeOptions, Work};
use crate::{Error, Volume};

/// Bound of the batches, in blocks, that the log's thread sets at least.
const BOUND: usize = 64;

/// Returns the number of chunks so far, and the number of blocks that were moved.
fn chunks_and_moves(volume: &Volume) -> (u64, u64) {
    let counters = volume.counters();
    let moved_bytes = counters.cleaning_bytes + counters.defragmentation_bytes;
    (volume.log.lock().next_sequence, moved_bytes / 4096)
}

/// Runs `act` with this bound of batches, and returns the number of blocks that it has moved. Checks that there were chunks
/// enough for batches within the bound: each batch has at least one.
fn moved_by(volume: &Volume, bound: usize, act: impl FnOnce()) -> u64 {
    volume.bound_batches(bound);
    let (chunks_before, moved_before) = chunks_and_moves(volume);
    act();
    let (chunks, moved) = chunks_and_moves(volume);
    let (chunks, moved) = (chunks - chunks_before, moved - moved_before);
    assert!(moved <= bound as u64 * chunks, "{moved} blocks moved in {chunks} chunks");
    moved
}

/// Returns a volume with segments of 512 blocks, all of whose blocks are in one group, so that a batch is one chunk or two.
fn volume_of_one_group() -> Volume {
    let options = VolumeOptions { grouping: "none".into(), ..VolumeOptions::default() };
    new_with_large_segments(40, options)
}

/// Fills segments with blocks of eight files, and truncates half of the files.
fn empty_half_of_each_segment(volume: &Volume) {
    let files: Vec<u64> = (0..8).map(|no| create(volume, &format!("{no}"))).collect();
    for block in 0..170 {
        for file in &files {
            put(volume, *file, block, 1, *file as u8).expect("there is room");
        }
        volume.sync_all().expect("RAM");
    }
    files.iter().step_by(2).for_each(|file| set_size(volume, *file, 0));
    volume.checkpoint().expect("a checkpoint");
}

/// Regression: one commit moved a window of up to 4 MiB.
#[test]
fn a_window_is_put_in_order_in_bounded_batches() {
    let volume = volume_of_one_group();
    let file = create(&volume, "file");
    for no in 0..500 {
        put(&volume, file, no * 37 % 500, 1, 2).expect("there is room");
        if no % 8 == 7 {
            volume.sync_all().expect("RAM");
        }
    }
    let defragment = || volume.defragment(file, 0, &mut || true).expect("a part");
    let mut part = Default::default();
    let moved = moved_by(&volume, BOUND, || part = defragment());
    assert_eq!((moved, part.moved_blocks, part.next), (500, 500, None), "{part:?}");
    assert_eq!(defragment().moved_blocks, 0, "the window is in order");
    assert_eq!(volume.audit().expect("the audit counts"), []);
}

/// Regression: one commit moved a round that was asked for, of up to a quarter of the write buffer.
#[test]
fn cleaning_that_is_asked_for_goes_in_bounded_batches() {
    let volume = volume_of_one_group();
    empty_half_of_each_segment(&volume);
    let mut round = None;
    let moved = moved_by(&volume, BOUND, || {
        round = volume.clean_round(5, &mut || true).expect("the round succeeds");
    });
    let round = round.expect("half of each segment is garbage");
    assert!(moved > 200 && round.moved_blocks == moved, "{round:?}");
    assert_eq!(volume.audit().expect("the audit counts"), []);
}

/// Regression: what a part had written before it failed did not count, so that idle defragmentation could clean for more than it
/// may spend.
#[test]
fn parts_that_fail_count_too() {
    let mut written_before_a_failure = 0;
    for nth in 1.. {
        let device = Arc::new(FaultyDevice::new(RamDevice::new(40 * LARGE_SEGMENT_BLOCKS)));
        let options = VolumeOptions { grouping: "none".into(), ..VolumeOptions::default() };
        let volume = large_segments_on(device.clone(), options);
        empty_half_of_each_segment(&volume);
        let (before, mut device_bytes) = (volume.counters().device_bytes_written, 0);
        device.fail_nth(Operation::Write, nth);
        // Without a bound of batches the round is one part, of several chunks.
        let round = volume.space.clean_round(5, &mut || true, &mut device_bytes);
        let written = volume.counters().device_bytes_written - before;
        assert_eq!(device_bytes, written, "write {nth} has failed");
        if round.is_ok() {
            break;
        }
        assert!(matches!(round, Err(Error::Device(_))), "{round:?}");
        written_before_a_failure = written;
    }
    assert!(written_before_a_failure > 0, "the round was one chunk");
}

/// Regression: one commit moved the whole segment.
#[test]
fn the_least_used_segment_is_moved_in_bounded_batches() {
    let options = VolumeOptions {
        wear_levelling: Some(2),
        yield_cleaning: false,
        ..VolumeOptions::default()
    };
    let volume = new_volume_of(Arc::new(RamDevice::new(BLOCKS)), BLOCKS, options);
    let (cold, hot) = (create(&volume, "cold"), create(&volume, "hot"));
    put(&volume, cold, 0, 124, 1).expect("there is room");
    volume.sync_all().expect("RAM");
    let mut levelled = 0;
    for round in 0..100 {
        put(&volume, hot, 0, 200, round).expect("there is room");
        volume.sync_all().expect("RAM");
        let mut goes_on = true;
        while goes_on {
            let urgency = urgency(&volume.superblock.layout(), &volume.metadata.read());
            let moved =
                moved_by(&volume, 8, || goes_on = volume.work(NOW).expect("RAM") == Work::More);
            // Nothing else is moved while enough segments are Clean.
            levelled += if urgency == Urgency::None { moved } else { 0 };
        }
    }
    assert!(levelled >= 31, "{levelled} blocks");
    assert_eq!(volume.audit().expect("the audit counts"), []);
}
