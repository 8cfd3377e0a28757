//! Times of access: which reading moves them, and when they are written.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File, FileTimes};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use harness::{CACHES, TestVolume, can_mount, sfs_ctl_stat, sfs_mount, stderr};
use sfs_testkit::wait_until;

fn atime(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|file| file.accessed()).expect("the file exists")
}

/// Sets the time of access to `atime`, after the times of change if that is in the future.
fn set_atime(path: &Path, atime: SystemTime) {
    let file = File::options().write(true).open(path).expect("opening");
    file.set_times(FileTimes::new().set_accessed(atime)).expect("setting a time");
}

const LONG_AGO: SystemTime = SystemTime::UNIX_EPOCH;

/// Reads a file; with `cached` it is in the kernel's cache, and no request to read arrives.
fn read(path: &Path) {
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("reading");
}

#[test]
fn mounted_files_have_relative_times_of_access() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(options);
        let file = mount.dir.join("file");
        fs::write(&file, b"content").expect("writing");
        set_atime(&file, LONG_AGO);
        assert_eq!(atime(&file), LONG_AGO);
        let start = SystemTime::now() - Duration::from_secs(1);
        // A reading in the tick of the change would not be later than the change, and the next one would count again.
        thread::sleep(Duration::from_millis(20));
        read(&file);
        let first = atime(&file);
        assert!(first >= start, "{options}: the first reading moves the time");
        read(&file);
        assert_eq!(atime(&file), first, "{options}: the next does not");
        // From the kernel's cache: only the open arrives.
        set_atime(&file, LONG_AGO);
        read(&file);
        assert!(atime(&file) >= start, "{options}: reading from the cache moves the time");

        set_atime(&file, LONG_AGO);
        let quiet = File::options().read(true).custom_flags(libc::O_NOATIME).open(&file);
        quiet.and_then(|file| file.read_at(&mut [0; 7], 0)).expect("reading");
        assert_eq!(atime(&file), LONG_AGO, "{options}: O_NOATIME");
        fs::read_dir(&mount.dir).expect("a listing").for_each(drop);

        // The time is written at the unmount.
        read(&file);
        let last = atime(&file);
        mount.unmount();
        let mount = volume.mount("noatime");
        assert_eq!(atime(&file), last, "{options}: after an unmount");
        set_atime(&file, LONG_AGO);
        read(&file);
        assert_eq!(atime(&file), LONG_AGO, "noatime");
        // A remount changes the policy.
        let output = sfs_mount(&volume.device, &volume.dir, "remount,strictatime");
        assert!(output.status.success(), "{}", stderr(&output));
        read(&file);
        let first = atime(&file);
        assert!(first > LONG_AGO, "strictatime");
        // The clock of files has ticks of some milliseconds.
        wait_until("another reading moves the time", || {
            read(&file);
            atime(&file) > first
        });
        mount.unmount();
        volume.check();
    }
}

#[test]
fn mounted_files_without_times_of_access_keep_them() {
    if !can_mount() || harness::transport() == "fuser" {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("strictatime");
    let file = mount.dir.join("file");
    fs::write(&file, b"content").expect("writing");
    let run = Command::new("chattr").arg("+A").arg(&file).output();
    assert!(run.expect("chattr runs").status.success());
    set_atime(&file, LONG_AGO);
    read(&file);
    assert_eq!(atime(&file), LONG_AGO);
    mount.unmount();
    volume.check();
}

fn device_bytes(dir: &Path) -> u64 {
    let output = sfs_ctl_stat(dir, &["--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    shown["mount"]["counters"]["device_bytes_written"].as_u64().expect("a number")
}

/// Reading writes nothing, and neither does fdatasync(2) when only times have changed.
#[test]
fn mounted_files_are_read_and_data_synced_without_writing() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let volume = TestVolume::new("64M");
        let mount = volume.mount(&format!("{options},commit=3600,checkpoint=3600"));
        let path = mount.dir.join("file");
        fs::write(&path, vec![1; 100_000]).expect("writing");
        let file = File::options().write(true).read(true).open(&path).expect("opening");
        file.sync_all().expect("a sync");
        set_atime(&path, LONG_AGO);
        file.sync_all().expect("a sync");
        let before = device_bytes(&mount.dir);
        read(&path);
        assert!(atime(&path) > LONG_AGO);
        file.set_modified(SystemTime::UNIX_EPOCH).expect("setting a time");
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fdatasync(file.as_raw_fd()) }, 0);
        assert_eq!(device_bytes(&mount.dir), before, "{options}: only times have changed");
        file.set_len(200_000).expect("growing");
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fdatasync(file.as_raw_fd()) }, 0);
        assert!(device_bytes(&mount.dir) > before, "{options}: the length has changed");
        mount.kill();
        mount.detach();
        let mount = volume.mount(options);
        assert_eq!(fs::metadata(&path).expect("the file").len(), 200_000);
        mount.unmount();
        volume.check();
    }
}
