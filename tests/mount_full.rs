//! A volume that runs full: every refusal is `ENOSPC`, no data is lost, and deleted space can be
//! used again.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use harness::{CACHES, Mount, TestVolume, can_mount, sfs_umount_unused, stderr};
use rustix::process::Signal;
use sfs_testkit::{SeededRng, mount_table::is_mounted, wait_until};

const SIZE: &str = "64M";
const MIB: usize = 1 << 20;

/// Number of rounds in which everything is overwritten in place: more writes than the
/// volume has free segments for.
const ROUNDS: u64 = 3;

fn content(index: u64, round: u64, len: usize) -> Vec<u8> {
    SeededRng::new(index << 32 | round).bytes(len)
}

fn file(dir: &Path, index: u64) -> PathBuf {
    dir.join(format!("file-{index}"))
}

/// Writes a file and syncs it.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes files of `len` bytes until there is no space; returns the number of complete files.
fn fill(dir: &Path, first: u64, len: usize) -> u64 {
    for index in first.. {
        if let Err(error) = write(&file(dir, index), &content(index, 0, len)) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "file {index}: {error}");
            return index;
        }
    }
    unreachable!("a volume is finite")
}

fn expect_content(dir: &Path, index: u64, round: u64, len: usize) {
    let bytes = fs::read(file(dir, index)).expect("the file was synced");
    assert!(bytes == content(index, round, len), "file {index}, round {round}");
}

fn free_bytes(dir: &Path) -> u64 {
    let space = rustix::fs::statvfs(dir).expect("statvfs");
    space.f_bavail * space.f_frsize
}

#[test]
fn mounted_full_volumes_return_enospc_and_lose_nothing() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new(SIZE);
        let mount = volume.mount(options);
        let dir = &mount.dir;
        let count = fill(dir, 0, MIB);
        assert!((40..64).contains(&count), "{count} MiB of {SIZE}, {options}");
        let end = fill(dir, count + 1, 8 << 10); // The file between was cut.
        for index in 0..count {
            expect_content(dir, index, 0, MIB);
        }
        for index in count + 1..end {
            expect_content(dir, index, 0, 8 << 10);
        }
        for round in 1..=ROUNDS {
            overwrite_in_place(dir, count, round, options);
        }
        give_back(dir, count, options);
        mount.unmount();
        volume.check();
        let mount = volume.mount(options);
        for index in (1..count).step_by(2) {
            expect_content(&mount.dir, index, ROUNDS, MIB);
        }
        mount.unmount();
    }
}

fn overwrite_in_place(dir: &Path, count: u64, round: u64, options: &str) {
    for index in 0..count {
        let opened = File::options().write(true).open(file(dir, index)).expect("the entry exists");
        let written = opened.write_all_at(&content(index, round, MIB), 0);
        written.and_then(|()| opened.sync_all()).unwrap_or_else(|error| {
            panic!("overwriting file {index} on a full volume, round {round}, {options}: {error}")
        });
    }
    (0..count).for_each(|index| expect_content(dir, index, round, MIB));
}

/// Deletes every other file, and writes into the freed space.
fn give_back(dir: &Path, count: u64, options: &str) {
    let before = free_bytes(dir);
    let even = (0..count).step_by(2);
    let freed = even.clone().count() as u64 * MIB as u64;
    even.clone().for_each(|index| fs::remove_file(file(dir, index)).expect("deleting"));
    wait_until("deleted space is free", || free_bytes(dir) >= before + freed * 9 / 10);
    // One file fewer fits: names and mappings need space, too.
    for index in even.take((count as usize / 2).saturating_sub(2)) {
        write(&file(dir, index), &content(index, 0, MIB))
            .unwrap_or_else(|error| panic!("file {index} after deleting, {options}: {error}"));
    }
}

#[test]
fn mounted_volumes_unmount_on_sigterm() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let bytes = content(1, 0, 5 * MIB);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mount = volume.mount("");
        fs::write(mount.dir.join("file"), &bytes).expect("writing");
        mount.signal(signal);
        mount.wait_for_end();
        assert!(volume.check().unmounted, "the last checkpoint is missing");
        let mount = volume.mount("ro");
        assert!(fs::read(mount.dir.join("file")).expect("reading") == bytes);
        mount.unmount();
    }
}

/// Exit status of `sfs-umount` after a loss that write(2) has reported to some program, as far as
/// SFS knows, and after a loss that was not reported.
const TOLD: i32 = 0;
const UNTOLD: i32 = 64;

