//! What damage to one file did to others.

use std::sync::Arc;

use sfs_core::format::{ErrorKind, ItemKind, ROOT_INO, SUPERBLOCK_ADDRESS, Timestamp};
use sfs_core::request::{ErrorReaction, VolumeOptions, Work};
use sfs_core::{Error, Volume};
use sfs_device::{Block, Device, Event, FaultyDevice, Keep, RamDevice, RecordingDevice, Stream};

use crate::rig::{NOW, blocks_for, caller, create, format, open, read, set_size, write};

/// Blocks between two of a file, so that each has a run of its own and the file many leaves.
const FAR: u64 = 32;

/// From docs/FORMAT.md: a node begins with its magic, has its level at 34 and its first item's key
/// at 64.
const MAGIC: &[u8] = b"SFSn";
const LEVEL_AT: usize = 34;
const CHECKPOINT_AT: usize = 24;
const KEY_AT: usize = 64;

/// A volume with the file "bad", of whose mappings a leaf is damaged; the file, and a block in the
/// leaf.
fn damaged() -> (Arc<RamDevice>, u64, u64) {
    let (device, bad, block, leaf) = volume();
    device.write(leaf, &[&Block::zeroed(1)], Stream::default()).unwrap();
    (device, bad, block)
}

/// As [`damaged`], with the address of the leaf instead of the damage.
fn volume() -> (Arc<RamDevice>, u64, u64, u64) {
    let device = Arc::new(RamDevice::new(256 << 8));
    format(&device, 256);
    let volume = open(&device);
    let bad = create(&volume, "bad");
    for at in 0..2000 {
        write(&volume, bad, at * FAR, &[7; 4096]).unwrap();
    }
    volume.close().unwrap();
    let (block, leaf) = newest_leaf(&device, bad);
    (device, bad, block, leaf)
}

/// A block of a file, and the address of the leaf that has its mapping.
struct Mapped {
    file: u64,
    block: u64,
    leaf: u64,
}

/// As [`volume`], with a second such file whose leaves are its own.
fn two_files() -> (Arc<FaultyDevice<RamDevice>>, [Mapped; 2]) {
    let (inner, bad, block, leaf) = volume();
    let device = Arc::new(FaultyDevice::new(inner.snapshot()));
    let volume = open(&device);
    let second = create(&volume, "second");
    for at in 0..2000 {
        write(&volume, second, at * FAR, &[7; 4096]).unwrap();
    }
    volume.close().unwrap();
    let first = Mapped { file: bad, block, leaf };
    let (block, leaf) = newest_leaf(&device, second);
    (device, [first, Mapped { file: second, block, leaf }])
}

/// A block of `bad` in the middle, and the leaf that has its mapping.
fn newest_leaf(device: &Arc<impl Device>, bad: u64) -> (u64, u64) {
    let leaves = leaves(device, bad);
    let newest = leaves.iter().map(|leaf| leaf.0).max().expect("a leaf");
    let found = leaves.iter().filter(|leaf| leaf.0 == newest && leaf.1 > 500);
    let (_, run, at) = *found.min().expect("a leaf in the middle");
    (run * FAR, at)
}

/// All leaves on the device that begin with a mapping of `ino`: their checkpoint, the run and the address.
fn leaves(device: &Arc<impl Device>, ino: u64) -> Vec<(u64, u64, u64)> {
    let leaf = |at: u64| {
        let mut block = Block::zeroed(1);
        device.read(at, &mut block).unwrap();
        let bytes = Block::bytes_of(&block);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let is_leaf = bytes.starts_with(MAGIC) && bytes[LEVEL_AT] == 0;
        let is_its = word(KEY_AT) == ino && bytes[KEY_AT + 8] == ItemKind::Mapping as u8;
        (is_leaf && is_its).then(|| (word(CHECKPOINT_AT), word(KEY_AT + 9), at))
    };
    (0..device.geometry().block_count).filter_map(leaf).collect()
}

fn size(volume: &Volume, name: &str) -> Option<u64> {
    volume.lookup(ROOT_INO, name.as_bytes()).ok().map(|entry| entry.inode.size)
}

