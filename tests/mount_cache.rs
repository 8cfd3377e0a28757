//! Volumes on a disk with an SSD cache: warm after a remount, empty after a mount without it, and gone without an error when the
//! SSD lies or dies.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use harness::{TestVolume, can_mount, content, sfs_mount, stderr, transport};
use sfs_testkit::{SeededRng, mount_table::is_mounted, wait_until};

/// Bytes of the cache device.
const CACHE_LEN: u64 = 32 << 20;

const FILES: u64 = 24;

/// Bytes of a file: no stream, which would bypass the cache.
const LEN: usize = 300_000;

/// Runs `sfs-ctl cache`, and returns what it prints.
fn sfs_ctl_cache(arguments: &[&str], paths: &[&Path]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    let output = command.arg("cache").args(arguments).args(paths).output().expect("sfs-ctl runs");
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn cache_stat(dir: &Path) -> serde_json::Value {
    serde_json::from_str(&sfs_ctl_cache(&["stat", "--json"], &[dir])).expect("JSON")
}

/// Makes a device for a cache, and attaches it to the volume.
fn attach(volume: &TestVolume, cache: &Path) -> String {
    File::create(cache).and_then(|file| file.set_len(CACHE_LEN)).expect("room");
    sfs_ctl_cache(&["attach"], &[cache, &volume.device]);
    format!("cache_dev={}", cache.display())
}

fn write_files(dir: &Path, version: u64) {
    for no in 0..FILES {
        fs::write(dir.join(no.to_string()), content("file", version + no, LEN)).expect("room");
    }
}

/// Reads all files, and asserts that they have this version. The last file comes first: in order they would be one stream on the
/// disk, which bypasses the cache.
fn verify(dir: &Path, version: u64) {
    for no in (0..FILES).rev() {
        let bytes = fs::read(dir.join(no.to_string())).expect("no error reaches a program");
        assert!(bytes == content("file", version + no, LEN), "file {no} has other bytes");
    }
}

#[test]
fn a_cache_is_warm_after_a_remount_and_empty_after_a_mount_without_it() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::on_disk("96M");
    let option = attach(&volume, &volume.scratch.path().join("cache"));
    let mount = volume.mount(&option);
    write_files(&mount.dir, 1);
    mount.unmount();

    let mount = volume.mount(&option);
    verify(&mount.dir, 1);
    let cold = cache_stat(&mount.dir);
    assert!(cold["miss_bytes"].as_u64() > Some(FILES * LEN as u64 / 2), "{cold}");
    mount.unmount();

    // A trial run, and a path from another directory.
    let mut trial = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    trial.args(["-f", "-o", "cache_dev=cache"]).arg(&volume.device).arg(&volume.dir);
    let output = trial.current_dir(volume.scratch.path()).output().expect("sfs-mount runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let mut relative = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    relative.args(["-o", "cache_dev=cache"]).arg(&volume.device).arg(&volume.dir);
    let output = relative.current_dir(volume.scratch.path()).output().expect("sfs-mount runs");
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    let mount = volume.mounted();
    verify(&mount.dir, 1);
    let warm = cache_stat(&mount.dir);
    assert_eq!(warm["at_mount"], "warm");
    assert!(warm["hit_bytes"].as_u64() > Some(FILES * LEN as u64 * 3 / 4), "{warm}");
    assert!(sfs_ctl_cache(&["stat"], &[&mount.dir]).contains("Hits"));
    mount.unmount();

    // The kernel has the whole cache; the disk's content has another epoch.
    let mount = volume.mount("nocache");
    write_files(&mount.dir, 100);
    mount.unmount();
    let mount = volume.mount(&option);
    verify(&mount.dir, 100);
    assert_eq!(cache_stat(&mount.dir)["at_mount"], "empty");
    mount.kill();
    mount.detach();

    let mount = volume.mount(&option);
    assert_eq!(cache_stat(&mount.dir)["at_mount"], "empty", "the mount was cut off");
    verify(&mount.dir, 100);
    sfs_ctl_cache(&["flush"], &[&mount.dir]);
    sfs_ctl_cache(&["detach"], &[&mount.dir]);
    assert_eq!(cache_stat(&mount.dir)["state"], "it was detached");
    verify(&mount.dir, 100);
    // The SSD is free for another volume while this one is mounted.
    let other = TestVolume::new("48M");
    let cache = volume.scratch.path().join("cache");
    sfs_ctl_cache(&["attach", "--force"], &[&cache, &other.device]);
    mount.unmount();
    volume.check();
}

#[test]
fn a_cache_that_is_missing_or_another_volumes_is_named_and_left_alone() {
    if !can_mount() {
        return;
    }
    let (volume, other) = (TestVolume::new("48M"), TestVolume::new("48M"));
    let cache = volume.scratch.path().join("cache");
    let of_other = other.scratch.path().join("cache");
    let own = attach(&volume, &cache);
    let others = attach(&other, &of_other);
    let before = fs::read(&of_other).expect("a file");
    let missing = format!("cache_dev={}", volume.scratch.path().join("none").display());
    for (option, reason) in [
        (others.as_str(), "cache of another volume"),
        (missing.as_str(), "no such file or device"),
        ("rw", "no device has its UUID"),
    ] {
        let output = sfs_mount(&volume.device, &volume.dir, option);
        let text = stderr(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("without its SSD cache") && text.contains(reason), "{text}");
        let mount = volume.mounted();
        fs::write(mount.dir.join("file"), reason).expect("room");
        mount.unmount();
    }
    assert!(fs::read(&of_other).expect("a file") == before, "another volume's cache was written");
    let mount = volume.mount(&own);
    assert_eq!(cache_stat(&mount.dir)["at_mount"], "empty");
    mount.unmount();
    let mount = volume.mount("nocache");
    sfs_ctl_cache(&["detach"], &[&mount.dir]);
    mount.unmount();
    let output = sfs_mount(&volume.device, &volume.dir, &own);
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    volume.mounted().unmount();
}

/// `fio` in the foreground, which writes, reads and verifies random blocks.
fn fio(dir: &Path, seconds: &str) -> Option<Child> {
    let mut command = Command::new("fio");
    command.args([
        "--name=verify",
        "--rw=randrw",
        "--bsrange=4k-64k",
        "--size=24m",
        "--ioengine=sync",
    ]);
    command.args([
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--time_based",
        "--fsync=64",
    ]);
    command.arg(format!("--runtime={seconds}")).arg(format!("--directory={}", dir.display()));
    command.arg("--invalidate=1").stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            eprintln!("skipped: fio: {error}");
            None
        }
    }
}

