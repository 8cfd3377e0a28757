//! Copies of the superblock: choice, states after a crash, repair, and refusal of newer volumes.

use std::ops::ControlFlow;
use std::sync::Arc;

use sfs_core::format::{
    CheckpointRecord, Corruption, CorruptionKind, Extension, ExtensionClass, Extensions, Features,
    FileCount, Incompatibility, LOCATOR_ADDRESS, Label, SUPERBLOCK_ADDRESS, Structure, Superblock,
    WearLedger,
};
use sfs_core::request::VolumeOptions;
use sfs_device::{
    BLOCK_SIZE, Block, Device, DeviceError, Event, Geometry, Keep, RamDevice, RecordingDevice,
    Stream,
};
use sfs_fsck::{Finding, FsckError, RepairOptions, RepairOutcome, SuperblockCopy, repair};

use super::fixture::repair_with;
use super::fixture::{NOW, check_device, errors, populated};
use super::forge::HELLO;
use super::forged_volume::{ForgedVolume, reseal_superblock};

/// Encodes `superblock` in format version 1.
fn version_1(superblock: &Superblock) -> [u8; BLOCK_SIZE] {
    let mut bytes = superblock.encode();
    bytes[12..16].copy_from_slice(&1u32.to_le_bytes());
    bytes[184..232].fill(0);
    reseal_superblock(&mut bytes);
    bytes
}

/// Returns the next generation of `superblock`, with another label.
fn next(superblock: &Superblock) -> Superblock {
    let label = Label::new("next").expect("a label");
    Superblock { label, ..superblock.next_generation().expect("a next generation") }
}

fn read(device: &dyn Device, at: u64) -> Superblock {
    let mut block = Block::zeroed(1);
    device.read(at, &mut block).expect("RAM");
    Superblock::decode(&block[0].0, at).expect("a superblock")
}

/// Expects the note `finding` and no error. A mount and a repair of `volume` must use the superblock
/// `counts`, and write it to both copies.
fn expect_note(volume: &ForgedVolume, finding: &Finding, counts: &Superblock) {
    let report = check_device(&volume.device, true).expect("a volume");
    assert_eq!(report.errors(), 0, "{:?}", report.findings.kept());
    assert!(report.findings.kept().contains(finding), "{:?}", report.findings.kept());
    let backup = counts.layout.backup;
    for preen in [true, false] {
        let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
        assert!(!sfs_fsck::is_unmounted(&*device).expect("a volume"), "-p must check the volume");
        let repaired = repair_with(&device, preen, false);
        assert!(repaired.after.is_some(), "the volume was repaired");
        assert_eq!((read(&*device, 4), read(&*device, backup)), (counts.clone(), counts.clone()));
    }
    let device = Arc::new(volume.device.snapshot());
    let mounted =
        sfs_core::Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
    assert_eq!(mounted.label(), counts.label);
    assert_eq!((read(&*device, 4), read(&*device, backup)), (counts.clone(), counts.clone()));
}

#[test]
fn a_damaged_copy_is_a_note_and_the_other_copy_is_used() {
    let superblock = populated().superblock;
    for (copy, at) in
        [(SuperblockCopy::First, 4), (SuperblockCopy::Backup, superblock.layout.backup)]
    {
        let volume = populated().build();
        volume.flip(at, 100);
        let corruption = Corruption::in_block(Structure::Superblock, at, CorruptionKind::Checksum);
        expect_note(&volume, &Finding::SuperblockDamaged { copy, corruption }, &superblock);
    }
}

#[test]
fn the_copy_with_the_higher_generation_is_used_and_the_other_is_a_note() {
    let superblock = populated().superblock;
    for (older, newer_at) in
        [(SuperblockCopy::First, superblock.layout.backup), (SuperblockCopy::Backup, 4)]
    {
        let volume = populated().build();
        volume.write(newer_at, &next(&superblock).encode());
        expect_note(&volume, &Finding::SuperblockOlder { copy: older }, &next(&superblock));
    }
}

