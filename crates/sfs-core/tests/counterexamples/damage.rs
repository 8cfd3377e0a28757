//! Damage to one file: the effect on other files, and how losses are reported.

use std::sync::Arc;

use sfs_core::format::{ErrorKind, ItemKind, ROOT_INO, SUPERBLOCK_ADDRESS, Timestamp};
use sfs_core::request::{ErrorReaction, VolumeOptions, Work};
use sfs_core::{Error, Volume};
use sfs_device::{
    Block, Device, Event, FaultyDevice, Keep, Operation, RamDevice, RecordingDevice, Stream,
};

use crate::fixture::{NOW, blocks_for, caller, create, format, open, read, set_size, write};

/// Distance between the written blocks of a file, so that each has a run of its own and the file many leaves.
const FAR: u64 = 32;

/// Layout of a node, from docs/FORMAT.md: magic at 0, checkpoint at 24, level at 34, key of the first item at 64.
const MAGIC: &[u8] = b"SFSn";
const LEVEL_AT: usize = 34;
const CHECKPOINT_AT: usize = 24;
const KEY_AT: usize = 64;

/// Returns a device with the file "bad" and a damaged leaf of its mappings; the file; and a block in that leaf.
fn damaged() -> (Arc<RamDevice>, u64, u64) {
    let (device, bad, block, leaf) = volume();
    device.write(leaf, &[&Block::zeroed(1)], Stream::default()).unwrap();
    (device, bad, block)
}

/// Returns the same as [`damaged`] without the damage, and the address of the leaf.
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

/// Block of a file, and the address of the leaf that has its mapping.
struct Mapped {
    file: u64,
    block: u64,
    leaf: u64,
}

/// Returns the volume of [`volume`] with a second such file, whose leaves are its own.
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

/// Returns a block in the middle of `bad`, and the address of the leaf that has its mapping.
fn newest_leaf(device: &Arc<impl Device>, bad: u64) -> (u64, u64) {
    let leaves = leaves(device, bad);
    let newest = leaves.iter().map(|leaf| leaf.0).max().expect("a leaf");
    let found = leaves.iter().filter(|leaf| leaf.0 == newest && leaf.1 > 500);
    let (_, run, at) = *found.min().expect("a leaf in the middle");
    (run * FAR, at)
}

/// Returns checkpoint, run and address of all leaves on the device that begin with a mapping of `ino`.
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

/// Returns the length of the file called `name`, if it exists.
fn size(volume: &Volume, name: &str) -> Option<u64> {
    volume.lookup(ROOT_INO, name.as_bytes()).ok().map(|entry| entry.inode.size)
}

/// The commit could not plan the damaged file, and no other file was committed either.
#[test]
fn a_damaged_leaf_does_not_prevent_other_writes() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    let later = Timestamp { secs: NOW.secs + 60, ..NOW };
    volume.work(NOW).unwrap();
    assert!(
        matches!(volume.work(later), Err(Error::Corrupt(_))),
        "background work reports the loss"
    );
    volume.work(later).unwrap();
    assert!(
        matches!(volume.sync_file(bad), Err(Error::Corrupt(_))),
        "a sync of the file reports the loss, too"
    );
    volume.sync_file(bad).unwrap();
    assert!(
        matches!(volume.sync_all(), Err(Error::Corrupt(_))),
        "a sync of the volume reports the loss, too"
    );
    volume.sync_all().unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    write(&volume, new, 0, &[4; 8192]).unwrap();
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "the unmount reports the loss");
    assert!(volume.is_closed(), "all other files are written");
    drop(volume);
    let volume = open(&device);
    assert_eq!(size(&volume, "new"), Some(8192));
    assert_eq!(read(&volume, new, 0, 8192), [4; 8192]);
    assert_eq!(read(&volume, bad, 0, 4096), [7; 4096], "other blocks of the file are there");
}

/// The commit that finds the damage must not go on with the other files.
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
    assert_eq!(written, copies, "only the superblocks are written");
    drop(volume);
    assert_eq!(size(&open(&device), "new"), None, "the new file was not durable");
}

