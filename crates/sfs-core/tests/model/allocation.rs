//! Allocation of segments: least recently freed first (SFS, section 3.4), and never while a crash could need their
//! content.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::{Release, VolumeOptions, WriteMode};
use sfs_device::{Event, Keep, RamDevice, RecordingDevice, image_after};

use crate::fixture::{FILE, SEGMENT_BLOCKS, caller, open, ram_as, tight};
use crate::random::SplitMix64;

const BLOCKS: u64 = 3000;

/// Number of blocks that get most of the overwrites: their segments become empty without cleaning.
const HOT_BLOCKS: u64 = 200;

/// Bytes that each block may have after a crash: its byte at the last sync, and those of later writes.
type Versions = Vec<Vec<u8>>;

/// Overwrites a synced file at random while cleaning runs, without a sync, and crashes after some
/// of the device's requests. Returns the number of crashes that lost data, and the number of
/// segments that were cleaned.
fn crashes_that_lose(release: Release, seed: u64) -> (usize, u64) {
    // Only a lack of Clean segments causes a checkpoint.
    let options = VolumeOptions { release, cache: 1 << 20, write_buffer: 1 << 20, ..tight() };
    let base = ram_as(20 << 20, SEGMENT_BLOCKS, DataLayout::Log);
    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    let volume = open(device.clone(), options);
    let ino =
        volume.make_node(ROOT_INO, b"file", FILE, 0, &caller()).expect("the file is created").ino;
    let mut random = SplitMix64::new(seed);
    let mut versions: Versions = vec![Vec::new(); BLOCKS as usize];
    let put = |volume: &Volume, versions: &mut Versions, block: u64, byte: u8| {
        let bytes = [byte; 4096];
        let written = volume.write(ino, block * 4096, &bytes, WriteMode::default(), &caller());
        // Immediate release may even run out of space.
        assert!(written.is_ok() || release == Release::AtOnce, "{written:?}");
        versions[block as usize].push(byte);
    };
    (0..BLOCKS).for_each(|block| put(&volume, &mut versions, block, 1));
    volume.sync_all().expect("a sync");
    let synced = device.event_count();
    for step in 0..8000u32 {
        let blocks = if random.one_in(4) { BLOCKS } else { HOT_BLOCKS };
        put(&volume, &mut versions, random.below(blocks), (step % 250) as u8 + 2);
    }
    let cleaned = volume.counters().segments_cleaned;
    drop(volume);

    let events = device.events();
    let step = (events.len() - synced) / 25;
    let loses = |end: &usize| {
        let image = image_after(&base, &events[..*end]);
        !is_whole(Arc::new(image), ino, &versions)
    };
    let points: Vec<usize> = (synced..events.len()).step_by(step.max(1)).collect();
    assert!(events[synced..].iter().any(|event| matches!(event, Event::Write { .. })));
    (points.iter().filter(|end| loses(end)).count(), cleaned)
}

/// Returns whether every block can be read and has one of its `versions`.
fn is_whole(image: Arc<RamDevice>, ino: u64, versions: &Versions) -> bool {
    let Ok(volume) = Volume::open(image, tight(), crate::fixture::NOW) else { return false };
    versions.iter().zip(0u64..).all(|(bytes, block)| {
        let Ok(read) = volume.read(ino, block * 4096, 4096) else { return false };
        let read = read.as_bytes();
        read.len() == 4096 && bytes.contains(&read[0]) && read.iter().all(|byte| *byte == read[0])
    })
}

#[test]
fn blocks_needed_after_a_crash_are_not_overwritten() {
    for seed in 1..4 {
        let (losses, cleaned) = crashes_that_lose(Release::Durable, seed);
        assert!(cleaned > 0, "nothing was cleaned");
        assert_eq!(losses, 0, "seed {seed}");
    }
}

/// The same runs lose data without the delay of the release, so the test above can fail.
#[test]
fn releasing_segments_at_once_loses_data() {
    let losses: usize = (1..4).map(|seed| crashes_that_lose(Release::AtOnce, seed).0).sum();
    assert!(losses > 0, "the delayed release makes no difference");
}

/// A flush is enough to release a segment here, so checkpoints are rare. After a crash at any request all synced data is
/// there.
#[test]
fn segments_are_reused_without_a_checkpoint() {
    let base = ram_as(20 << 20, SEGMENT_BLOCKS, DataLayout::Log);
    let device = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
    let volume = open(device.clone(), VolumeOptions::default());
    let ino =
        volume.make_node(ROOT_INO, b"file", FILE, 0, &caller()).expect("the file is created").ino;
    let put = |block: u64, byte: u8| {
        let mode = WriteMode::default();
        volume
            .write(ino, block * 4096, &[byte; 4096], mode, &caller())
            .expect("the write succeeds");
    };
    (0..BLOCKS).for_each(|block| put(block, 1));
    volume.sync_all().expect("a sync");
    let mut random = SplitMix64::new(5);
    // Number of requests after each sync, and the content that is durable then.
    let mut synced = vec![(device.event_count(), vec![1; BLOCKS as usize])];
    let before = volume.counters();
    for round in 0..300u32 {
        let mut bytes = synced[synced.len() - 1].1.clone();
        for _ in 0..100 {
            let block = random.below(BLOCKS);
            bytes[block as usize] = (round % 250) as u8 + 2;
            put(block, bytes[block as usize]);
        }
        volume.sync_all().expect("a sync");
        synced.push((device.event_count(), bytes));
    }
    let after = volume.counters();
    let checkpoints = after.checkpoints - before.checkpoints;
    let written = after.device_bytes_written - before.device_bytes_written;
    assert!(written > 6 * (20 << 20), "{written} bytes are too few");
    assert!(checkpoints <= 30, "{checkpoints} checkpoints");

    let events = device.events();
    for pair in synced.windows(2).step_by(12) {
        let ((first, old), (last, new)) = (&pair[0], &pair[1]);
        let end = first + (last - first) / 2;
        let image = Arc::new(image_after(&base, &events[..end]));
        let versions: Versions = old.iter().zip(new).map(|(old, new)| vec![*old, *new]).collect();
        assert!(is_whole(image, ino, &versions), "after event {end} of {}", events.len());
    }
}
