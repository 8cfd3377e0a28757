//! Volumes filled in one go: the data that fits, the space that `statfs` reports, and the space that is free
//! again after deleting.

use std::sync::Arc;

use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::{VolumeOptions, WriteMode, XattrMode};
use sfs_core::{Error, Volume};
use sfs_device::RamDevice;

use crate::fixture::{FILE, SEGMENT_BLOCKS, after, caller, data_layout, open, ram, ram_as, settle};

/// Returns a volume of `mib` MiB in memory, with segments as `sfs-mkfs` makes them on small devices.
fn device(mib: u64) -> Arc<RamDevice> {
    Arc::new(ram(mib << 20, if mib < 32 { SEGMENT_BLOCKS } else { 4 * SEGMENT_BLOCKS }))
}

/// Length of a large file in bytes.
const LARGE: usize = 1 << 20;

/// Makes file number `no` with `len` bytes of content. Removes the file if its content does not
/// fit.
fn add(volume: &Volume, no: usize, len: usize) -> Result<(), Error> {
    let name = format!("file-{no}");
    let ino = volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller())?.ino;
    let written = if len == 0 {
        Ok(())
    } else {
        volume.write(ino, 0, &vec![no as u8; len], WriteMode::default(), &caller())
    };
    if written.is_err() {
        volume.unlink(ROOT_INO, name.as_bytes(), &caller()).expect("deleting is never refused");
    }
    volume.forget(ino, 1);
    written
}

/// Makes files from number `from` on until a file does not fit, and returns the number of that
/// file.
fn fill(volume: &Volume, from: usize, len: usize) -> usize {
    for no in from.. {
        match add(volume, no, len) {
            Ok(()) => {}
            Err(Error::NoSpace) => return no,
            Err(error) => panic!("file {no}: {error}"),
        }
    }
    unreachable!("a volume is finite")
}

/// Syncs the volume and does the background work of a minute.
fn rest(volume: &Volume, secs: u64) {
    volume.sync_all().expect("admitted writes can be synced");
    settle(volume, after(1000 * secs)).expect("background work succeeds");
    settle(volume, after(1000 * (secs + 60))).expect("background work succeeds");
}

/// Returns the number of files that may fit only after a pause. Data in place and the log share a
/// volume by whole segments: a segment that the log no longer uses becomes available for data with
/// the next checkpoint.
fn files_after_a_pause(len: usize) -> usize {
    match data_layout() {
        DataLayout::Log => 0,
        _ => 2 * 4 * SEGMENT_BLOCKS as usize / len.div_ceil(4096).max(1),
    }
}

/// Fills volumes of `mib` MiB with files of each length, and asserts that at least 99 % of the
/// files that fit after a pause fit before it.
fn assert_fills_at_once(mib: u64, lens: &[usize]) {
    for &len in lens {
        let volume = open(device(mib), VolumeOptions::default());
        let at_once = fill(&volume, 0, len);
        rest(&volume, 10);
        let all = fill(&volume, at_once, len);
        let expected = (all * 99 / 100).min(all - files_after_a_pause(len).min(all));
        assert!(at_once >= expected, "{mib} MiB, {len} bytes: {at_once} of {all}");
        assert_eq!(volume.audit().expect("a sound volume"), []);
        volume.close().expect("the volume closes");
    }
}

#[test]
fn a_small_volume_fills_in_one_go() {
    assert_fills_at_once(16, &[0, 100, 1000, 4096, LARGE]);
    assert_fills_at_once(32, &[0, 100, 1000, 4096, LARGE]);
}

/// `cargo xtask test --long` runs this test.
#[test]
#[ignore = "takes minutes"]
fn a_large_volume_fills_in_one_go() {
    assert_fills_at_once(128, &[0, 100, 1000, 4096, LARGE]);
    assert_fills_at_once(4096, &[0, 100, 1000, 4096, LARGE]);
}

