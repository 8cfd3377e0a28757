//! Recorded errors of earlier mounts: `-a` checks a volume that has recorded errors, and a check
//! without errors removes the record.

use std::fs::{File, read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use sfs_core::format::{ErrorCounts, ErrorKind, Extension, ExtensionClass, ROOT_INO};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_core::{Error, Volume};
use sfs_device::{
    Block, Device, FaultyDevice, Keep, Operation, RamDevice, RecordingDevice, Stream, image_after,
};
use sfs_fsck::{DumpSubject, dump, is_unmounted};

use super::fixture::repair_with;
use super::fixture::{NOW, check_device};
use super::fresh::fresh;

const BLOCKS: u64 = 16 << 8;
const CONTENT: [u8; 4096] = [0xab; 4096];
const REGULAR: u32 = 0o100_644;

fn open(device: &Arc<impl Device + 'static>) -> Volume {
    Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount")
}

fn create(volume: &Volume, name: &str) -> u64 {
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    volume.make_node(ROOT_INO, name.as_bytes(), REGULAR, 0, &caller).expect("a file").ino
}

/// Returns a volume with a file of one block.
fn with_file() -> Arc<RamDevice> {
    let device = fresh(BLOCKS * 4096);
    let volume = open(&device);
    let file = create(&volume, "file");
    let caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
    volume.write(file, 0, &CONTENT, WriteMode::default(), &caller).expect("a write");
    volume.close().expect("an unmount");
    device
}

/// Returns a volume whose file has a damaged block, after a mount that failed to read the file.
fn with_rotten_data() -> Arc<RamDevice> {
    let device = with_file();
    let is_its = |at: &u64| {
        let mut block = Block::zeroed(1);
        device.read(*at, &mut block).expect("RAM");
        block[0].0 == CONTENT
    };
    let at = (0..BLOCKS).find(is_its).expect("the file's block");
    device.write(at, &[&[Block([1; 4096])]], Stream::default()).expect("RAM");
    let volume = open(&device);
    let file = volume.lookup(ROOT_INO, b"file").expect("the file").ino;
    assert!(matches!(volume.read(file, 0, 4096), Err(Error::Corrupt(_))));
    volume.close().expect("an unmount");
    device
}

/// A mount of such a volume fails and cannot record the error, so `sfs-fsck -a` must read the nodes
/// from the root to the root directory. Otherwise `sfs-fsck -a` would call the volume clean.
#[test]
fn a_volume_with_a_destroyed_root_is_checked_though_it_was_unmounted() {
    let device = with_file();
    assert!(is_unmounted(&*device).expect("a volume"));
    let root = newest(&*device)["root"]["address"].as_u64().expect("an address");
    device.write(root, &[&[Block([0xee; 4096])]], Stream::default()).expect("RAM");
    let mounted = Volume::open(device.clone(), VolumeOptions::default(), NOW).map(drop);
    assert!(matches!(mounted, Err(Error::Corrupt(_))), "{mounted:?}");
    assert!(!is_unmounted(&*device).expect("a volume"));
}

/// Image file of a device, for runs of `sfs-fsck`.
struct ImageFile(tempfile::TempDir);

impl ImageFile {
    fn of(device: &dyn Device) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut blocks = Block::zeroed(device.geometry().block_count as usize);
        device.read(0, &mut blocks).expect("RAM");
        std::fs::write(directory.path().join("image"), Block::bytes_of(&blocks)).expect("an image");
        Self(directory)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("image")
    }

    fn fsck(&self, arguments: &[&str]) -> (i32, String) {
        run(arguments, &self.path())
    }

    fn expect(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        let (found, text) = self.fsck(arguments);
        assert_eq!(found, code, "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: '{part}' is not in: {text}");
        }
    }
}