#[test]
fn different_copies_of_one_generation_or_of_two_volumes_are_an_error() {
    let superblock = populated().superblock;
    let other_key = Superblock { hash_key: [1, 3], ..superblock.clone() };
    let other_volume = Superblock { uuid: [9; 16], ..next(&superblock) };
    for other in [other_key, other_volume] {
        let volume = populated().build();
        volume.write(superblock.layout.backup, &other.encode());
        assert_eq!(errors(&volume), [Finding::SuperblocksDiffer]);
        let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
        let repaired = repair_with(&device, false, false);
        assert_eq!(repaired.errors_left(), 0);
        assert_eq!(read(&*device, superblock.layout.backup), superblock, "the first copy is kept");
        let mounted =
            sfs_core::Volume::open(device, VolumeOptions::default(), NOW).expect("a mount");
        assert_eq!(mounted.superblock().uuid, superblock.uuid);
    }
}

/// Returns the volume on a larger device, where the backup is not in the last block.
fn enlarged(volume: &ForgedVolume) -> RamDevice {
    let block_count = volume.device.geometry().block_count;
    let mut blocks = Block::zeroed(block_count as usize);
    volume.device.read(0, &mut blocks).expect("RAM");
    let larger = RamDevice::new(block_count + 1000);
    larger.write(0, &[&blocks], Stream::default()).expect("RAM");
    larger
}

#[test]
fn the_backup_is_found_on_a_larger_device_by_the_locator() {
    let volume = populated().build();
    volume.flip(SUPERBLOCK_ADDRESS, 100);
    let lost = enlarged(&volume);
    assert!(matches!(check_device(&lost, false), Err(FsckError::SuperblocksLost)));
    let none = sfs_core::Volume::open(Arc::new(lost), VolumeOptions::default(), NOW).map(drop);
    assert!(matches!(none, Err(sfs_core::Error::Corrupt(_))), "{none:?}");

    // The locator may be of an older generation.
    volume.write(LOCATOR_ADDRESS, &volume.superblock.encode());
    volume.write(volume.superblock.layout.backup, &next(&volume.superblock).encode());
    let found = enlarged(&volume);
    let report = check_device(&found, true).expect("a volume");
    assert_eq!(report.errors(), 0, "{:?}", report.findings.kept());
    let mounted =
        sfs_core::Volume::open(Arc::new(found), VolumeOptions::default(), NOW).expect("a mount");
    assert_eq!(mounted.label().as_str(), "next");

    // The locator of another volume is ignored.
    let other = Superblock { uuid: [9; 16], ..volume.superblock.clone() };
    volume.write(LOCATOR_ADDRESS, &other.encode());
    assert!(matches!(check_device(&enlarged(&volume), false), Err(FsckError::SuperblocksLost)));
}

/// Returns the addresses of writes, and `None` for each flush.
fn order(events: &[Event]) -> Vec<Option<u64>> {
    let address = |event: &Event| match event {
        Event::Write { range, .. } => Some(Some(range.address)),
        Event::Flush => Some(None),
        Event::Discard { .. } => None,
    };
    events.iter().filter_map(address).collect()
}

/// A program for version 1 must refuse the volume before the repair writes anything else to it. One
/// copy of the superblock is whole at every moment.
#[test]
fn a_repair_of_version_1_first_brings_the_superblock_to_version_2() {
    let superblock = populated().superblock;
    let backup = superblock.layout.backup;
    for (damaged, copies) in
        [(None, [4, backup]), (Some(4), [4, backup]), (Some(backup), [backup, 4])]
    {
        let mut forge = populated();
        forge.change_inode(HELLO, |inode| inode.links = 9);
        let volume = forge.build();
        volume.write(4, &version_1(&superblock));
        volume.write(backup, &version_1(&superblock));
        if let Some(at) = damaged {
            volume.flip(at, 100);
        }
        let device = Arc::new(RecordingDevice::new(volume.device.snapshot(), Keep::Requests));
        let shared: Arc<dyn Device> = device.clone();
        let repaired = repair_with(&shared, false, false);
        assert_eq!((repaired.before.errors(), repaired.errors_left()), (1, 0));
        let events = order(&device.take_events());
        let [first, second] = copies.map(Some);
        assert_eq!(events[..6], [Some(5), None, first, None, second, None], "{damaged:?}");
        for at in [4, backup] {
            let written = read(&*device, at);
            assert_eq!((written.version, written.generation), (2, 1));
            assert_eq!(written.tick_shift, superblock.tick_shift);
        }
        let mounted =
            sfs_core::Volume::open(device, VolumeOptions::default(), NOW).expect("a mount");
        assert_eq!(mounted.upgraded_from(), None);
        assert_eq!(mounted.audit().expect("an audit"), []);
    }
}

