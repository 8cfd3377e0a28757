//! Errors that were met, and forgotten with the unmount.

use std::ops::Range;
use std::sync::Arc;

use sfs_core::format::{
    ErrorCount, ErrorKind, Failure, ItemKind, Label, Occurrence, ROOT_INO, SUPERBLOCK_ADDRESS,
    Superblock, Timestamp,
};
use sfs_core::request::{ErrorReaction, VolumeOptions};
use sfs_core::{Error, Volume};
use sfs_device::{
    Block, Device, Event, FaultyDevice, Keep, Operation, RamDevice, RecordingDevice, Stream,
};

use crate::rig::{NOW, Random, blocks_for, caller, create, format, open, ram, write};

/// From docs/FORMAT.md: a node begins with its magic, has its level at 34 and its first item's key
/// at 64.
const MAGIC: &[u8] = b"SFSn";
const LEVEL_AT: usize = 34;
const KEY_AT: usize = 64;

fn later(secs: i64) -> Timestamp {
    Timestamp { secs: NOW.secs + secs, ..NOW }
}

fn read_block(device: &dyn Device, at: u64) -> Block {
    let mut block = Block::zeroed(1);
    device.read(at, &mut block).unwrap();
    block[0].clone()
}

/// Blocks of the device that `is_it` says.
fn find(device: &dyn Device, is_it: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let blocks = 0..device.geometry().block_count;
    blocks.filter(|at| is_it(&read_block(device, *at).0)).collect()
}

fn destroy(device: &dyn Device, at: u64) {
    device.write(at, &[&[Block([0xee; 4096])]], Stream::default()).unwrap();
}

/// A volume with a file of one block, and the address of the block.
fn one_file() -> (Arc<RamDevice>, u64) {
    let device = ram(64);
    let volume = open(&device);
    let file = create(&volume, "file");
    write(&volume, file, 0, &[0xab; 4096]).unwrap();
    volume.close().unwrap();
    let found = find(&*device, |bytes| bytes == [0xab; 4096]);
    assert_eq!(found.len(), 1);
    (device, found[0])
}

fn file_of(volume: &Volume) -> u64 {
    volume.lookup(ROOT_INO, b"file").unwrap().ino
}

fn is_corrupt<T>(outcome: sfs_core::Result<T>) -> bool {
    matches!(outcome, Err(Error::Corrupt(_)))
}

fn counts(volume: &Volume) -> Vec<(ErrorKind, u64)> {
    volume.remembered().errors.iter().map(|count| (count.kind, count.count)).collect()
}

/// What the superblock on the device says, which both copies say.
fn failure(device: &dyn Device) -> Option<Failure> {
    let decode = |at| Superblock::decode(&read_block(device, at).0, at).unwrap();
    let first = decode(SUPERBLOCK_ADDRESS);
    assert_eq!(first, decode(first.layout.backup));
    first.failure
}

#[test]
fn data_that_rots_is_remembered_with_the_first_and_the_last_time() {
    let (device, at) = one_file();
    destroy(&*device, at);
    let volume = open(&device);
    let file = file_of(&volume);
    assert!(is_corrupt(volume.read(file, 0, 4096)));
    volume.work(later(7)).unwrap();
    assert!(is_corrupt(volume.read(file, 0, 4096)));
    let first = Occurrence { secs: NOW.secs, at };
    let last = Occurrence { secs: NOW.secs + 7, at };
    let expected = [ErrorCount { kind: ErrorKind::Data, count: 2, first, last }];
    assert!(volume.remembered().errors.iter().eq(&expected));
    volume.close().unwrap();
    for _ in 0..2 {
        let volume = open(&device);
        assert!(volume.remembered().errors.iter().eq(&expected), "it is remembered");
        volume.close().unwrap();
    }
    assert_eq!(failure(&*device), None, "writing has not ended");
}

