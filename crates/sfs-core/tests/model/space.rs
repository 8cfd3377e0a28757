//! Full volumes and nearly full ones.

use std::sync::Arc;

use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{VolumeOptions, WriteMode};
use sfs_core::{Error, Volume};
use sfs_device::RamDevice;

use crate::fixture::{FILE, NOW, SEGMENT_BLOCKS, after, caller, open, ram, settle, tight};
use crate::random::SplitMix64;

fn write(volume: &Volume, ino: u64, block: u64, blocks: usize, byte: u8) -> Result<(), Error> {
    let bytes = vec![byte; blocks * 4096];
    volume.write(ino, block * 4096, &bytes, WriteMode::default(), &caller())
}

fn make(volume: &Volume, name: &str) -> u64 {
    volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller()).expect("a file").ino
}

/// Creates files of `blocks` blocks until the volume is full, and returns them.
fn fill(volume: &Volume, blocks: usize, prefix: &str) -> Vec<u64> {
    let mut files = Vec::new();
    loop {
        let name = format!("{prefix}{}", files.len());
        let made = volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller());
        let ino = match made {
            Ok(entry) => entry.ino,
            Err(Error::NoSpace) => return files,
            Err(error) => panic!("{name}: {error}"),
        };
        match write(volume, ino, 0, blocks, files.len() as u8) {
            Ok(()) => files.push(ino),
            Err(Error::NoSpace) => {
                volume.unlink(ROOT_INO, name.as_bytes(), &caller()).expect("the name is removed");
                volume.forget(ino, 1);
                return files;
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

/// Asserts that each file has the content that [`fill`] gave it.
fn check(volume: &Volume, files: &[u64], blocks: usize) {
    for (no, ino) in files.iter().enumerate() {
        let bytes = volume.read(*ino, 0, blocks * 4096 + 1).expect("the read succeeds");
        assert!(bytes.as_bytes() == vec![no as u8; blocks * 4096], "file {no}");
    }
}

#[test]
fn a_full_volume_keeps_its_files_and_regains_deleted_space() {
    for (bytes, options) in [
        (8 << 20, tight()),
        (8 << 20, VolumeOptions::default()),
        (32 << 20, VolumeOptions::default()),
    ] {
        let device: Arc<RamDevice> = Arc::new(ram(bytes, SEGMENT_BLOCKS));
        let volume = open(device.clone(), options.clone());
        for round in 0..3 {
            let prefix = format!("round-{round}-");
            let files = fill(&volume, 10, &prefix);
            assert!(files.len() as u64 > bytes / 4096 / 17, "{} files", files.len());
            volume.sync_all().expect("admitted writes can be synced");
            check(&volume, &files, 10);
            // A full volume still accepts overwrites.
            for pass in 0..3u8 {
                for (no, ino) in files.iter().enumerate() {
                    write(&volume, *ino, u64::from(pass), 1, no as u8)
                        .expect("the overwrite succeeds");
                }
                volume.sync_all().expect("the sync succeeds");
            }
            check(&volume, &files, 10);
            for (no, ino) in files.iter().enumerate() {
                let name = format!("{prefix}{no}");
                volume.unlink(ROOT_INO, name.as_bytes(), &caller()).expect("the name is removed");
                volume.forget(*ino, 1);
            }
            settle(&volume, after(1000 * (round + 1))).expect("background work succeeds");
            volume.sync_all().expect("the sync succeeds");
            let space = volume.space();
            assert!(space.free_blocks * 10 > space.total_blocks * 9, "{space:?}");
        }
        volume.close().expect("the volume closes");
    }
}

/// Free space does not drop suddenly when dirty metadata reaches the device.
#[test]
fn dirty_metadata_counts_as_used_space() {
    let volume = open(Arc::new(ram(64 << 20, SEGMENT_BLOCKS)), VolumeOptions::default());
    let before = volume.space().free_blocks;
    for no in 0..5000 {
        volume.forget(make(&volume, &format!("{no}")), 1);
    }
    let waiting = volume.space().free_blocks;
    volume.close().expect("the volume closes");
    let after = volume.space().free_blocks;
    assert!(before > after + 200, "{before} before, {after} after");
    assert!(waiting.abs_diff(after) <= 4, "{waiting} while dirty, {after} after");
}

/// The write buffer holds more blocks than the Clean segments: a commit must clean before it has written all of them.
#[test]
fn a_write_buffer_larger_than_the_clean_segments_can_be_synced() {
    let device: Arc<RamDevice> = Arc::new(ram(64 << 20, SEGMENT_BLOCKS));
    let volume = open(device, VolumeOptions::default());
    let capacity = volume.space().total_blocks;
    let ino = make(&volume, "fragmented");
    let blocks = capacity * 8 / 10;
    let mut model = vec![0u8; blocks as usize];
    let mut random = SplitMix64::new(1);
    for block in 0..blocks {
        write(&volume, ino, block, 1, 0).expect("a write");
    }
    volume.sync_all().expect("a sync");
    // Dead blocks are spread over all segments, and hardly any segment is Clean.
    for round in 0..8000u32 {
        let block = random.below(blocks);
        model[block as usize] = round as u8;
        write(&volume, ino, block, 1, round as u8).expect("an overwrite");
        if round % 100 == 0 {
            volume.sync_all().expect("a sync");
        }
    }
    // Half of the file is dirty at once.
    for block in 0..blocks / 2 {
        model[block as usize] = 99;
        write(&volume, ino, block, 1, 99).expect("an overwrite");
    }
    volume.sync_all().expect("admitted writes can be synced");
    for (block, byte) in model.iter().enumerate() {
        let bytes = volume.read(ino, block as u64 * 4096, 1).expect("the read succeeds");
        assert_eq!(bytes.as_bytes(), [*byte], "block {block}");
    }
    volume.close().expect("the volume closes");
}

/// The space for a delta is estimated by its net changes, and not by the number of operations.
#[test]
fn many_small_changes_on_a_small_volume_succeed() {
    let device: Arc<RamDevice> = Arc::new(ram(8 << 20, SEGMENT_BLOCKS));
    let volume = open(device, VolumeOptions::default());
    for no in 0..6000 {
        let ino = make(&volume, &format!("{no}"));
        volume.forget(ino, 1);
    }
    volume.sync_all().expect("a sync");
    for no in 0..6000 {
        volume
            .unlink(ROOT_INO, format!("{no}").as_bytes(), &caller())
            .expect("the name is removed");
    }
    settle(&volume, Timestamp { secs: NOW.secs + 10, ..NOW }).expect("background work succeeds");
    volume.close().expect("the volume closes");
}