/// Unmounts with the exit status `status`, and returns the message of `sfs-umount` about a loss.
fn said_lost(mount: &Mount, status: i32) -> Option<String> {
    let output = sfs_umount_unused(&mount.dir);
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    stderr(&output).lines().find(|line| line.contains("is lost")).map(str::to_owned)
}

/// Pauses before writes to a full volume: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// Free bytes at which a write through the kernel's cache may already not fit.
const NEARLY_FULL: u64 = 4 << 20;

/// Writes more than fits until write(2) fails; the result of close(2) is ignored. Returns the bytes
/// that write(2) accepted.
///
/// The kernel accepts data until it learns of the first loss, in addition to the data that fits on
/// the volume and in its cache. On a busy machine a writer that never pauses outruns the thread of
/// the daemon that notifies the kernel, so each write to a full volume waits longer than the one
/// before.
fn overfill(path: &Path, bytes: &[u8]) -> usize {
    let mut file = File::create(path).expect("creating");
    let [mut pause, longest] = PAUSES;
    let directory = path.parent().expect("a directory");
    let is_full = || {
        let space = rustix::fs::statvfs(directory).expect("statvfs");
        space.f_bavail * space.f_bsize < NEARLY_FULL
    };
    let write = |_: &i32| {
        if is_full() {
            thread::sleep(pause);
            pause = longest.min(2 * pause);
        }
        file.write_all(bytes).is_ok()
    };
    let written = (0..100).take_while(write).count();
    assert!((48..72).contains(&written), "write(2) accepted {written} MiB, not 48 to 71");
    written * bytes.len()
}

#[test]
fn mounted_full_volumes_report_unsynced_losses_at_unmount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("writeback=on");
    let bytes = SeededRng::new(5).bytes(MIB);
    let written = overfill(&mount.dir.join("file"), &bytes);
    let said = said_lost(&mount, TOLD).expect("something was lost");
    mount.wait_for_end();
    volume.check();
    let mount = volume.mount("");
    let found = fs::read(mount.dir.join("file")).expect("reading");
    let is_there = |(block, expected)| block == expected;
    let there = found.chunks(4096).zip(bytes.chunks(4096).cycle()).filter(|&b| is_there(b)).count();
    let lost = sfs_mkfs::Human((written - there * 4096) as u64);
    assert!(said.contains(&format!(" was full: {lost} that")), "{lost}: {said}");
    assert_eq!(said_lost(&mount, TOLD), None, "nothing was lost this time");
    mount.wait_for_end();

    // The lost data is not counted again, and data that was written later is intact.
    let mount = volume.mount("");
    let path = mount.dir.join("file");
    overfill(&path, &bytes);
    File::create(&path).expect("truncating");
    overfill(&path, &bytes);
    fs::remove_file(&path).expect("deleting");
    assert_eq!(said_lost(&mount, TOLD), None);
    mount.wait_for_end();
}

/// The kernel writes back new blocks together with overwritten ones; the overwritten ones must
/// succeed.
#[test]
fn mounted_full_volumes_accept_overwrites_but_no_new_blocks() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("writeback=on");
    let path = mount.dir.join("overwritten");
    write(&path, &[b'o'; MIB / 2]).expect("the volume is empty yet");
    let count = fill(&mount.dir, 0, MIB);
    fill(&mount.dir, count + 1, 8 << 10);
    let file = File::options().write(true).open(&path).expect("opening");
    file.write_all_at(&[b'n'; MIB], 0).expect("the kernel's cache takes the data");
    let error = file.sync_all().expect_err("half of the data does not fit");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    drop(file);
    // fsync(2) reported the loss, but the kernel does not report its result to SFS.
    said_lost(&mount, UNTOLD).expect("a report of the lost data");
    mount.wait_for_end();
    volume.check();
    let mount = volume.mount("ro");
    let found = fs::read(&path).expect("reading");
    assert!(found[..MIB / 2].iter().all(|byte| *byte == b'n'), "the old blocks are overwritten");
    mount.unmount();
}

#[test]
fn mounted_files_in_use_delay_sigterm_without_loss() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let mut opened = File::create(mount.dir.join("file")).expect("creating");
    opened.write_all(b"before, ").expect("writing");
    mount.signal(Signal::TERM);
    wait_until("the mount is gone from the tree", || !is_mounted(&mount.dir));
    opened.write_all(b"after").expect("the daemon serves open files");
    drop(opened);
    mount.wait_for_end();
    assert!(volume.check().unmounted);
    let mount = volume.mount("");
    assert_eq!(fs::read(mount.dir.join("file")).expect("reading"), b"before, after");
    mount.unmount();
}
