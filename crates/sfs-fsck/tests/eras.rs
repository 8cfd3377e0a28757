//! Chunks that are no longer part of the log: a repair restores nothing from them that a later
//! mount has replaced.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use clap::Parser;
use sfs_core::Volume;
use sfs_core::format::{Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{AttributeChanges, Caller, RenameMode, WriteMode};
use sfs_device::{Access, BLOCK_SIZE, Block, Device, FileDevice, RamDevice, Stream};
use sfs_fsck::{DumpSubject, Finding, Loss, RepairOptions, dump, repair};
use sfs_mkfs::MkfsOptions;

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };
const BLOCKS: u64 = 8192;

fn make() -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let layout = Layout::new(BLOCKS, 128, 0).expect("a layout");
    let superblock = Superblock { hash_key: [1, 2], ..Superblock::new(layout) };
    let root = sfs_core::root_directory(0, 0, NOW);
    sfs_core::make(device.clone(), &superblock, &root).expect("a volume");
    device
}

fn open(device: &Arc<impl Device + 'static>) -> Volume {
    Volume::open(device.clone(), Default::default(), NOW).expect("a mount")
}

/// Writes a block to file `name`, which is made if there is none, and syncs.
fn write(volume: &Volume, name: &[u8], byte: u8) {
    let ino = match volume.lookup(ROOT_INO, name) {
        Ok(entry) => entry.ino,
        Err(_) => volume.make_node(ROOT_INO, name, 0o100_644, 0, &CALLER).expect("a file").ino,
    };
    let content = [byte; BLOCK_SIZE];
    volume.write(ino, 0, &content, WriteMode::default(), &CALLER).expect("a write");
    volume.sync_all().expect("a sync");
    volume.forget(ino, 1);
}

/// Returns the first block from the first segment on in which the devices differ.
fn first_difference(a: &RamDevice, b: &RamDevice) -> u64 {
    let (mut of_a, mut of_b) = (Block::zeroed(1), Block::zeroed(1));
    let differs = |at: &u64| {
        a.read(*at, &mut of_a).expect("RAM");
        b.read(*at, &mut of_b).expect("RAM");
        of_a != of_b
    };
    (32..BLOCKS).find(differs).expect("a difference")
}

fn wipe(device: &dyn Device, address: u64) {
    device.write(address, &[&[Block::ZERO]], Stream::default()).expect("RAM");
}

/// Returns a device whose log has lost all chunks of a mount: the first chunk is damaged. One of the
/// lost chunks renames a file.
fn with_broken_log() -> Arc<RamDevice> {
    let device = make();
    let volume = open(&device);
    write(&volume, b"doomed", 1);
    write(&volume, b"other", 1);
    volume.close().expect("an unmount");
    drop(volume);

    let volume = open(&device);
    let before = device.snapshot();
    write(&volume, b"other", 2);
    let damaged = first_difference(&before, &device.snapshot());
    (0..20).for_each(|byte| write(&volume, b"other", byte));
    let mode = RenameMode::Replace;
    let renamed = volume.rename(ROOT_INO, b"doomed", ROOT_INO, b"renamed", mode, &CALLER);
    renamed.expect("a new name");
    write(&volume, b"renamed", 2);
    drop(volume);
    wipe(&device, damaged);
    device
}

/// Deletes the file, and makes the log longer than the lost log was.
fn delete(device: &Arc<RamDevice>) {
    let volume = open(device);
    volume.unlink(ROOT_INO, b"doomed", &CALLER).expect("the file has its old name");
    volume.sync_all().expect("a sync");
    let other = volume.lookup(ROOT_INO, b"other").expect("a file").ino;
    for mode in 0..40 {
        let changes = AttributeChanges { mode: Some(mode), ..Default::default() };
        volume.set_attributes(other, &changes, &CALLER).expect("a change");
        volume.sync_all().expect("a sync");
    }
    volume.close().expect("an unmount");
}

