//! Errors that a mount meets: counted, recorded for later mounts, and their effect on writing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use sfs_core::format::{
    ErrorCount, ErrorKind, Failure, ItemKind, Label, Occurrence, ROOT_INO, SUPERBLOCK_ADDRESS,
    Superblock, Timestamp,
};
use sfs_core::request::{ErrorReaction, VolumeOptions, XattrMode};
use sfs_core::{Error, Volume};
use sfs_device::{
    Block, Device, Event, FaultyDevice, Keep, Operation, RamDevice, RecordingDevice, Stream,
};

use crate::fixture::{NOW, Random, blocks_for, caller, create, format, open, ram, write};

/// Layout of a node, from docs/FORMAT.md: magic at 0, level at 34, key of the first item at 64.
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

/// Returns the addresses of the blocks whose bytes satisfy `is_wanted`.
fn find(device: &dyn Device, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let blocks = 0..device.geometry().block_count;
    blocks.filter(|at| is_wanted(&read_block(device, *at).0)).collect()
}

/// Overwrites a block with bytes that no structure has.
fn destroy(device: &dyn Device, at: u64) {
    device.write(at, &[&[Block([0xee; 4096])]], Stream::default()).unwrap();
}

/// Returns a device with a file of one block, and the address of the block.
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

/// Returns the failure that the superblock records, after a check that both copies agree.
fn failure(device: &dyn Device) -> Option<Failure> {
    let decode = |at| Superblock::decode(&read_block(device, at).0, at).unwrap();
    let first = decode(SUPERBLOCK_ADDRESS);
    assert_eq!(first, decode(first.layout.backup));
    first.failure
}

#[test]
fn a_data_error_is_recorded_with_its_first_and_last_time() {
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
        assert!(volume.remembered().errors.iter().eq(&expected), "the record is durable");
        volume.close().unwrap();
    }
    assert_eq!(failure(&*device), None, "writing has not ended");
}

/// Only the first error of a kind causes a checkpoint.
#[test]
fn a_repeated_error_causes_no_further_checkpoints() {
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
    assert_eq!(checkpoints_after(1), begun, "the checkpoint waits for its interval");
    assert_eq!(checkpoints_after(40), begun + 1);
    assert_eq!(checkpoints_after(80), begun + 1);
    assert_eq!(checkpoints_after(120), begun + 1);
    drop(volume);
    assert_eq!(
        counts(&open(&device)),
        [(ErrorKind::Data, 2)],
        "a crash loses the counts after the checkpoint"
    );
}

#[test]
fn a_read_only_mount_counts_errors_and_writes_nothing() {
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
fn a_failed_read_is_counted_and_a_later_success_is_not() {
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

/// The node is damaged on the device, and not in the cache.
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

/// The older checkpoint is not needed any more, but no crash damages its slot.
#[test]
fn a_mount_counts_a_damaged_slot_of_the_older_checkpoint() {
    let device = ram(64);
    open(&device).close().unwrap();
    let superblock = Superblock::decode(&read_block(&*device, 4).0, 4).unwrap();
    let number = |slot: usize| read_block(&*device, superblock.layout.slots[slot]).0[32];
    let older = usize::from(number(0) > number(1));
    destroy(&*device, superblock.layout.slots[older]);
    assert_eq!(counts(&open(&device)), [(ErrorKind::Volume, 1)]);
}

/// Returns a device with many files, three to a leaf and more than the cache holds, and their number.
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

/// Returns whether a block is a leaf whose first item satisfies `is_wanted`, by inode number and kind.
fn is_leaf_of(bytes: &[u8], is_wanted: impl Fn(u64, u8) -> bool) -> bool {
    let ino = u64::from_le_bytes(bytes[KEY_AT..KEY_AT + 8].try_into().unwrap());
    bytes.starts_with(MAGIC) && bytes[LEVEL_AT] == 0 && is_wanted(ino, bytes[KEY_AT + 8])
}

/// Overwrites the leaves of the usage table.
fn destroy_usage(device: &dyn Device) {
    let is_usage =
        |bytes: &[u8]| is_leaf_of(bytes, |ino, kind| ino == 0 && kind == ItemKind::Usage as u8);
    find(device, is_usage).into_iter().for_each(|leaf| destroy(device, leaf));
}

/// A checkpoint carries the counts of errors; without one the superblock records the reason.
#[test]
fn damage_that_prevents_checkpoints_is_recorded_in_the_superblock() {
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
fn a_failed_write_or_flush_is_recorded_in_the_superblock_once() {
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
        assert!(
            !device.inner().events().iter().any(is_superblock),
            "the superblock is written once"
        );
        drop(volume);
        let volume = open(&device);
        assert_eq!(volume.remembered().failure, Some(noted), "a mount does not clear it");
        create(&volume, "another");
        volume.close().unwrap();
        assert_eq!(failure(&*device), Some(noted));
    }
}

#[test]
fn a_failed_fsync_records_the_failure_before_it_returns() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(64))));
    format(&device, 32);
    let volume = open(&device);
    let file = create(&volume, "file");
    device.fail_nth(Operation::Write, 1);
    assert!(matches!(volume.sync_file_after(file, &mut 0), Err(Error::Device(_))));
    let noted = failure(&*device).expect("the failure");
    assert_eq!((noted.kind, noted.secs), (ErrorKind::Write, NOW.secs));
}

/// A failed flush may have lost earlier writes of other callers, and the device need not fail the next flush. A later
/// sync would then report data as durable that is lost.
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
    assert!(is_corrupt(volume.work(later(310))), "the checkpoint fails");
    assert!(volume.has_failed(), "the record of the failure was not flushed");
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
    assert!(device.events().is_empty(), "a read does not write the superblock");
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
    volume.lookup(ROOT_INO, b"not synced").expect_err("the file was not durable");
}

/// Cleans segments with damaged blocks, and returns the kinds of errors that are counted. `corrupt` returns the damaged
/// blocks for the first block of a segment. Each of the segments has live blocks that only the cleaner reads.
fn errors_of_cleaning(corrupt: impl Fn(u64) -> Range<u64>) -> Vec<ErrorKind> {
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
fn errors_met_by_the_cleaner_are_counted() {
    assert_eq!(errors_of_cleaning(|_| 0..0), []);
    let summaries = errors_of_cleaning(|start| start..start + 1);
    assert_eq!(summaries, [ErrorKind::Log]);
    let data = errors_of_cleaning(|start| start + 1..start + 32);
    // The damaged blocks include summaries of later chunks, so other kinds are counted, too.
    assert!(data.contains(&ErrorKind::Data), "{data:?}");
}

#[test]
fn a_shut_down_volume_does_not_record_failures() {
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

/// Deleting an orphan needs a checkpoint first, and the checkpoint meets damage every time: the unmount tried the same
/// orphan for ever.
#[test]
fn an_orphan_that_cannot_be_deleted_does_not_keep_the_unmount_going() {
    let (device, count) = many_files();
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = Arc::new(Volume::open(device.clone(), options, NOW).unwrap());
    let gone = create(&volume, "gone");
    volume.unlink(ROOT_INO, b"gone", &caller()).unwrap();
    volume.forget_at_rest(gone, 1);
    destroy_usage(&*device);
    let is_refused = (0..count).any(|number| {
        let file = volume.lookup(ROOT_INO, format!("file {number}").as_bytes()).unwrap().ino;
        is_corrupt(volume.set_xattr(file, b"user.long", &[1; 3000], XattrMode::Any, &caller()))
    });
    assert!(is_refused, "a change needs a checkpoint, which fails");
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(is_corrupt(volume.close())));
    assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(true));
}