/// A commit retries a leaf that the device does not read. After enough attempts the leaf counts as damaged.
#[test]
fn an_unreadable_leaf_does_not_prevent_other_writes() {
    let (device, bad, block, leaf) = volume();
    let device = Arc::new(FaultyDevice::new(device.snapshot()));
    // From the beginning, so that the leaf is not read along with another node.
    device.fail_reads(leaf..leaf + 1);
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    assert!(matches!(volume.sync_all(), Err(Error::Device(_))), "the first attempt fails");
    device.heal();
    volume.sync_all().unwrap();
    assert_eq!(read(&volume, bad, block * 4096, 4096), [9; 4096], "the write was retried");
    let met = |volume: &Volume, kind| volume.remembered().errors.count(kind);
    let kinds = [ErrorKind::Read, ErrorKind::Retry, ErrorKind::Tree];
    // A node near the leaf was read once more as well, after a request for both.
    assert_eq!(kinds.map(|kind| met(&volume, kind)), [1, 2, 0]);

    volume.close().unwrap();
    drop(volume);
    let (inner, bad, block, leaf) = self::volume();
    let device = Arc::new(FaultyDevice::new(inner.snapshot()));
    device.fail_reads(leaf..leaf + 1);
    let volume = open(&device);
    write(&volume, bad, block, &[9; 4096]).unwrap();
    let new = create(&volume, "new");
    write(&volume, new, 0, &[4; 8192]).unwrap();
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "the unmount reports the loss");
    drop(volume);
    let volume = open(&device);
    assert_eq!(read(&volume, new, 0, 8192), [4; 8192]);
    assert_eq!(kinds.map(|kind| met(&volume, kind)), [3, 2, 1]);
}

/// Two unreadable leaves at once: each is retried, and each is given up.
#[test]
fn two_unreadable_leaves_do_not_prevent_other_writes() {
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
    assert!(synced >= 6, "{synced} of 12 syncs did not fail with a device error");
    write(&volume, new, 0, &[99; 8192]).unwrap();
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "the unmount reports the loss");
    drop(volume);
    assert_eq!(read(&open(&device), new, 0, 8192), [99; 8192]);
}

/// The unmount itself makes enough attempts for each leaf.
#[test]
fn an_unmount_completes_despite_two_unreadable_leaves() {
    let (device, files) = two_files();
    for Mapped { leaf, .. } in &files {
        device.fail_reads(*leaf..*leaf + 1);
    }
    let volume = open(&device);
    for Mapped { file, block, .. } in &files {
        write(&volume, *file, *block, &[9; 4096]).unwrap();
    }
    let new = create(&volume, "new");
    write(&volume, new, 0, &[4; 8192]).unwrap();
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "the unmount reports the loss");
    drop(volume);
    assert_eq!(read(&open(&device), new, 0, 8192), [4; 8192]);
}

/// The data of the damaged file stayed in the write buffer for ever, until no other writer got memory.
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

/// A file that replaces another is ordered: its data has to go with the next delta. The damage made every delta fail.
#[test]
fn a_damaged_file_renamed_over_another_does_not_block_syncs() {
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

/// The unmount deletes files first, and ended when a deletion failed.
#[test]
fn an_unreadable_deleted_file_does_not_affect_other_files() {
    let (device, bad, _) = damaged();
    let volume = open(&device);
    let new = create(&volume, "new");
    write(&volume, new, 0, &[3; 8192]).unwrap();
    volume.unlink(ROOT_INO, b"bad", &caller()).unwrap();
    volume.forget(bad, 1);
    assert!(matches!(volume.close(), Err(Error::Corrupt(_))), "the deletion fails");
    assert!(volume.is_closed(), "all other files are written");
    drop(volume);
    let volume = open(&device);
    assert_eq!((size(&volume, "new"), size(&volume, "bad")), (Some(8192), None));
    // The next mount retries the deletion, and goes on with other work.
    write(&volume, new, 0, &[4; 8192]).unwrap();
    let later = Timestamp { secs: NOW.secs + 60, ..NOW };
    let outcomes: Vec<bool> = (0..10).map(|_| volume.work(later).is_ok()).collect();
    assert!(outcomes.contains(&false) && outcomes.ends_with(&[true; 5]), "{outcomes:?}");
}

/// The orphan item of a file without a name does not record a truncation. When such a file was extended after a failed
/// truncation, its old content was shown again.
#[test]
fn content_cut_off_by_a_failed_truncation_is_not_shown_again() {
    for has_name in [true, false] {
        let (inner, bad, block, leaf) = volume();
        let device = Arc::new(FaultyDevice::new(inner.snapshot()));
        device.fail_reads(leaf..leaf + 1);
        let volume = open(&device);
        volume.lookup(ROOT_INO, b"bad").unwrap();
        if !has_name {
            volume.unlink(ROOT_INO, b"bad", &caller()).unwrap();
        }
        assert!(set_size(&volume, bad, 4096).is_err(), "the truncation fails half way");
        assert_eq!(volume.attributes(bad).unwrap().size, 4096, "the new length is shown");
        device.heal();
        set_size(&volume, bad, 2000 * FAR * 4096).unwrap();
        assert_eq!(read(&volume, bad, block * 4096, 4096), [0; 4096], "has a name: {has_name}");
    }
}

/// The file had no reference any more when its data was given up, and the loss was never reported.
#[test]
fn a_loss_is_reported_after_the_last_reference_was_dropped() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    write(&volume, bad, block, &[9; 4096]).unwrap();
    volume.forget(bad, 1);
    let at = |secs| Timestamp { secs: NOW.secs + secs, ..NOW };
    volume.work(at(0)).unwrap();
    assert!(
        matches!(volume.work(at(60)), Err(Error::Corrupt(_))),
        "background work reports the loss"
    );
    volume.work(at(62)).unwrap();
    volume.lookup(ROOT_INO, b"bad").unwrap();
    assert!(
        matches!(volume.sync_file(bad), Err(Error::Corrupt(_))),
        "the next sync of the file reports the loss"
    );
    volume.sync_file(bad).unwrap();
}