/// A daemon in the foreground, whose log is a file.
struct Foreground(Child);

impl Foreground {
    fn mount(volume: &TestVolume, option: &str, log: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
        command.args(["--foreground", "--transport", &transport(), "-o", option]);
        command.arg(&volume.device).arg(&volume.dir).stdin(Stdio::null());
        command.stderr(File::create(log).expect("room"));
        let child = command.spawn().expect("sfs-mount runs");
        wait_until("the volume is mounted", || is_mounted(&volume.dir));
        Self(child)
    }

    fn wait(mut self) {
        wait_until("the daemon ends", || self.0.try_wait().expect("a child").is_some());
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Mounts with the cache at `cache`, reads everything once, lets the SSD die by `kill` while fio verifies, and asserts that no error
/// reaches a program and that the log has one line about it.
fn outlives(volume: &TestVolume, cache: &Path, kill: impl FnOnce()) {
    let option = format!("cache_dev={}", cache.display());
    let log = volume.scratch.path().join("log");
    let daemon = Foreground::mount(volume, &option, &log);
    write_files(&volume.dir, 7);
    harness::unmount_unused(&volume.dir);
    daemon.wait();
    let daemon = Foreground::mount(volume, &option, &log);
    verify(&volume.dir, 7);
    sfs_ctl_cache(&["flush"], &[&volume.dir]);
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root");
    let Some(fio) = fio(&volume.dir, "1") else { return };
    kill();
    verify(&volume.dir, 7);
    let output = fio.wait_with_output().expect("fio ends");
    assert!(output.status.success(), "{}", stderr(&output));
    wait_until("the cache is given up", || {
        fs::write("/proc/sys/vm/drop_caches", "3").expect("root");
        verify(&volume.dir, 7);
        cache_stat(&volume.dir)["state"] != "in use"
    });
    harness::unmount_unused(&volume.dir);
    daemon.wait();
    let log = fs::read_to_string(&log).expect("the log");
    let lines = log.lines().filter(|line| line.contains("is not used any more")).count();
    assert_eq!(lines, 1, "{log}");
    volume.check();
}

#[test]
fn an_ssd_that_returns_wrong_data_is_given_up_under_fio() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::on_disk("128M");
    let cache = volume.scratch.path().join("cache");
    attach(&volume, &cache);
    outlives(&volume, &cache, || garble(&cache));
}

/// Overwrites all segments of the cache, and leaves the header.
fn garble(cache: &PathBuf) {
    let mut file = File::options().read(true).write(true).open(cache).expect("a file");
    let mut first = [0; 1 << 20];
    file.read_exact(&mut first).expect("a header");
    file.seek(SeekFrom::Start(1 << 20)).expect("a position");
    let mut random = SeededRng::new(5);
    (1..CACHE_LEN >> 20).for_each(|_| file.write_all(&random.bytes(1 << 20)).expect("room"));
    file.sync_all().expect("a sync");
}

#[test]
fn an_ssd_that_fails_every_request_is_given_up_under_fio() {
    if !can_mount() {
        return;
    }
    // Killing the daemon of the mount with the cache's file fails every request to the loop device.
    let card = TestVolume::on_disk("96M");
    let slot = card.mount("rw");
    let volume = TestVolume::on_disk("128M");
    let file = slot.dir.join("cache");
    File::create(&file).and_then(|file| file.set_len(CACHE_LEN)).expect("room");
    let Some(ssd) = sfs_testkit::LoopDevice::attach(&file) else { return };
    sfs_ctl_cache(&["attach"], &[&ssd.path, &volume.device]);
    outlives(&volume, &ssd.path, || slot.kill());
    slot.detach();
}