#[test]
fn a_sound_volume_of_version_1_is_not_upgraded() {
    let volume = populated().build();
    for at in [4, volume.superblock.layout.backup] {
        volume.write(at, &version_1(&volume.superblock));
    }
    assert_eq!(errors(&volume), []);
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    assert!(repair_with(&device, false, true).after.is_none());
    assert_eq!(read(&*device, 4).version, 1);
}

fn try_repair(device: &Arc<dyn Device>) -> Result<RepairOutcome, FsckError> {
    let options = RepairOptions { data: false, preen: false, now: NOW };
    repair(device, &options, &mut |_| ControlFlow::Continue(()))
}

fn mount(volume: &ForgedVolume, read_only: bool) -> Option<Incompatibility> {
    let options = VolumeOptions { read_only, ..VolumeOptions::default() };
    match sfs_core::Volume::open(Arc::new(volume.device.snapshot()), options, NOW).map(drop) {
        Ok(()) => None,
        Err(sfs_core::Error::Incompatible(reason)) => Some(reason),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the results of a check, a repair, a mount and a read-only mount of a volume with a wrong link
/// count and these additions.
fn refusals(
    features: Features,
    extensions: &[(u16, ExtensionClass)],
) -> [Option<Incompatibility>; 4] {
    let mut forge = populated();
    forge.superblock.features = features;
    forge.change_inode(HELLO, |inode| inode.links = 9);
    let records = extensions.to_vec();
    forge.on_record = Box::new(move |record| record.extensions = area(&records));
    let volume = forge.build();
    let reason = |error| match error {
        FsckError::Incompatible(reason) => reason,
        other => panic!("{other}"),
    };
    let checked = check_device(&volume.device, false).map(|report| assert_eq!(report.errors(), 1));
    let device = Arc::new(RecordingDevice::new(volume.device.snapshot(), Keep::Requests));
    let shared: Arc<dyn Device> = device.clone();
    let repaired = try_repair(&shared).map(|repaired| assert_eq!(repaired.errors_left(), 0));
    assert_eq!(
        device.take_events().is_empty(),
        repaired.is_err(),
        "a refused repair writes nothing"
    );
    let (checked, repaired) = (checked.err().map(reason), repaired.err().map(reason));
    [checked, repaired, mount(&volume, false), mount(&volume, true)]
}

fn area(records: &[(u16, ExtensionClass)]) -> Extensions {
    let mut area = Extensions::default();
    for (tag, class) in records {
        area.set(Extension { tag: *tag, class: *class, bytes: vec![7; 5] });
    }
    area
}

#[test]
fn additions_of_a_newer_program_are_refused_by_class() {
    use ExtensionClass::{Drop, Keep, ReadOnly, Refuse};
    let none = Features::default();
    let unknown = Some(Incompatibility::Features(1 << 40));
    let features = Features { incompatible: 1 << 40, ..none };
    assert_eq!(refusals(features, &[]), [unknown; 4]);
    let unknown = Some(Incompatibility::ReadOnlyFeatures(1 << 41));
    let features = Features { read_only_compatible: 1 << 41, ..none };
    assert_eq!(refusals(features, &[]), [None, unknown, unknown, None]);
    let features = Features { compatible: u64::MAX, ..none };
    assert_eq!(refusals(features, &[]), [None; 4]);
    let unknown = Some(Incompatibility::Extension(901));
    assert_eq!(refusals(none, &[(900, ReadOnly), (901, Refuse)]), [unknown; 4]);
    let unknown = Some(Incompatibility::ReadOnlyExtension(900));
    assert_eq!(refusals(none, &[(900, ReadOnly)]), [None, unknown, unknown, None]);
    assert_eq!(refusals(none, &[(900, Keep), (901, Drop)]), [None; 4]);
}

/// Returns the newest checkpoint on `device`.
fn newest(device: &dyn Device, superblock: &Superblock) -> CheckpointRecord {
    let slot = |at: u64| {
        let mut blocks = Block::zeroed(16);
        device.read(at, &mut blocks).expect("RAM");
        CheckpointRecord::decode(Block::bytes_of(&blocks), superblock.volume(), at).ok()
    };
    let records = superblock.layout.slots.into_iter().filter_map(slot);
    records.max_by_key(|record| record.number).expect("a checkpoint")
}

#[test]
fn a_repair_and_a_mount_keep_only_extensions_of_class_keep() {
    use ExtensionClass::{Drop, Keep};
    let mut forge = populated();
    forge.change_inode(HELLO, |inode| inode.links = 9);
    forge.on_record =
        Box::new(|record| record.extensions = area(&[(900, Keep), (901, Drop), (902, Keep)]));
    let volume = forge.build();
    let kept = area(&[(900, Keep), (902, Keep)]);

    let mounted: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    let open = sfs_core::Volume::open(mounted.clone(), VolumeOptions::default(), NOW);
    open.and_then(|volume| volume.close()).expect("a mount and an unmount");
    let without_wear = |record: CheckpointRecord| {
        let mut extensions = record.extensions;
        assert!(matches!(WearLedger::of(&extensions), Ok(Some(_))), "every writer counts wear");
        extensions.remove(WearLedger::TAG);
        extensions
    };
    assert_eq!(without_wear(newest(&*mounted, &volume.superblock)), kept);

    let repaired: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    assert_eq!(repair_with(&repaired, false, false).errors_left(), 0);
    let record = newest(&*repaired, &volume.superblock);
    assert!(record.number > volume.record.number, "the repair has written a checkpoint");
    // A repair counts the files, which the forged checkpoint did not state.
    let mut kept = kept;
    FileCount(6).put_into(&mut kept);
    assert_eq!(without_wear(record), kept);
}

/// A device that acknowledges writes, and drops them.
struct Dropping(RamDevice);

impl Device for Dropping {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn refresh_block_count(&self) -> Result<u64, DeviceError> {
        self.0.refresh_block_count()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.0.read(address, buffer)
    }

    fn write(&self, _: u64, _: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The repair first takes the cache away, which writes the superblocks: the damage of a copy must still be reported.
#[test]
fn a_damaged_superblock_of_a_volume_with_a_cache_is_repaired_and_reported() {
    let mut forge = populated();
    forge.superblock.set_cache(Some([7; 16]));
    forge.superblock.epoch = [9; 16];
    let volume = forge.build();
    volume.flip(4, 100);
    let at = Corruption::in_block(Structure::Superblock, 4, CorruptionKind::Checksum);
    let finding = Finding::SuperblockDamaged { copy: SuperblockCopy::First, corruption: at };
    let device: Arc<dyn Device> = Arc::new(volume.device.snapshot());
    let repaired = repair_with(&device, false, false);
    assert!(repaired.before.findings.kept().contains(&finding), "{repaired:?}");
    assert_eq!(repaired.after.expect("the volume was repaired").errors(), 0);
    assert_eq!(read(&*device, 4).epoch, [0; 16], "no cache has the content");
    let again = repair_with(&device, false, false);
    assert!(again.after.is_none(), "a sound volume is left alone");

    let dropping: Arc<dyn Device> = Arc::new(Dropping(volume.device.snapshot()));
    let options = RepairOptions { data: false, preen: false, now: NOW };
    let outcome = repair(&dropping, &options, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(outcome, Err(FsckError::Write(_))), "{outcome:?}");
}