/// Only the first sync got the error, and no other handle.
#[test]
fn a_loss_is_reported_once_to_each_open_handle() {
    let (device, bad, block) = damaged();
    let volume = open(&device);
    volume.lookup(ROOT_INO, b"bad").unwrap();
    let mut handles = [volume.losses_told(bad); 2];
    write(&volume, bad, block, &[9; 4096]).unwrap();
    assert!(volume.sync_all().is_err(), "the data is lost");
    // The loss has not been reported yet, so a handle that is opened now gets it, too.
    let mut third = volume.losses_told(bad);
    for reported in handles.iter_mut().chain([&mut third]) {
        let asked = volume.sync_file_after(bad, reported);
        assert!(matches!(asked, Err(Error::Corrupt(_))), "{asked:?}");
        volume.sync_file_after(bad, reported).unwrap();
    }
    let mut late = volume.losses_told(bad);
    volume.sync_file_after(bad, &mut late).unwrap();
}

/// The cleaner had planned to move blocks of a file when the leaf with their mappings became unreadable. The
/// plan stayed for ever: no other segment was cleaned, and writers got the error.
#[test]
fn an_unreadable_leaf_does_not_stop_cleaning() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(285))));
    format(&device, 32);
    let (cache, grouping) = (1 << 20, "none".to_owned());
    let options =
        VolumeOptions { cache, grouping, yield_cleaning: false, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options.clone(), NOW).unwrap();
    let (bad, short_lived) = (create(&volume, "bad"), create(&volume, "short-lived"));
    let others: Vec<u64> = (0..12_000).map(|no| create(&volume, &format!("{no}"))).collect();
    // Each segment has a block of `bad`, and blocks that are soon overwritten.
    for at in 0..350 {
        write(&volume, bad, at * FAR, &[7; 4096]).unwrap();
        write(&volume, short_lived, 0, &[1; 20 * 4096]).unwrap();
        volume.sync_all().unwrap();
    }
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), options, NOW).unwrap();
    let later = Timestamp { secs: NOW.secs + 1, ..NOW };
    (0..100)
        .for_each(|_| assert_eq!(volume.work(later).unwrap(), Work::More, "the cleaner has work"));
    assert_eq!(volume.counters().segments_cleaned, 0, "the moves are planned, not written");
    for file in others {
        volume.attributes(file).unwrap();
    }
    for (_, _, leaf) in leaves(&device, bad) {
        device.fail_reads(leaf..leaf + 1);
    }
    let failures = (0..1000).filter(|_| volume.work(later).is_err()).count();
    assert_eq!(failures, 1, "the error is reported once, and cleaning goes on elsewhere");
    assert!(volume.counters().segments_cleaned > 0);
    assert!(!volume.has_failed());
}

/// A write that had to make space in the buffer was refused for the damage of another file, but kept its data.
#[test]
fn a_write_is_not_refused_for_damage_to_another_file() {
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

/// A listing that met an unreadable node after some entries kept its references to their files: the
/// caller got an error and knew of no entry. When such a file was deleted, its blocks stayed
/// allocated until the next mount.
#[test]
fn a_listing_that_fails_later_keeps_no_reference_that_its_caller_does_not_know() {
    let device = Arc::new(FaultyDevice::new(RamDevice::new(blocks_for(64))));
    format(&device, 32);
    let volume = open(&device);
    for no in 0..600 {
        create(&volume, &format!("{no:0>100}"));
    }
    volume.close().unwrap();
    let mut cut_short = 0;
    for nth in 1..40 {
        let volume = open(&device);
        device.fail_from(Operation::Read, nth);
        let mut listed = 0;
        let outcome = volume.read_directory(ROOT_INO, 0, true, &mut |entry| {
            listed += u64::from(entry.inode.is_some());
            true
        });
        let known = if outcome.is_ok() { listed } else { 0 };
        assert_eq!(volume.reference_count(), known, "read {nth}: {outcome:?}");
        cut_short += u32::from(outcome.is_ok() && listed < 600);
        device.heal();
    }
    assert!(cut_short > 0, "some reads fail after entries were listed");
}