/// The file could not be planned, and with it nothing else was ever committed.
#[test]
fn a_damaged_leaf_keeps_nothing_else_from_being_written() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    let later = Timestamp { secs: NOW.secs + 60, ..NOW };
    volume.work(NOW).unwrap();
    assert!(matches!(volume.work(later), Err(Error::Corrupt(_))), "the log is told");
    volume.work(later).unwrap();
    assert!(matches!(volume.sync_file(bad), Err(Error::Corrupt(_))), "and who syncs the file, too");
    volume.sync_file(bad).unwrap();
    assert!(matches!(volume.sync_all(), Err(Error::Corrupt(_))), "and who syncs everything");
    volume.sync_all().unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    write(&volume, new, 0, &[4; 8192]).unwrap();
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "what was lost is said");
    assert!(volume.is_closed(), "but all else is written");
    drop(volume);
    let volume = open(&device);
    assert_eq!(size(&volume, "new"), Some(8192));
    assert_eq!(read(&volume, new, 0, 8192), [4; 8192]);
    assert_eq!(read(&volume, bad, 0, 4096), [7; 4096], "what is not damaged is there");
}

/// The commit that met the damage itself gave the damaged file up, and wrote all else.
#[test]
fn with_errors_remount_ro_a_commit_that_meets_damage_writes_nothing() {
    let (inner, bad, block) = damaged();
    let device = Arc::new(RecordingDevice::new(inner.snapshot(), Keep::Contents));
    let options =
        VolumeOptions { on_error: ErrorReaction::RemountReadOnly, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    volume.lookup(ROOT_INO, b"bad").unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    device.take_events();
    assert!(matches!(volume.sync_all(), Err(Error::Stopped)));
    assert!(volume.has_failed());
    let written = |event: &Event| match event {
        Event::Write { range, .. } => Some(range.address),
        _ => None,
    };
    let written: Vec<u64> = device.events().iter().filter_map(written).collect();
    let copies = [SUPERBLOCK_ADDRESS, volume.superblock().layout.backup];
    assert_eq!(written, copies, "nothing but the note");
    drop(volume);
    assert_eq!(size(&open(&device), "new"), None, "it was not durable");
}

/// A leaf that the device does not read is tried again; then it is as good as damaged.
#[test]
fn an_unreadable_leaf_keeps_nothing_else_from_being_written() {
    let (device, bad, block, leaf) = volume();
    let device = Arc::new(FaultyDevice::new(device.snapshot()));
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    device.fail_reads(leaf..leaf + 1);
    assert!(matches!(volume.sync_all(), Err(Error::Device(_))), "the first time");
    device.heal();
    volume.sync_all().unwrap();
    assert_eq!(read(&volume, bad, block * 4096, 4096), [9; 4096], "it was tried again");
    let met = |volume: &Volume, kind| volume.remembered().errors.count(kind);
    let kinds = [ErrorKind::Read, ErrorKind::Retry, ErrorKind::Tree];
    assert_eq!(kinds.map(|kind| met(&volume, kind)), [1, 1, 0]);

    volume.close().unwrap();
    drop(volume);
    let (inner, bad, block, leaf) = self::volume();
    let device = Arc::new(FaultyDevice::new(inner.snapshot()));
    let volume = open(&device);
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[4; 8192]).unwrap();
    device.fail_reads(leaf..leaf + 1);
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "what was lost is said");
    drop(volume);
    let volume = open(&device);
    assert_eq!(read(&volume, new, 0, 8192), [4; 8192]);
    assert_eq!(kinds.map(|kind| met(&volume, kind)), [3, 0, 1]);
}