/// Damages the root node of the newest checkpoint.
fn damage_root(device: &dyn Device) {
    let slots = dump(device, &DumpSubject::Checkpoints).expect("checkpoints");
    let newest = ["slot 0", "slot 1"].map(|slot| slots[slot].clone()).into_iter();
    let newest = newest.max_by_key(|slot| slot["number"].as_u64()).expect("two slots");
    wipe(device, newest["root"]["address"].as_u64().expect("an address"));
}

/// Returns the names in the root directory.
fn names(volume: &Volume) -> Vec<String> {
    let mut names = Vec::new();
    let listed = volume.read_directory(ROOT_INO, 0, false, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    });
    listed.expect("a directory");
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

#[test]
fn a_repair_brings_no_deleted_file_back_from_a_broken_log() {
    let device = with_broken_log();
    delete(&device);
    damage_root(&*device);
    let shared: Arc<dyn Device> = device.clone();
    let options = RepairOptions { data: true, preen: false, now: NOW };
    let repaired = repair(&shared, &options, &mut |_| ControlFlow::Continue(())).expect("a repair");
    let is_damaged = |finding: &Finding| matches!(finding, Finding::NodeDamaged { .. });
    assert!(repaired.before.findings.kept().iter().any(is_damaged));
    assert_eq!(repaired.errors_left(), 0);
    let is_nameless = |loss: &Loss| matches!(loss, Loss::Nameless { .. });
    assert!(!repaired.losses.iter().any(is_nameless), "{:?}", repaired.losses);

    let volume = open(&device);
    assert_eq!(names(&volume), ["other"]);
    let other = volume.lookup(ROOT_INO, b"other").expect("a file").ino;
    assert_eq!(volume.attributes(other).expect("attributes").mode & 0o777, 39);
}

/// Makes a volume with the same UUID each time, without a discard, in the image at `path`.
fn make_again(path: &Path) {
    let uuid = "12345678-9abc-4def-8123-456789abcdef";
    let options = ["sfs-mkfs", "-f", "-K", "-U", uuid, "--size", "16M"].map(Path::new);
    let options = MkfsOptions::try_parse_from(options.into_iter().chain([path]));
    sfs_mkfs::make(&options.expect("options")).expect("a volume");
}

fn open_image(path: &Path) -> Arc<FileDevice> {
    Arc::new(FileDevice::open(path, Access::ReadWrite).expect("an image"))
}

/// Fills the first segments, which `sfs-mkfs` overwrites.
fn fill_start(device: &Arc<FileDevice>) {
    let volume = open(device);
    let ino = volume.make_node(ROOT_INO, b"large", 0o100_644, 0, &CALLER).expect("a file").ino;
    volume.write(ino, 0, &[1; 5 << 20], WriteMode::default(), &CALLER).expect("a write");
    volume.close().expect("an unmount");
}

/// Regression: a repair took chunks and nodes of an earlier volume with the same UUID for those of
/// the new volume. Because the earlier volume had been mounted more often, the repair restored the
/// files of the earlier volume and dropped the new files.
#[test]
fn a_repair_takes_nothing_from_an_earlier_volume_with_the_same_uuid() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("image");
    make_again(&path);
    let device = open_image(&path);
    fill_start(&device);
    for mount in 0..5 {
        let volume = open(&device);
        (0..20).for_each(|file| write(&volume, format!("old-{mount}-{file}").as_bytes(), 1));
        volume.close().expect("an unmount");
    }
    drop(device);

    make_again(&path);
    let device = open_image(&path);
    let volume = open(&device);
    write(&volume, b"new", 2);
    volume.close().expect("an unmount");
    drop(volume);
    damage_root(&*device);
    let shared: Arc<dyn Device> = device.clone();
    let options = RepairOptions { data: true, preen: false, now: NOW };
    let repaired = repair(&shared, &options, &mut |_| ControlFlow::Continue(())).expect("a repair");
    assert_eq!(repaired.errors_left(), 0);
    let volume = open(&device);
    assert_eq!(names(&volume), ["new"]);
}