/// Only the first error of a kind is worth a checkpoint of its own.
#[test]
fn an_error_that_repeats_causes_no_checkpoints() {
    let (device, at) = one_file();
    destroy(&*device, at);
    let volume = open(&device);
    let file = file_of(&volume);
    let checkpoints_after = |secs| {
        assert!(is_corrupt(volume.read(file, 0, 4096)));
        volume.work(later(secs)).unwrap();
        volume.counters().checkpoints
    };
    let begun = volume.counters().checkpoints;
    assert_eq!(checkpoints_after(1), begun, "it waits for its interval");
    assert_eq!(checkpoints_after(40), begun + 1);
    assert_eq!(checkpoints_after(80), begun + 1);
    assert_eq!(checkpoints_after(120), begun + 1);
    drop(volume);
    assert_eq!(counts(&open(&device)), [(ErrorKind::Data, 2)], "a crash forgets the later ones");
}

#[test]
fn a_mount_for_reading_counts_and_writes_nothing() {
    let (device, at) = one_file();
    destroy(&*device, at);
    let device = Arc::new(RecordingDevice::new(device.snapshot(), Keep::Contents));
    let options = VolumeOptions {
        read_only: true,
        on_error: ErrorReaction::RemountReadOnly,
        ..VolumeOptions::default()
    };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    assert!(is_corrupt(volume.read(file_of(&volume), 0, 4096)));
    volume.work(later(60)).unwrap();
    assert_eq!(counts(&volume), [(ErrorKind::Data, 1)]);
    volume.close().unwrap();
    assert!(device.events().is_empty());
}

#[test]
fn what_the_device_does_not_read_is_counted_and_so_is_what_it_reads_later() {
    let (inner, at) = one_file();
    let device = Arc::new(FaultyDevice::new(inner.snapshot()));
    let volume = open(&device);
    let file = file_of(&volume);
    device.fail_reads(at..at + 1);
    assert!(matches!(volume.read(file, 0, 4096), Err(Error::Device(_))));
    device.heal();
    volume.read(file, 0, 4096).unwrap();
    let expected = Occurrence { secs: NOW.secs, at };
    let seen = volume.remembered();
    let read = seen.errors.iter().next().expect("a failed read");
    assert_eq!((read.kind, read.count, read.first), (ErrorKind::Read, 1, expected));
}

/// A node of the tree is damaged on the device and no longer in memory.
#[test]
fn a_damaged_node_is_counted() {
    let (device, _) = many_files();
    let volume = open(&device);
    for leaf in find(&*device, |bytes| is_leaf_of(bytes, |ino, _| ino > 900)) {
        destroy(&*device, leaf);
    }
    assert!(is_corrupt(volume.attributes(1000)));
    assert_eq!(counts(&volume), [(ErrorKind::Tree, 1)]);
    volume.close().unwrap();
    assert_eq!(counts(&open(&device)), [(ErrorKind::Tree, 1)]);
}

/// The older of two checkpoints is no use any more, but its slot should hold one.
#[test]
fn a_slot_that_no_crash_has_damaged_is_counted_by_the_mount() {
    let device = ram(64);
    open(&device).close().unwrap();
    let superblock = Superblock::decode(&read_block(&*device, 4).0, 4).unwrap();
    let number = |slot: usize| read_block(&*device, superblock.layout.slots[slot]).0[32];
    let older = usize::from(number(0) > number(1));
    destroy(&*device, superblock.layout.slots[older]);
    assert_eq!(counts(&open(&device)), [(ErrorKind::Volume, 1)]);
}

/// 1500 files in leaves of three, more than stay in memory.
fn many_files() -> (Arc<RamDevice>, u64) {
    let device = Arc::new(RamDevice::new(blocks_for(400)));
    format(&device, 32);
    let volume = open(&device);
    for number in 0..1500 {
        let file = create(&volume, &format!("file {number}"));
        volume.write(file, 0, &[7; 1000], Default::default(), &caller()).unwrap();
    }
    volume.close().unwrap();
    (device, 1500)
}