/// Neither keeps the other from being given up.
#[test]
fn two_unreadable_leaves_keep_nothing_else_from_being_written() {
    let (device, files) = two_files();
    for Mapped { leaf, .. } in &files {
        device.fail_reads(*leaf..*leaf + 1);
    }
    let volume = open(&device);
    let new = create(&volume, "new");
    let mut synced = 0;
    for round in 0..12 {
        for Mapped { file, block, .. } in &files {
            write(&volume, *file, *block, &[9; 4096]).unwrap();
        }
        write(&volume, new, 0, &[round; 8192]).unwrap();
        synced += u32::from(!matches!(volume.sync_all(), Err(Error::Device(_))));
    }
    assert!(synced >= 6, "{synced} of 12 syncs have written something");
    write(&volume, new, 0, &[99; 8192]).unwrap();
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "what was lost is said");
    drop(volume);
    assert_eq!(read(&open(&device), new, 0, 8192), [99; 8192]);
}

/// The unmount tries each of them often enough, though nothing was tried before.
#[test]
fn an_unmount_gets_over_two_unreadable_leaves() {
    let (device, files) = two_files();
    let volume = open(&device);
    for Mapped { file, block, .. } in &files {
        write(&volume, *file, *block, &[9; 4096]).unwrap();
    }
    let new = create(&volume, "new");
    write(&volume, new, 0, &[4; 8192]).unwrap();
    for Mapped { leaf, .. } in &files {
        device.fail_reads(*leaf..*leaf + 1);
    }
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "what was lost is said");
    drop(volume);
    assert_eq!(read(&open(&device), new, 0, 8192), [4; 8192]);
}

/// Its data waited for ever, until others had no memory to write to.
#[test]
fn a_damaged_leaf_does_not_fill_the_write_buffer() {
    let (device, bad, block) = damaged();
    let options = VolumeOptions { write_buffer: 4 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device, options, NOW).unwrap();
    let new = create(&volume, "new");
    for at in 0..64 {
        write(&volume, bad, block, &[9; 4096]).unwrap();
        write(&volume, new, at * 32, &vec![3; 1 << 17]).unwrap();
    }
    volume.sync_file(new).unwrap();
}

/// It took the place of another file: its data was to go with every delta.
#[test]
fn a_damaged_file_that_is_renamed_over_another_holds_up_no_sync() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    create(&volume, "target");
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let mode = sfs_core::request::RenameMode::Replace;
    volume.rename(ROOT_INO, b"bad", ROOT_INO, b"target", mode, &caller()).unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    volume.sync_file(new).unwrap();
    drop(volume);
    assert_eq!(size(&open(&device), "new"), Some(8192));
}

/// The unmount began with deleting, and ended where that failed.
#[test]
fn a_deleted_file_that_cannot_be_read_loses_nothing_of_others() {
    let (device, bad, _) = damaged();
    let volume = open(&device);
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    volume.unlink(ROOT_INO, b"bad", &caller()).unwrap();
    volume.forget(bad, 1);
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "it is not deleted");
    assert!(volume.is_closed(), "but all else is written");
    drop(volume);
    let volume = open(&device);
    assert_eq!((size(&volume, "new"), size(&volume, "bad")), (Some(8192), None));
    // The next mount tries again, and goes on with the rest.
    write(&volume, new, 0, &[4; 8192]).unwrap();
    let later = Timestamp { secs: NOW.secs + 60, ..NOW };
    let outcomes: Vec<bool> = (0..10).map(|_| volume.work(later).is_ok()).collect();
    assert!(outcomes.contains(&false) && outcomes.ends_with(&[true; 5]), "{outcomes:?}");
}

/// Nothing said of a file without a name how far it was to be cut, and when it grew its old content was
/// shown again.
#[test]
fn what_a_failed_truncation_leaves_is_not_shown_again() {
    for has_name in [true, false] {
        let (inner, bad, block, leaf) = volume();
        let device = Arc::new(FaultyDevice::new(inner.snapshot()));
        let volume = open(&device);
        volume.lookup(ROOT_INO, b"bad").unwrap();
        if !has_name {
            volume.unlink(ROOT_INO, b"bad", &caller()).unwrap();
        }
        device.fail_reads(leaf..leaf + 1);
        assert!(set_size(&volume, bad, 4096).is_err(), "it fails half way");
        assert_eq!(volume.attributes(bad).unwrap().size, 4096, "it is short");
        device.heal();
        set_size(&volume, bad, 2000 * FAR * 4096).unwrap();
        assert_eq!(read(&volume, bad, block * 4096, 4096), [0; 4096], "has a name: {has_name}");
    }
}

