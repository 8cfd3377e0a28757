//! A device that goes away under load, and a daemon that is stopped and goes on, as at a suspend.
//!
//! The device is a loop device over a file of another mount of SFS. Killing that mount's daemon fails every request to the device
//! from then on, as pulling a card does.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use harness::{TestVolume, can_mount, content, sfs_umount, stderr, transport};
use rustix::process::Signal;
use sfs_testkit::{mount_table::is_mounted, wait_until};

/// Longest time for an answer after the device has gone.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Programs that write, sync and read files.
const WRITERS: usize = 4;

/// Bytes of a file.
const LEN: usize = 100_000;

/// Writes, syncs and reads files in `dir` until `is_over`, or an error. Returns the number of files that were synced.
fn work(dir: &Path, name: usize, is_over: &AtomicBool, synced: &AtomicU64) -> std::io::Result<()> {
    for round in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let path = dir.join(format!("{name}-{}", round % 20));
        let bytes = content(&path.to_string_lossy(), round, LEN);
        let mut file = File::create(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        synced.fetch_add(1, Ordering::SeqCst);
        assert!(fs::read(&path)? == bytes, "{}: other bytes", path.display());
    }
    Ok(())
}

/// A daemon in the foreground, whose log is a file.
struct Foreground(Child, PathBuf);

