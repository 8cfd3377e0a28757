//! Space accounting: statfs(2) reports used space and freed space.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::on_volumes;
use sfs_testkit::{SeededRng, wait_until};

const LEN: usize = 16 << 20;

/// Tolerance for mappings and names, in bytes.
const SLACK: u64 = 1 << 20;

fn free_bytes(dir: &Path) -> u64 {
    let space = rustix::fs::statvfs(dir).expect("statvfs");
    assert!(space.f_bavail <= space.f_bfree && space.f_bfree <= space.f_blocks);
    space.f_bavail * space.f_frsize
}

#[test]
fn mounted_space_of_files_is_counted_in_statfs() {
    on_volumes(space_is_counted);
}

fn space_is_counted(dir: &Path) {
    let before = free_bytes(dir);
    let path = dir.join("large");
    let mut file = File::create(&path).expect("a file");
    file.write_all(&SeededRng::new(8).bytes(LEN)).expect("writing");
    file.sync_all().expect("syncing");
    let used = before - free_bytes(dir);
    assert!((LEN as u64..LEN as u64 + SLACK).contains(&used), "{LEN} bytes take {used}");
    file.set_len(LEN as u64 / 2).expect("truncating");
    wait_until("half of the space is free", || before - free_bytes(dir) < LEN as u64 / 2 + SLACK);
    drop(file);
    fs::remove_file(&path).expect("deleting");
    wait_until("all of the space is free", || before - free_bytes(dir).min(before) < SLACK);
    fs::write(&path, "small").expect("writing");
}

#[test]
fn mounted_unlinked_files_stay_while_open() {
    on_volumes(unlinked_files_stay_while_open);
}

fn unlinked_files_stay_while_open(dir: &Path) {
    let before = free_bytes(dir);
    let path = dir.join("unlinked");
    let bytes = SeededRng::new(9).bytes(LEN);
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    file.write_all_at(&bytes, 0).expect("writing");
    fs::remove_file(&path).expect("deleting");
    fs::write(&path, "another with its name").expect("writing");
    file.write_all_at(b"changed", 5).expect("the file can still be written");
    file.sync_all().expect("a sync");
    let mut seen = vec![0; LEN];
    file.read_exact_at(&mut seen, 0).expect("reading");
    assert!(&seen[5..12] == b"changed" && seen[..5] == bytes[..5] && seen[12..] == bytes[12..]);
    assert!(before - free_bytes(dir) >= LEN as u64, "the space of an open file is not free");
    drop(file);
    wait_until("the space of the file is free", || before - free_bytes(dir).min(before) < SLACK);
}

#[test]
fn mounted_blocks_are_counted_before_they_are_on_the_device() {
    on_volumes(blocks_are_counted);
}

/// The kernel caches the attributes that it receives after close(2), whenever the blocks are
/// written.
fn blocks_are_counted(dir: &Path) {
    let path = dir.join("file");
    let sectors = || fs::metadata(&path).expect("the entry exists").blocks();
    fs::write(&path, vec![1; 100 * 4096]).expect("writing");
    assert_eq!(sectors(), 800);
    let file = File::options().write(true).open(&path).expect("the entry exists");
    file.write_all_at(&[2; 10 * 4096], 95 * 4096).expect("writing over the end");
    drop(file);
    assert_eq!(sectors(), 840, "five blocks are new");
    let file = File::options().write(true).open(&path).expect("the entry exists");
    file.sync_all().expect("syncing");
    file.set_len(200 * 4096).expect("extending");
    assert_eq!(sectors(), 840, "a hole has no blocks");
}