fn run(arguments: &[&str], path: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-fsck"));
    let output = command.args(arguments).arg(path).output().expect("sfs-fsck runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("an exit code"), String::from_utf8(text).expect("UTF-8"))
}

/// Returns the newest checkpoint.
fn newest(device: &dyn Device) -> Value {
    let slots = dump(device, &DumpSubject::Checkpoints).expect("checkpoints");
    let is_first = slots["slot 0"]["number"].as_u64() > slots["slot 1"]["number"].as_u64();
    slots[if is_first { "slot 0" } else { "slot 1" }].clone()
}

/// `sfs-fsck -a` once printed "clean: the volume was unmounted" after a mount had found a wrong
/// checksum.
#[test]
fn a_volume_with_recorded_errors_is_checked_though_it_was_unmounted() {
    let device = with_rotten_data();
    assert!(!is_unmounted(&*device).expect("a volume"));
    let image = ImageFile::of(&*device);
    let root = newest(&*device)["root"]["address"].as_u64().expect("an address");
    File::options()
        .write(true)
        .open(image.path())
        .and_then(|file| file.write_all_at(&[0; 4096], root * 4096))
        .expect("the image");
    image.expect(&["-a"], 4, &["checksum", "earlier error: wrong checksum of data: block"]);

    device.write(root, &[&[Block::ZERO]], Stream::default()).expect("RAM");
    let mounted = Volume::open(device, VolumeOptions::default(), NOW);
    assert!(matches!(mounted.err(), Some(Error::Corrupt(_))), "the next mount fails");
}

#[test]
fn recorded_data_errors_are_removed_by_a_check_of_data() {
    let device = with_rotten_data();
    let image = ImageFile::of(&*device);
    let before = read(image.path()).expect("the image");
    let met = "earlier error: wrong checksum of data: block";
    image.expect(&["-n"], 0, &[met, "clean, 1 files"]);
    let (_, text) = image.fsck(&["-n", "--json"]);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["remembered"]["errors"][0]["kind"], "data");
    assert_eq!(json["remembered"]["errors"][0]["count"], 1);
    assert_eq!(json["remembered"]["failure"], Value::Null);
    assert!(json.get("remembered_left").is_none(), "-n removes no recorded errors");
    for arguments in [&["-a"][..], &["-y"], &["-a"]] {
        image.expect(
            arguments,
            0,
            &[met, "recorded errors of data stay, because data was not read"],
        );
    }
    assert!(before == read(image.path()).expect("the image"), "nothing was written");
    image.expect(&["-a", "--data"], 4, &[met, "run sfs-fsck -y"]);
    image.expect(&["-y", "--data"], 1, &[met, "lost: ", "the recorded errors are removed"]);
    image.expect(&["-a"], 0, &["clean: the volume was unmounted"]);
    image.expect(&["-n", "--data"], 0, &["clean, 1 files"]);
}

/// Returns a volume whose superblock records a failed write.
fn with_failure() -> RamDevice {
    let device = Arc::new(FaultyDevice::new(with_file().snapshot()));
    let volume = open(&device);
    create(&volume, "synced");
    volume.sync_all().expect("a sync");
    create(&volume, "lost");
    device.fail_nth(Operation::Write, 1);
    volume.sync_all().expect_err("the device fails");
    volume.close().expect_err("the last checkpoint is not written");
    device.inner().snapshot()
}

#[test]
fn a_recorded_failure_is_removed_by_a_check_without_errors() {
    let device = with_failure();
    let failure = |device: &dyn Device| {
        let both = dump(device, &DumpSubject::Superblock).expect("superblocks");
        assert_eq!(both["superblock"], both["backup"]);
        both["superblock"]["failure"].clone()
    };
    assert_eq!(failure(&device)["kind"], "write");
    let image = ImageFile::of(&device);
    image.expect(&["-n"], 0, &["ended writing: write that the device failed: block"]);
    image.expect(&["-a"], 0, &["ended writing: ", "the recorded errors are removed"]);
    let (_, text) = image.fsck(&["-n"]);
    assert!(!text.contains("ended writing"), "{text}");

    let shared: Arc<dyn Device> = Arc::new(device.snapshot());
    let repaired = repair_with(&shared, false, false);
    assert_eq!(repaired.errors_left(), 0);
    assert!(repaired.remembered.expect("errors to remove").is_empty());
    assert_eq!(failure(&*shared), Value::Null);
    let volume = Volume::open(shared, VolumeOptions::default(), NOW).expect("a mount");
    assert!(volume.remembered().is_empty());
    volume.lookup(ROOT_INO, b"synced").expect("the synced file");
}

