//! `sfs-ctl freeze` and `thaw`: a copy of the device that is made meanwhile is a clean volume.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{CACHES, TestVolume, can_mount, content, stderr, transport_used};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

fn sfs_ctl(arguments: &[&str], dir: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.args(arguments).arg(dir).output().expect("sfs-ctl runs")
}

fn succeed(arguments: &[&str], dir: &Path) {
    let output = sfs_ctl(arguments, dir);
    assert!(output.status.success(), "sfs-ctl {arguments:?}: {}", stderr(&output));
}

/// Asserts that `copy` is a clean volume that needs no check, and returns it mounted... as a volume of its own.
fn check_copy(copy: &Path, expected: &[(&str, &[u8])]) {
    let device = sfs_device::FileDevice::open(copy, sfs_device::Access::ReadOnly);
    assert!(sfs_fsck::is_unmounted(&device.expect("the copy opens")).expect("a volume"));
    let volume = TestVolume::existing(copy.to_owned());
    volume.check();
    let mount = volume.mount("");
    for (name, bytes) in expected {
        assert!(fs::read(mount.dir.join(name)).expect(name) == *bytes, "{name}");
    }
    assert!(!mount.dir.join("late").exists());
    mount.unmount();
}

#[test]
fn mounted_volumes_are_clean_in_a_copy_while_they_are_frozen() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let old = content("file", 1, 3_000_000);
        fs::write(mount.dir.join("file"), &old).expect("writing");
        let unnamed = mount.dir.join("unnamed");
        let open = File::create(&unnamed).expect("creating");
        fs::remove_file(&unnamed).expect("removing");
        succeed(&["freeze", "--timeout", "60"], &mount.dir);
        let again = sfs_ctl(&["freeze"], &mount.dir);
        assert!(!again.status.success() && stderr(&again).contains("frozen already"));

        let is_written = AtomicBool::new(false);
        let copy = volume.scratch.path().join("copy");
        thread::scope(|scope| {
            scope.spawn(|| {
                fs::write(mount.dir.join("late"), b"late").expect("writing");
                is_written.store(true, Ordering::SeqCst);
            });
            let before = fs::read(&volume.device).expect("the image");
            assert!(fs::read(mount.dir.join("file")).expect("reading goes on") == old);
            thread::sleep(Duration::from_millis(700));
            assert!(!is_written.load(Ordering::SeqCst), "the writer waits");
            assert!(fs::read(&volume.device).expect("the image") == before, "nothing is written");
            fs::write(&copy, before).expect("a copy");
            succeed(&["thaw"], &mount.dir);
        });
        assert!(is_written.load(Ordering::SeqCst));
        let late = sfs_ctl(&["thaw"], &mount.dir);
        assert!(!late.status.success() && stderr(&late).contains("is not frozen"));
        check_copy(&copy, &[("file", &old)]);
        drop(open);
        assert_eq!(fs::read(mount.dir.join("late")).expect("reading"), b"late");
        mount.unmount();
        volume.check();
    }
}

#[test]
fn mounted_volumes_thaw_by_themselves() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let begun = Instant::now();
    succeed(&["freeze", "--timeout", "1"], &mount.dir);
    fs::write(mount.dir.join("late"), b"late").expect("writing goes on after the time-out");
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    let output = sfs_ctl(&["thaw"], &mount.dir);
    assert_eq!(output.status.code(), Some(32), "{}", stderr(&output));
    for timeout in ["0", "601"] {
        let output = sfs_ctl(&["freeze", "--timeout", timeout], &mount.dir);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    }
    mount.unmount();
    volume.check();
}