/// Nobody referred to the file any more when it was given up, and nobody was ever told.
#[test]
fn a_loss_is_told_though_the_file_was_forgotten() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    volume.forget(bad, 1);
    let at = |secs| Timestamp { secs: NOW.secs + secs, ..NOW };
    volume.work(at(0)).unwrap();
    assert!(matches!(volume.work(at(60)), Err(Error::Corrupt(_))), "the log is told");
    volume.work(at(62)).unwrap();
    volume.lookup(ROOT_INO, b"bad").unwrap();
    assert!(matches!(volume.sync_file(bad), Err(Error::Corrupt(_))), "who syncs it next");
    volume.sync_file(bad).unwrap();
}

/// The first who asked was told, and nobody else who had the file open.
#[test]
fn each_who_has_a_file_open_is_told_of_a_loss_once() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    let mut listeners = [volume.losses_told(bad); 2];
    write(&volume, bad, block, &[9; 4096]).unwrap();
    assert!(volume.sync_all().is_err(), "it is lost");
    // Nobody has asked for this file yet: who opens it now is told, too.
    let mut third = volume.losses_told(bad);
    for told in listeners.iter_mut().chain([&mut third]) {
        let asked = volume.sync_file_after(bad, told);
        assert!(matches!(asked, Err(Error::Corrupt(_))), "{asked:?}");
        volume.sync_file_after(bad, told).unwrap();
    }
    let mut late = volume.losses_told(bad);
    volume.sync_file_after(bad, &mut late).unwrap();
}

/// The cleaner had a file's blocks in hand when the leaf with their mappings could not be read any more,
/// and kept them in hand for ever: nothing else was cleaned, and who wrote was told of it.
#[test]
fn an_unreadable_leaf_does_not_stop_cleaning() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(285))));
    format(&device, 32);
    let (cache, grouping) = (1 << 20, "none".to_owned());
    let options =
        VolumeOptions { cache, grouping, yield_cleaning: false, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options.clone(), NOW).unwrap();
    let (bad, dead) = (create(&volume, "bad"), create(&volume, "dead"));
    let others: Vec<u64> = (0..12_000).map(|no| create(&volume, &format!("{no}"))).collect();
    // Each segment has a block of the one, and some that do not live long.
    for at in 0..350 {
        write(&volume, bad, at * FAR, &[7; 4096]).unwrap();
        write(&volume, dead, 0, &[1; 20 * 4096]).unwrap();
        volume.sync_all().unwrap();
    }
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let later = Timestamp { secs: NOW.secs + 1, ..NOW };
    (0..100).for_each(|_| assert_eq!(volume.work(later).unwrap(), Work::More, "it cleans"));
    assert_eq!(volume.counters().segments_cleaned, 0, "it has them in hand");
    for file in others {
        volume.attributes(file).unwrap();
    }
    for (_, _, leaf) in leaves(&device, bad) {
        device.fail_reads(leaf..leaf + 1);
    }
    let failures = (0..1000).filter(|_| volume.work(later).is_err()).count();
    assert_eq!(failures, 1, "it is said, and then cleaned elsewhere");
    assert!(volume.counters().segments_cleaned > 0);
    assert!(!volume.has_failed());
}

/// A write was refused for what could not be written of another file, and done all the same.
#[test]
fn a_write_is_not_refused_for_damage_of_others() {
    let (inner, bad, block, leaf) = volume();
    let device = Arc::new(FaultyDevice::new(inner.snapshot()));
    let options = VolumeOptions { write_buffer: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    device.fail_reads(leaf..leaf + 1);
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let good = create(&volume, "good");
    for no in 0..6 {
        write(&volume, good, no * 256, &[5; 1 << 20]).unwrap();
    }
    volume.sync_file(good).unwrap();
}