/// Whether a block is a leaf that begins with an item of which `is_it` holds, by inode number and kind.
fn is_leaf_of(bytes: &[u8], is_it: impl Fn(u64, u8) -> bool) -> bool {
    let ino = u64::from_le_bytes(bytes[KEY_AT..KEY_AT + 8].try_into().unwrap());
    bytes.starts_with(MAGIC) && bytes[LEVEL_AT] == 0 && is_it(ino, bytes[KEY_AT + 8])
}

/// Destroys the leaves of the usage table.
fn destroy_usage(device: &dyn Device) {
    let is_usage =
        |bytes: &[u8]| is_leaf_of(bytes, |ino, kind| ino == 0 && kind == ItemKind::Usage as u8);
    find(device, is_usage).into_iter().for_each(|leaf| destroy(device, leaf));
}

/// Where no checkpoint can be written, the superblock says why.
#[test]
fn damage_that_keeps_checkpoints_from_being_written_is_in_the_superblock() {
    let (device, count) = many_files();
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    for number in 0..count {
        volume.lookup(ROOT_INO, format!("file {number}").as_bytes()).unwrap();
    }
    destroy_usage(&*device);
    assert!(is_corrupt(volume.close()));
    assert!(!volume.is_closed());
    let failure = failure(&*device).expect("the reason");
    assert_eq!((failure.kind, failure.secs), (ErrorKind::Tree, NOW.secs));
}

#[test]
fn a_write_that_fails_is_in_the_superblock_once() {
    for operation in [Operation::Write, Operation::Flush] {
        let recording = RecordingDevice::new(RamDevice::new(blocks_for(64)), Keep::Contents);
        let device = Arc::new(FaultyDevice::new(recording));
        format(&device, 32);
        let volume = open(&device);
        create(&volume, "file");
        device.fail_nth(operation, 1);
        device.inner().take_events();
        assert!(matches!(volume.sync_all(), Err(Error::Device(_))));
        let kind = if operation == Operation::Write { ErrorKind::Write } else { ErrorKind::Flush };
        assert_eq!(counts(&volume), [(kind, 1)]);
        let noted = failure(&*device).expect("the failure");
        assert_eq!((noted.kind, noted.secs), (kind, NOW.secs));
        let is_superblock = |event: &Event| matches!(event, Event::Write { .. });
        device.inner().take_events();
        volume.work(later(60)).unwrap_err();
        volume.close().unwrap_err();
        assert!(!device.inner().events().iter().any(is_superblock), "it is written once");
        drop(volume);
        let volume = open(&device);
        assert_eq!(volume.remembered().failure, Some(noted), "a mount does not clear it");
        create(&volume, "another");
        volume.close().unwrap();
        assert_eq!(failure(&*device), Some(noted));
    }
}

#[test]
fn a_failure_is_in_the_superblock_before_a_handle_that_syncs_is_answered() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(64))));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "file");
    device.fail_nth(Operation::Write, 1);
    assert!(matches!(volume.sync_file_after(file, &mut 0), Err(Error::Device(_))));
    let noted = failure(&*device).expect("the failure");
    assert_eq!((noted.kind, noted.secs), (ErrorKind::Write, NOW.secs));
}

/// A flush that fails may have lost what others had written, and the device need not fail the next one: then
/// a sync would have promised what is not there.
#[test]
fn a_superblock_that_cannot_be_flushed_ends_writing() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(64))));
    format(&device, 32);
    let volume = open(&device);
    create(&volume, "file");
    device.fail_nth(Operation::Flush, 1);
    let label = Label::new("new").expect("a label");
    assert!(matches!(volume.set_label(label), Err(Error::Device(_))));
    assert!(matches!(volume.sync_all(), Err(Error::Stopped)));
    assert_eq!(counts(&volume), [(ErrorKind::Flush, 1)]);

    let (inner, _) = many_files();
    let device = Arc::new(FaultyDevice::new(inner.snapshot()));
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    create(&volume, "file");
    volume.sync_all().unwrap();
    destroy_usage(&*device);
    for number in 0..1500 {
        volume.lookup(ROOT_INO, format!("file {number}").as_bytes()).unwrap();
    }
    device.fail_nth(Operation::Flush, 1);
    assert!(is_corrupt(volume.work(later(60))), "there is no checkpoint");
    assert!(volume.has_failed(), "the note of it was not flushed");
    assert!(matches!(volume.sync_all(), Err(Error::Stopped)));
}