/// Neither an unmount nor SIGTERM waits for the time-out.
#[test]
fn mounted_volumes_that_are_frozen_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    for by_signal in [false, true] {
        let volume = TestVolume::new("64M");
        let mount = volume.mount("");
        fs::write(mount.dir.join("file"), b"content").expect("writing");
        succeed(&["freeze", "--timeout", "300"], &mount.dir);
        let begun = Instant::now();
        if by_signal {
            mount.signal(Signal::TERM);
            mount.wait_for_end();
        } else {
            mount.unmount();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        volume.check();
        let mount = volume.mount("");
        assert_eq!(fs::read(mount.dir.join("file")).expect("reading"), b"content");
        mount.unmount();
    }
}

/// Regression: the changes that waited for a thaw kept the daemon of an aborted connection alive until the time-out, with their
/// threads where the memory for parked requests was used.
#[test]
fn mounted_volumes_that_are_frozen_end_with_their_connection() {
    // A thread of fuser that waits does not learn of the end of its connection: the time-out of the freeze ends it.
    if !can_mount() || transport_used() == "fuser" {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("nowriteback,threads=1,write_buffer=1M");
    let files: Vec<File> = (0..12)
        .map(|writer| File::create(mount.dir.join(format!("file-{writer}"))).expect("creating"))
        .collect();
    succeed(&["freeze", "--timeout", "300"], &mount.dir);
    let begun = Instant::now();
    thread::scope(|scope| {
        for (writer, file) in (0..).zip(&files) {
            // The connection is aborted before the reply.
            let piece = content("piece", writer, 1 << 20);
            scope.spawn(move || file.write_all_at(&piece, 0).expect_err("no reply"));
        }
        thread::sleep(Duration::from_millis(700));
        let mut command = Command::new("umount");
        command.args(["--force", "--internal-only"]).arg(&mount.dir);
        // The mount is in use; the connection is aborted in any case.
        let _ = command.output().expect("umount runs");
    });
    mount.wait_for_death();
    drop(files);
    mount.detach();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(volume.check().unmounted, "the last checkpoint is complete");
}

/// A time of access that a reader moves while the mount freezes, and a file whose last reference goes, wait for the thaw.
#[test]
fn mounted_volumes_stay_as_they_are_while_they_are_frozen_and_synced() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("strictatime,threads=2");
    for number in 0..20 {
        fs::write(mount.dir.join(format!("file-{number}")), b"content").expect("writing");
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 0..2 {
            let (mount, is_over) = (&mount, &is_over);
            scope.spawn(move || {
                let mut number = reader;
                while !is_over.load(Ordering::SeqCst) {
                    let path = mount.dir.join(format!("file-{}", number % 20));
                    let file = File::open(path).expect("opening");
                    file.read_at(&mut [0; 7], 0).expect("reading");
                    file.sync_all().expect("syncing");
                    number += 1;
                }
            });
        }
        for _ in 0..5 {
            succeed(&["freeze", "--timeout", "60"], &mount.dir);
            let before = fs::read(&volume.device).expect("the image");
            thread::sleep(Duration::from_millis(200));
            assert!(fs::read(&volume.device).expect("the image") == before, "nothing is written");
            succeed(&["thaw"], &mount.dir);
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    mount.unmount();
    volume.check();
}

/// A frozen mount that is detached while programs write ends when they have written, and does not wait for the time-out.
#[test]
fn mounted_volumes_that_are_frozen_thaw_when_they_are_detached() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let file = File::create(mount.dir.join("file")).expect("creating");
        succeed(&["freeze", "--timeout", "300"], &mount.dir);
        let begun = Instant::now();
        let late = content("late", 1, 1 << 20);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                file.write_all_at(&late, 0).expect("writing");
                file.sync_all().expect("syncing");
            });
            thread::sleep(Duration::from_millis(300));
            assert!(!writer.is_finished(), "the writer waits");
            unmount(&mount.dir, UnmountFlags::DETACH).expect("it is mounted");
        });
        drop(file);
        mount.wait_for_end();
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        volume.check();
        let mount = volume.mount("");
        assert!(fs::read(mount.dir.join("file")).expect("reading") == late);
        mount.unmount();
    }
}