/// A volume full of extended attributes is remounted and emptied: the nodes that are no longer needed are free at
/// once, for data as well.
#[test]
fn space_of_deleted_metadata_is_there_at_once() {
    let device = device(32);
    let volume = open(device.clone(), VolumeOptions::default());
    let empty = volume.space().available_blocks;
    let value = vec![7; 2000];
    let mut count = 0;
    while let Ok(made) =
        volume.make_node(ROOT_INO, format!("{count}").as_bytes(), FILE, 0, &caller())
    {
        let set = volume.set_xattr(made.ino, b"user.a", &value, XattrMode::Any, &caller());
        volume.forget(made.ino, 1);
        count += 1;
        if set.is_err() {
            break;
        }
    }
    volume.close().expect("the volume closes");
    let volume = open(device, VolumeOptions::default());
    for no in 0..count {
        volume
            .unlink(ROOT_INO, format!("{no}").as_bytes(), &caller())
            .expect("deleting is never refused");
    }
    let space = volume.space();
    assert!(space.available_blocks * 10 > empty * 9, "{space:?}, {empty} when it was empty");
    let made = volume.make_node(ROOT_INO, b"new", FILE, 0, &caller()).expect("there is room");
    for no in 0..space.available_blocks * 9 / 10 {
        volume
            .write(made.ino, no * 4096, &[1; 4096], WriteMode::default(), &caller())
            .unwrap_or_else(|error| panic!("block {no} of {space:?}: {error}"));
    }
    rest(&volume, 1);
    assert_eq!(volume.audit().expect("a sound volume"), []);
    volume.close().expect("the volume closes");
}

/// A program that repeats a refused write does not cause a commit or checkpoint each time, even
/// while another program overwrites a file.
#[test]
fn a_repeated_refusal_writes_nothing() {
    let volume = open(device(16), VolumeOptions::default());
    let files = fill(&volume, 0, 4096);
    assert!(files > 100, "{files} files");
    rest(&volume, 10);
    fill(&volume, files, 4096);
    let other = volume.lookup(ROOT_INO, b"file-0").expect("the first file");
    let before = volume.counters().device_bytes_written;
    for _ in 0..1000 {
        let block = [9; 4096];
        volume.write(other.ino, 0, &block, WriteMode::default(), &caller()).expect("an overwrite");
        assert!(matches!(add(&volume, usize::MAX, 4096), Err(Error::NoSpace)));
    }
    let written = volume.counters().device_bytes_written - before;
    assert!(written < 1 << 20, "{written} bytes");
}

/// While large files fill a volume, `statfs` reports the space for further files to 1 % at each
/// step, and the number of files.
#[test]
fn statfs_foretells_what_fits() {
    let volume = open(device(128), VolumeOptions::default());
    let total = volume.space().total_blocks;
    let mut available = vec![volume.space().available_blocks];
    let mut count = 0;
    while add(&volume, count, LARGE).is_ok() {
        count += 1;
        available.push(volume.space().available_blocks);
        assert_eq!(volume.space().files, 1 + count as u64, "the root directory and the files");
    }
    let file_blocks = (LARGE / 4096) as u64;
    for (no, available) in available.into_iter().enumerate() {
        let fitted = (count - no) as u64 * file_blocks;
        let wrong =
            available.saturating_sub(fitted + file_blocks).max(fitted.saturating_sub(available));
        assert!(
            wrong * 100 <= total,
            "after {no} files {available} blocks were available, and {fitted} fitted"
        );
    }
    let refused = volume.space().available_blocks;
    rest(&volume, 10);
    let rested = volume.space().available_blocks;
    assert!(rested.abs_diff(refused) * 100 <= total, "{refused} at the refusal, {rested} later");
}

/// `statfs` reports the same space, to 2 %, before and after a commit of small files. The data
/// layout is the log: data in place shares a volume with the log by whole segments, which makes the
/// figure coarser.
#[test]
fn dirty_small_files_count_as_what_they_will_take() {
    for len in [0, 100, 500, 1000, 1024, 1025] {
        let device = Arc::new(ram_as(32 << 20, 4 * SEGMENT_BLOCKS, DataLayout::Log));
        let volume = open(device, VolumeOptions::default());
        for no in 0..2000 {
            add(&volume, no, len).expect("there is room");
        }
        let dirty = volume.space();
        rest(&volume, 10);
        let clean = volume.space();
        let wrong = dirty.available_blocks.abs_diff(clean.available_blocks);
        assert!(wrong * 50 <= dirty.total_blocks, "{len} bytes: {dirty:?} dirty, {clean:?} clean");
    }
}

/// A write that is refused changes nothing, not even the set-user-ID bit that a write clears.
#[test]
fn a_refused_write_leaves_the_privileges() {
    let volume = open(device(16), VolumeOptions::default());
    let made = volume.make_node(ROOT_INO, b"program", FILE | 0o4111, 0, &caller());
    let ino = made.expect("a file").ino;
    fill(&volume, 0, LARGE);
    let mode = WriteMode { kill_privileges: true, ..WriteMode::default() };
    let written = volume.write(ino, 0, &vec![1; 2 * LARGE], mode, &caller());
    assert!(matches!(written, Err(Error::NoSpace)), "{written:?}");
    assert_eq!(volume.attributes(ino).expect("the file").mode & 0o7777, 0o4755);
}
