//! Smoke test: the main operations of a volume on a RAM device.

use std::sync::Arc;

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, RenameMode, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{Keep, RamDevice, RecordingDevice};

type Recorder = RecordingDevice<RamDevice>;

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: NOW, umask: None }
}

fn new_device(bytes: u64, segment_blocks: u64) -> Arc<Recorder> {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(bytes / 4096), Keep::Requests));
    let layout = Layout::new(bytes / 4096, segment_blocks, 0).expect("the layout fits");
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(layout)
    };
    make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("the volume is made");
    device
}

fn open(device: &Arc<Recorder>) -> Volume {
    Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("the volume opens")
}

fn content(volume: &Volume, name: &[u8]) -> Vec<u8> {
    let entry = volume.lookup(ROOT_INO, name).expect("the file is there");
    volume.read(entry.ino, 0, 1 << 30).expect("the read succeeds").as_bytes().to_vec()
}

#[test]
fn written_data_is_there_after_a_remount() {
    let device = new_device(64 << 20, 256);
    let volume = open(&device);
    let small = volume.make_node(ROOT_INO, b"small", 0o100_644, 0, &caller()).unwrap();
    volume.write(small.ino, 0, b"hello", WriteMode::default(), &caller()).unwrap();
    let big = volume.make_node(ROOT_INO, b"big", 0o100_644, 0, &caller()).unwrap();
    let bytes: Vec<u8> = (0..3_000_001u32).map(|i| (i * 7 / 3) as u8).collect();
    volume.write(big.ino, 0, &bytes, WriteMode::default(), &caller()).unwrap();
    assert_eq!(content(&volume, b"big"), bytes);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device);
    assert_eq!(content(&volume, b"small"), b"hello");
    assert_eq!(content(&volume, b"big"), bytes);
}

#[test]
fn synced_data_is_there_without_a_checkpoint() {
    let device = new_device(64 << 20, 256);
    let volume = open(&device);
    let mut files = Vec::new();
    for i in 0..300u32 {
        let name = format!("file{i}");
        let file = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller()).unwrap();
        let bytes = vec![i as u8; 10 + 97 * i as usize];
        volume.write(file.ino, 0, &bytes, WriteMode::default(), &caller()).unwrap();
        if i % 7 == 0 {
            volume.sync_file(file.ino).unwrap();
        }
        files.push((name, bytes));
    }
    volume.rename(ROOT_INO, b"file1", ROOT_INO, b"file2", RenameMode::Replace, &caller()).unwrap();
    volume.unlink(ROOT_INO, b"file3", &caller()).unwrap();
    volume.sync_all().unwrap();
    drop(volume);
    let volume = open(&device);
    assert_eq!(content(&volume, b"file2"), files[1].1);
    assert!(volume.lookup(ROOT_INO, b"file3").is_err());
    for (name, bytes) in &files[4..] {
        assert_eq!(&content(&volume, name.as_bytes()), bytes);
    }
}

#[test]
fn an_overwrite_with_fsync_takes_one_write_and_one_flush() {
    let device = new_device(64 << 20, 256);
    let volume = open(&device);
    let file = volume.make_node(ROOT_INO, b"f", 0o100_644, 0, &caller()).unwrap();
    volume.write(file.ino, 0, &vec![1; 1 << 20], WriteMode::default(), &caller()).unwrap();
    volume.sync_all().unwrap();
    for block in [0, 17, 200, 17] {
        volume.write(file.ino, block * 4096, &[2; 4096], WriteMode::default(), &caller()).unwrap();
        device.reset();
        volume.sync_file(file.ino).unwrap();
        let counts = device.counts();
        assert_eq!((counts.writes, counts.written_blocks, counts.flushes), (1, 2, 1));
    }
}

#[test]
fn a_small_volume_keeps_its_content_through_cleaning() {
    let device = new_device(16 << 20, 64);
    let volume = open(&device);
    let file = volume.make_node(ROOT_INO, b"f", 0o100_644, 0, &caller()).unwrap();
    let blocks = 1500u64;
    let mut model = vec![0u32; blocks as usize];
    let mut random = 1u64;
    for round in 1..20_000u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let block = (random >> 33) % blocks;
        let mut bytes = [0u8; 4096];
        bytes[..4].copy_from_slice(&round.to_le_bytes());
        volume.write(file.ino, block * 4096, &bytes, WriteMode::default(), &caller()).unwrap();
        model[block as usize] = round;
        if round % 50 == 0 {
            volume.sync_file(file.ino).unwrap();
        }
        if round % 4000 == 0 {
            while volume.work(NOW).unwrap() == sfs_core::request::Work::More {}
        }
    }
    volume.sync_all().unwrap();
    assert!(volume.counters().segments_cleaned > 0);
    drop(volume);
    let volume = open(&device);
    let bytes = content(&volume, b"f");
    for (block, round) in model.iter().enumerate() {
        let at = block * 4096;
        let found = bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes(b.try_into().unwrap()));
        assert_eq!(found, *round, "block {block}");
    }
}