/// The power may fail right after fsync(2) returns. The test takes both paths of fsync.
#[test]
fn a_failure_is_in_the_superblock_before_fsync_returns() {
    for through_handle in [false, true] {
        let device = Arc::new(FaultyDevice::new(with_file().snapshot()));
        let volume = open(&device);
        let file = volume.lookup(ROOT_INO, b"file").expect("the file").ino;
        create(&volume, "lost");
        device.fail_nth(Operation::Write, 1);
        let synced = match through_handle {
            false => volume.sync_file(file),
            true => volume.sync_file_after(file, &mut 0),
        };
        synced.expect_err("the device fails");
        let there =
            dump(&device.inner().snapshot(), &DumpSubject::Superblock).expect("superblocks");
        let kind = &there["superblock"]["failure"]["kind"];
        assert_eq!(kind, "write", "through a handle: {through_handle}");
    }
}

/// The power fails after each write of the removal.
#[test]
fn an_interrupted_removal_of_errors_leaves_a_sound_volume() {
    for base in [with_failure(), with_damaged_slot()] {
        let recording = Arc::new(RecordingDevice::new(base.snapshot(), Keep::Contents));
        let shared: Arc<dyn Device> = recording.clone();
        let repaired = repair_with(&shared, true, false);
        assert!(repaired.remembered.expect("errors to remove").is_empty());
        let events = recording.events();
        assert!(events.len() >= 2, "{} events", events.len());
        for len in 0..=events.len() {
            let image = Arc::new(image_after(&base, &events[..len]));
            let report = check_device(&*image, true).expect("a volume");
            assert_eq!(report.errors(), 0, "{len}: {:?}", report.findings.kept());
            assert!(len > 0 || !report.remembered.is_empty(), "nothing is forgotten yet");
            assert!(len < events.len() || report.remembered.is_empty(), "every error is forgotten");
            let volume = open(&image);
            let file = volume.lookup(ROOT_INO, b"file").expect("the file").ino;
            assert_eq!(
                volume.read(file, 0, 4096).expect("the content of the file").as_bytes(),
                CONTENT
            );
        }
    }
}

/// Returns a volume that records a damaged checkpoint slot.
fn with_damaged_slot() -> RamDevice {
    let device = with_file();
    let slots = dump(&*device, &DumpSubject::Checkpoints).expect("checkpoints");
    let oldest =
        usize::from(slots["slot 0"]["number"].as_u64() > slots["slot 1"]["number"].as_u64());
    let superblock = dump(&*device, &DumpSubject::Superblock).expect("superblocks");
    let slot = superblock["superblock"]["slots"][oldest].as_u64().expect("an address");
    device.write(slot, &[&[Block([1; 4096])]], Stream::default()).expect("RAM");
    let volume = open(&device);
    assert_eq!(volume.remembered().errors.count(ErrorKind::Volume), 1);
    volume.close().expect("an unmount");
    device.snapshot()
}

/// A malformed record of errors is no reason to refuse the checkpoint.
#[test]
fn a_malformed_record_of_errors_is_counted_and_removed() {
    let mut forge = super::fixture::populated();
    forge.on_record = Box::new(|record| {
        let class = ExtensionClass::Keep;
        record.extensions.set(Extension { tag: ErrorCounts::TAG, class, bytes: vec![1; 7] });
    });
    let device = Arc::new(forge.build().device.snapshot());
    let image = ImageFile::of(&*device);
    image.expect(&["-n"], 0, &["the record of earlier errors is damaged", "clean"]);
    image.expect(
        &["-a"],
        0,
        &["the record of earlier errors is damaged", "the recorded errors are removed"],
    );
    image.expect(&["-a"], 0, &["clean: the volume was unmounted"]);
    for _ in 0..2 {
        let volume = open(&device);
        assert_eq!(volume.remembered().errors.count(ErrorKind::Volume), 1);
        volume.close().expect("an unmount");
    }
}
