//! Number of files in a checkpoint: counted by a check, corrected by a repair, kept by every checkpoint of
//! `sfs-fsck`.

use std::sync::Arc;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, ErrorCounts, Extension, ExtensionClass, FileCount,
};
use sfs_core::{Volume, format::ROOT_INO, request::Caller, request::VolumeOptions};
use sfs_device::{Block, Device};
use sfs_fsck::{Finding, RepairOutcome};

use super::fixture::{NOW, check_device, errors, populated, repair_with};
use super::forge::{Forge, HELLO};
use super::forged_volume::ForgedVolume;
use super::fresh::fresh;

/// Number of inodes of the populated volume, with its root directory and an orphan.
const INODES: u64 = 6;

/// Returns a populated volume whose checkpoint counts `files`.
fn counting(files: u64) -> Forge {
    let mut forge = populated();
    forge.on_record = Box::new(move |record| FileCount(files).put_into(&mut record.extensions));
    forge
}

/// Returns the number of files in the newest checkpoint on `device`, a copy of that of `volume`.
fn newest_count(device: &dyn Device, volume: &ForgedVolume) -> Option<u64> {
    let superblock = &volume.superblock;
    let slot = |at: u64| {
        let mut blocks = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
        device.read(at, &mut blocks).expect("RAM");
        CheckpointRecord::decode(Block::bytes_of(&blocks), superblock.volume(), at).ok()
    };
    let records = superblock.layout.slots.into_iter().filter_map(slot);
    let newest = records.max_by_key(|record| record.number).expect("a checkpoint");
    assert!(newest.number > volume.record.number, "a newer checkpoint was written");
    FileCount::of(&newest.extensions).map(|FileCount(count)| count)
}

fn repaired(volume: &ForgedVolume, preen: bool) -> (Arc<dyn Device>, RepairOutcome) {
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    let outcome = repair_with(&device, preen, false);
    assert_eq!(outcome.errors_left(), 0);
    (device, outcome)
}

#[test]
fn the_number_of_files_is_checked() {
    assert_eq!(errors(&counting(INODES).build()), []);
    assert_eq!(errors(&populated().build()), [], "a checkpoint need not state the number");
    for recorded in [0, INODES - 1, INODES + 1, 1 << 60] {
        let found = errors(&counting(recorded).build());
        assert_eq!(found, [Finding::FileCount { recorded, counted: INODES }]);
    }
    let finding = Finding::FileCount { recorded: 3, counted: 6 };
    assert_eq!(finding.to_string(), "the checkpoint counts 3 files, but there are 6");
}

/// The log past a checkpoint changes the number of files, but a checkpoint states that of its tree.
#[test]
fn files_past_the_checkpoint_do_not_count() {
    let device = fresh(16 << 20);
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    for name in [b"one", b"two"] {
        volume.make_node(ROOT_INO, name, 0o100_644, 0, &caller).expect("a file");
    }
    volume.sync_all().expect("a sync");
    let crashed = device.snapshot();
    let report = check_device(&crashed, false).expect("a volume");
    assert_eq!((report.files, report.errors()), (2, 0), "{:?}", report.findings.kept());
    assert!(report.rolled_chunks > 0, "the files are past the checkpoint");
}

#[test]
fn preening_corrects_the_number_of_files_and_nothing_else() {
    let volume = counting(9).build();
    let (device, outcome) = repaired(&volume, true);
    assert!(outcome.after.is_some() && outcome.losses.is_empty(), "{:?}", outcome.losses);
    assert_eq!(newest_count(&*device, &volume), Some(INODES));
    let mounted = Volume::open(device, VolumeOptions::default(), NOW).expect("a mount");
    assert_eq!(mounted.audit().expect("an audit"), []);
}

#[test]
fn a_repair_of_other_damage_counts_the_files() {
    for recorded in [INODES, 9] {
        let mut forge = counting(recorded);
        forge.change_inode(HELLO, |inode| inode.links = 9);
        let volume = forge.build();
        let (device, _) = repaired(&volume, false);
        assert_eq!(newest_count(&*device, &volume), Some(INODES));
    }
}

/// The removal of recorded errors writes a checkpoint of its own.
#[test]
fn the_removal_of_recorded_errors_keeps_the_number_of_files() {
    let mut forge = populated();
    forge.on_record = Box::new(|record| {
        let class = ExtensionClass::Keep;
        record.extensions.set(Extension { tag: ErrorCounts::TAG, class, bytes: vec![1; 7] });
        FileCount(INODES).put_into(&mut record.extensions);
    });
    let volume = forge.build();
    let (device, outcome) = repaired(&volume, true);
    assert!(outcome.after.is_none(), "there is no error");
    assert!(outcome.remembered.is_some_and(|left| left.is_empty()), "every error is forgotten");
    assert_eq!(newest_count(&*device, &volume), Some(INODES));
}