#[test]
fn with_errors_remount_ro_the_first_damage_ends_writing() {
    let (inner, at) = one_file();
    destroy(&*inner, at);
    let device = Arc::new(RecordingDevice::new(inner.snapshot(), Keep::Contents));
    let options =
        VolumeOptions { on_error: ErrorReaction::RemountReadOnly, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let file = file_of(&volume);
    create(&volume, "synced");
    volume.sync_all().unwrap();
    create(&volume, "not synced");
    device.take_events();
    assert!(is_corrupt(volume.read(file, 0, 4096)));
    assert!(volume.has_failed());
    assert!(device.events().is_empty(), "who reads a file does not write the superblock");
    let refused = volume.make_node(ROOT_INO, b"refused", 0o100_644, 0, &caller());
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
    volume.sync_all().unwrap_err();
    volume.work(later(1)).unwrap_err();
    volume.work(later(90)).unwrap_err();
    volume.close().unwrap_err();
    let superblock = Superblock::decode(&read_block(&*device, 4).0, 4).unwrap();
    let copies = [SUPERBLOCK_ADDRESS, superblock.layout.backup];
    let written = |event: &Event| match event {
        Event::Write { range, .. } => Some(range.address),
        _ => None,
    };
    let written: Vec<u64> = device.events().iter().filter_map(written).collect();
    assert_eq!(written, copies, "nothing else is written");
    let expected = Failure { kind: ErrorKind::Data, at, secs: NOW.secs };
    assert_eq!(failure(&*device), Some(expected));
    drop(volume);
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"synced").unwrap();
    volume.lookup(ROOT_INO, b"not synced").expect_err("it was not durable");
}

/// The kinds of errors that are counted when the first segments are cleaned, in each of which blocks live that
/// nobody reads, and `corrupt` of the block at which a segment begins reads wrong.
fn met_by_the_cleaner(corrupt: impl Fn(u64) -> Range<u64>) -> Vec<ErrorKind> {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(40))));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "file");
    for at in 0..500 {
        write(&volume, file, at, &[1; 4096]).unwrap();
    }
    volume.sync_all().unwrap();
    for at in (0..500).filter(|at| at % 8 != 0) {
        write(&volume, file, at, &[2; 4096]).unwrap();
        if at % 31 == 0 {
            volume.sync_all().unwrap();
        }
    }
    volume.sync_all().unwrap();
    (0..8).for_each(|segment| device.corrupt_reads(corrupt(32 + segment * 32)));
    let mut random = Random(3);
    for round in 0..4000 {
        write(&volume, file, random.below(400) + 100, &[3; 4096]).unwrap();
        if round % 10 == 0 {
            volume.sync_all().unwrap();
        }
    }
    assert!(volume.counters().segments_cleaned > 10);
    counts(&volume).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn what_the_cleaner_meets_is_counted() {
    assert_eq!(met_by_the_cleaner(|_| 0..0), []);
    let summaries = met_by_the_cleaner(|start| start..start + 1);
    assert_eq!(summaries, [ErrorKind::Log]);
    let data = met_by_the_cleaner(|start| start + 1..start + 32);
    // Summaries of later chunks are among these blocks.
    assert!(data.contains(&ErrorKind::Data), "{data:?}");
}

#[test]
fn a_volume_that_was_shut_down_writes_no_note() {
    let (inner, at) = one_file();
    destroy(&*inner, at);
    let device = Arc::new(RecordingDevice::new(inner.snapshot(), Keep::Contents));
    let options =
        VolumeOptions { on_error: ErrorReaction::RemountReadOnly, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    device.take_events();
    assert!(is_corrupt(volume.read(file_of(&volume), 0, 4096)));
    volume.shut_down();
    volume.work(later(1)).unwrap_err();
    volume.close().unwrap_err();
    assert!(device.events().is_empty());
}