impl Foreground {
    fn mount(volume: &TestVolume, log: PathBuf) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
        command.args(["--foreground", "--transport", &transport()]);
        command.arg(&volume.device).arg(&volume.dir).stdin(Stdio::null());
        command.stderr(File::create(&log).expect("room"));
        let child = command.spawn().expect("sfs-mount runs");
        wait_until("the volume is mounted", || is_mounted(&volume.dir));
        Self(child, log)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pulled_device_is_an_error_at_once_and_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    let card = TestVolume::on_disk("256M");
    let slot = card.mount("rw");
    let Some(volume) = TestVolume::below(&slot.dir, "96M").looped() else { return };
    let log = card.scratch.path().join("log");
    let mut daemon = Foreground::mount(&volume, log);
    let (is_over, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    let pulled = thread::scope(|scope| {
        let write = |name| {
            let (is_over, synced, dir) = (&is_over, &synced, &volume.dir);
            scope.spawn(move || work(dir, name, is_over, synced))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        wait_until("files are synced", || synced.load(Ordering::SeqCst) > 40);
        slot.kill();
        let pulled = Instant::now();
        for writer in writers {
            let error = writer.join().expect("no wrong bytes").expect_err("the device is gone");
            let errno = error.raw_os_error();
            assert!(matches!(errno, Some(libc::EIO | libc::EROFS)), "{error}");
        }
        pulled
    });
    assert!(pulled.elapsed() < ANSWER_MAX, "errors after {:?}", pulled.elapsed());
    let failed = fs::write(volume.dir.join("later"), "text").expect_err("the device is gone");
    assert!(matches!(failed.raw_os_error(), Some(libc::EIO | libc::EROFS)), "{failed}");
    let output = sfs_umount(&volume.dir);
    assert!(!is_mounted(&volume.dir), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(32), "{}", stderr(&output));
    let ended = || daemon.0.try_wait().expect("a child").is_some();
    wait_until("the daemon ends", ended);
    assert!(pulled.elapsed() < 2 * ANSWER_MAX, "all ended after {:?}", pulled.elapsed());
    let log = fs::read_to_string(&daemon.1).expect("the log");
    println!("{log}\n{}", stderr(&output));
    // Lost data of the kernel's cache, the first request that failed, the last checkpoint, and what no program heard of: each once,
    // whatever its numbers and names are.
    let errors = log.lines().filter(|line| line.contains("ERROR")).collect::<Vec<_>>();
    let is_name = |word: &str| word.contains(|c: char| "/-".contains(c) || c.is_ascii_digit());
    let kind = |line: &&str| -> Vec<String> {
        line.split(' ').filter(|word| !is_name(word)).map(str::to_owned).collect()
    };
    let kinds = errors.iter().map(kind).collect::<BTreeSet<_>>();
    assert!(kinds.len() == errors.len() && errors.len() <= 4, "{errors:#?}");
    slot.detach();
}

/// A control group that stops its processes, which is removed with the value.
struct FreezerGroup {
    /// Group of all processes.
    root: &'static Path,
    dir: PathBuf,
    is_version_2: bool,
}

impl FreezerGroup {
    /// Makes a group in each hierarchy that can freeze: that of the freezer of version 1, and that of version 2, which a system
    /// with both has elsewhere. Prints the reason for each that is missing.
    fn all() -> Vec<Self> {
        let places = [
            ("/sys/fs/cgroup/freezer", "freezer.state", false),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", true),
            ("/sys/fs/cgroup", "cgroup.freeze", true),
        ];
        let mut groups = Vec::new();
        for (root, state, is_version_2) in places {
            let root = Path::new(root);
            if !root.join("cgroup.procs").exists() {
                println!("skip: {} is no hierarchy of control groups", root.display());
                continue;
            }
            let dir = root.join(format!("sfs-{}", std::process::id()));
            match fs::create_dir(&dir) {
                Ok(()) => groups.push(Self { root, dir, is_version_2 }),
                Err(error) => println!("skip: {}: {error}", root.display()),
            }
            groups.retain(|group: &Self| group.root != root || group.dir.join(state).exists());
        }
        groups
    }

    fn take(&self, process: u32) {
        fs::write(self.dir.join("cgroup.procs"), process.to_string()).expect("the process runs");
    }

    fn set(&self, is_frozen: bool) {
        let (file, value, shown_in, shown) = match (self.is_version_2, is_frozen) {
            (false, true) => ("freezer.state", "FROZEN", "freezer.state", "FROZEN"),
            (false, false) => ("freezer.state", "THAWED", "freezer.state", "THAWED"),
            (true, true) => ("cgroup.freeze", "1", "cgroup.events", "frozen 1"),
            (true, false) => ("cgroup.freeze", "0", "cgroup.events", "frozen 0"),
        };
        fs::write(self.dir.join(file), value).expect("the group is there");
        let reached = || {
            let now = fs::read_to_string(self.dir.join(shown_in));
            now.is_ok_and(|now| now.lines().any(|line| line == shown))
        };
        wait_until("the group changes its state", reached);
    }
}

impl Drop for FreezerGroup {
    fn drop(&mut self) {
        let (file, thawed) =
            if self.is_version_2 { ("cgroup.freeze", "0") } else { ("freezer.state", "THAWED") };
        let _ = fs::write(self.dir.join(file), thawed);
        let processes = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            let _ = fs::write(self.root.join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Asserts that requests under way while the daemon stands still are answered later, and that nothing is lost.
fn survives(stop: impl Fn(&harness::Mount), resume: impl Fn(&harness::Mount)) {
    let volume = TestVolume::new("96M");
    let mount = volume.mount("rw");
    let (is_over, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let write = |name| {
            let (is_over, synced, dir) = (&is_over, &synced, &volume.dir);
            scope.spawn(move || work(dir, name, is_over, synced))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        for round in 1..4 {
            wait_until("files are synced", || synced.load(Ordering::SeqCst) > 20 * round);
            stop(&mount);
            // Longer than the pauses of the daemon's threads, and than the kernel's limits on their latency.
            thread::sleep(Duration::from_millis(300));
            let before = synced.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(200));
            assert_eq!(synced.load(Ordering::SeqCst), before, "the daemon stands still");
            resume(&mount);
        }
        is_over.store(true, Ordering::SeqCst);
        writers.into_iter().for_each(|writer| {
            writer.join().expect("no wrong bytes").expect("no error");
        });
    });
    mount.unmount();
    volume.check();
}

#[test]
fn requests_survive_a_daemon_that_is_stopped() {
    if can_mount() {
        survives(|mount| mount.signal(Signal::STOP), |mount| mount.signal(Signal::CONT));
    }
}

#[test]
fn requests_survive_a_daemon_that_is_frozen() {
    if !can_mount() {
        return;
    }
    for group in FreezerGroup::all() {
        let stop = |mount: &harness::Mount| {
            group.take(mount.daemon.as_raw_nonzero().get().cast_unsigned());
            group.set(true);
        };
        survives(stop, |_| group.set(false));
    }
}
