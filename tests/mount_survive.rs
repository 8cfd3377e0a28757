//! Deaths of the daemon of a mount with `-o survive`: programs see a pause, and nothing else.
//!
//! `SFS_DEATHS` is the number of kills under load (default 20), and `SFS_UPGRADES` that of upgrades (default 5); `SFS_SEED` repeats the choices of a run.

#[path = "mount_survive/by_default.rs"]
mod by_default;
#[path = "mount_survive/ended_requests.rs"]
mod ended_requests;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_handover/load.rs"]
mod load;
#[path = "mount_survive/private_root.rs"]
mod private_root;
#[expect(dead_code, reason = "the test of handovers uses all of it")]
#[path = "mount_handover/programs.rs"]
mod programs;
#[path = "mount_survive/resting.rs"]
mod resting;
#[path = "mount_survive/upgrades.rs"]
mod upgrades;
#[path = "mount_handover/upgrading.rs"]
mod upgrading;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use harness::{TestVolume, can_mount, daemon_of, sfs_ctl_stat, stderr};
use load::Load;
use rustix::fs::statvfs;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use sfs_testkit::mount_table::is_mounted;
use sfs_testkit::{SeededRng, number_from_env, wait_until};

const SFS_MOUNT: &str = env!("CARGO_BIN_EXE_sfs-mount");

/// `FS_IOC_SHUTDOWN`.
const SHUTDOWN: libc::Ioctl = 0x8004_587d;

/// Setting of the kernel that, at 2, forbids memory from which programs can be started.
const NO_EXEC: &str = "/proc/sys/vm/memfd_noexec";

/// Longest time between two kills.
const BETWEEN_MAX_MS: u64 = 700;

/// The same where calls end with the daemon.
const BETWEEN_WHERE_ENDED_MS: u64 = 250;

/// Options of a mount that survives: on this kernel, and as on one that does not send requests again.
const WAYS: [&[&str]; 2] = [&["-o", "survive"], &["-o", "survive", "--no-resend"]];

/// Mount that survives its daemon.
struct SurvivingMount<'a> {
    volume: &'a TestVolume,
    dir: PathBuf,
}

impl<'a> SurvivingMount<'a> {
    /// Mounts; `None` if the kernel does not send requests again.
    fn new(volume: &'a TestVolume) -> Option<Self> {
        Self::by(Path::new(SFS_MOUNT), volume)
    }

    /// Mounts by another copy of the program, in the same way.
    fn by(program: &Path, volume: &'a TestVolume) -> Option<Self> {
        let mount = Self::with_program(program, volume, WAYS[0]);
        if !mount.sends_again() {
            println!("skip: the kernel does not send requests again");
            mount.unmount();
            return None;
        }
        Some(mount)
    }

    fn with(volume: &'a TestVolume, options: &[&str]) -> Self {
        Self::with_program(Path::new(SFS_MOUNT), volume, options)
    }

    fn with_program(program: &Path, volume: &'a TestVolume, options: &[&str]) -> Self {
        let output = mount_by(program, volume, options);
        assert!(output.status.success(), "{}", stderr(&output));
        Self { volume, dir: volume.dir.clone() }
    }

    /// Returns whether the kernel sends requests again.
    fn sends_again(&self) -> bool {
        let stat = sfs_ctl_stat(&self.dir, &["-v"]);
        !String::from_utf8_lossy(&stat.stdout).contains("does not send requests again")
    }

    fn daemon(&self) -> Pid {
        self.volume.daemon()
    }

    /// Kills the daemon, and waits for the next one.
    fn kill(&self) -> Pid {
        self.end_by(Signal::KILL)
    }

    fn end_by(&self, signal: Signal) -> Pid {
        let before = self.daemon();
        kill_process(before, signal).expect("the daemon runs");
        let is_another = || daemon_of(&self.volume.device).is_some_and(|now| now != before);
        wait_until("another daemon runs", is_another);
        before
    }

    fn unmount(self) {
        self.volume.unmount_and_check();
    }
}

impl Drop for SurvivingMount<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.dir) {
            let _ = unmount(&self.dir, UnmountFlags::DETACH | UnmountFlags::FORCE);
        }
    }
}

fn mount(volume: &TestVolume, options: &[&str]) -> std::process::Output {
    mount_by(Path::new(SFS_MOUNT), volume, options)
}

fn mount_by(program: &Path, volume: &TestVolume, options: &[&str]) -> std::process::Output {
    let mut command = Command::new(program);
    command.args(options).arg(&volume.device).arg(&volume.dir);
    command.output().expect("sfs-mount runs")
}

/// No program sees an error, and no byte differs.
#[test]
fn programs_see_a_pause_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let kills = number_from_env("SFS_DEATHS", 20);
    let volume = TestVolume::new("512M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    let mut random = SeededRng::new(number_from_env("SFS_SEED", 1));
    let load = Load::new(&mount.dir);
    load.run(|| {
        for kill in 0..kills {
            // A daemon that never comes to serve is not started for ever: on a busy machine many die before.
            if kill % 4 == 3 {
                statvfs(&mount.dir).expect("the mount is served");
            }
            std::thread::sleep(Duration::from_millis(random.below(BETWEEN_MAX_MS)));
            mount.kill();
        }
    });
    load.verify();
    mount.kill();
    load.verify();
    mount.unmount();
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    load.verify();
    mount.unmount();
}

/// As on a kernel that does not send requests again: those that were read and not answered end.
#[test]
fn only_calls_under_way_get_an_error_where_requests_are_not_sent_again() {
    if !can_mount() {
        return;
    }
    let kills = number_from_env("SFS_DEATHS", 20);
    let volume = TestVolume::new("256M");
    let mount = SurvivingMount::with(&volume, WAYS[1]);
    let mut random = SeededRng::new(number_from_env("SFS_SEED", 1));
    let mut load = ended_requests::Load::new(&mount.dir);
    let (done, ended) = load.run(|| {
        for _ in 0..kills {
            while statvfs(&mount.dir).is_err() {}
            std::thread::sleep(Duration::from_millis(random.below(BETWEEN_WHERE_ENDED_MS)));
            mount.kill();
        }
    });
    println!("{kills} kills: {done} calls were done, {ended} have ended with a daemon");
    assert!(ended > 0, "a call was under way at one of {kills} kills");
    load.verify();
    mount.unmount();
    let mount = SurvivingMount::with(&volume, WAYS[0]);
    load.verify();
    mount.unmount();
}

#[test]
fn an_open_file_without_a_name_and_a_lock_survive() {
    if can_mount() {
        WAYS.into_iter().for_each(keep_an_open_file_and_a_lock);
    }
}

fn keep_an_open_file_and_a_lock(way: &[&str]) {
    let volume = TestVolume::new("64M");
    let mount = SurvivingMount::with(&volume, way);
    let path = mount.dir.join("deleted");
    let opened = File::options().read(true).write(true).create_new(true).open(&path);
    let mut deleted = opened.expect("room");
    deleted.write_all(b"first,").expect("room");
    fs::remove_file(&path).expect("the file");
    let locked = File::create(mount.dir.join("locked")).expect("room");
    locked.try_lock().expect("nobody has the lock");
    for _ in 0..3 {
        mount.kill();
        deleted.write_all(b"more,").expect("the file is open");
        let other = File::open(mount.dir.join("locked")).expect("the file");
        assert!(other.try_lock_shared().is_err(), "the lock is held");
    }
    deleted.rewind().expect("a file");
    let mut text = String::new();
    deleted.read_to_string(&mut text).expect("the file is open");
    assert_eq!(text, "first,more,more,more,");
    let stat = sfs_ctl_stat(&mount.dir, &[]);
    assert!(stat.status.success(), "{}", stderr(&stat));
    drop((deleted, locked));
    mount.unmount();
}

/// Regression: the next daemon wrote to a volume that was shut down.
#[test]
fn a_volume_that_is_shut_down_is_not_written_again() {
    if can_mount() {
        WAYS.into_iter().for_each(shut_a_volume_down);
    }
}

fn shut_a_volume_down(way: &[&str]) {
    let volume = TestVolume::new("64M");
    let mount = SurvivingMount::with(&volume, way);
    let file = File::create(mount.dir.join("file")).expect("room");
    file.sync_all().expect("room");
    fs::write(mount.dir.join("late"), "content").expect("room");
    let flag = 2u32;
    // SAFETY: the descriptor is open, and the address only goes to the kernel and the daemon, which check it.
    let stopped = unsafe { libc::ioctl(file.as_raw_fd(), SHUTDOWN, &raw const flag) };
    assert_eq!(stopped, 0, "{}", std::io::Error::last_os_error());
    drop(file);
    let image = fs::read(&volume.device).expect("the image");
    kill_process(mount.daemon(), Signal::KILL).expect("the daemon runs");
    let begun = Instant::now();
    wait_until("the mount is taken away", || !is_mounted(&mount.dir));
    assert!(begun.elapsed() < Duration::from_secs(5), "without further attempts");
    wait_until("the daemon has ended", || daemon_of(&volume.device).is_none());
    assert!(fs::read(&volume.device).expect("the image") == image, "nothing was written");
    drop(mount);
    let mount = SurvivingMount::with(&volume, way);
    File::open(mount.dir.join("file")).expect("the file was synced");
    mount.unmount();
}

/// A daemon with a defect ends by SIGABRT, and writes no core dump, for which the next one would wait.
#[test]
fn a_defect_is_survived() {
    if can_mount() {
        WAYS.into_iter().for_each(survive_a_defect);
    }
}

fn survive_a_defect(way: &[&str]) {
    let volume = TestVolume::new("64M");
    let mount = SurvivingMount::with(&volume, way);
    fs::write(mount.dir.join("file"), "content").expect("room");
    for _ in 0..2 {
        mount.end_by(Signal::ABORT);
        assert_eq!(fs::read(mount.dir.join("file")).expect("the file"), b"content");
    }
    mount.unmount();
}

/// Regression: a mount that no table names any more was given up, and what was not in the log was lost.
#[test]
fn a_death_during_an_unmount_loses_nothing() {
    if can_mount() {
        WAYS.into_iter().for_each(die_during_an_unmount);
    }
}

fn die_during_an_unmount(way: &[&str]) {
    let volume = TestVolume::new("256M");
    let mount = SurvivingMount::with(&volume, way);
    let content = SeededRng::new(5).bytes(24 << 20);
    fs::write(mount.dir.join("file"), &content).expect("room");
    let daemon = mount.daemon();
    kill_process(daemon, Signal::STOP).expect("the daemon runs");
    let dir = mount.dir.clone();
    let unmounting = std::thread::spawn(move || unmount(&dir, UnmountFlags::DETACH));
    wait_until("the mount is in no table", || !is_mounted(&mount.dir));
    mount.kill();
    unmounting.join().expect("the thread ends").expect("it is unmounted");
    drop(mount);
    wait_until("the daemon has ended", || daemon_of(&volume.device).is_none());
    let mount = SurvivingMount::with(&volume, way);
    assert!(fs::read(mount.dir.join("file")).expect("the file") == content);
    mount.unmount();
}

/// A daemon that cannot serve is given up: calls get an error, and none hangs.
#[test]
fn a_daemon_that_dies_again_and_again_is_not_started_for_ever() {
    if can_mount() {
        WAYS.into_iter().for_each(die_again_and_again);
    }
}

fn die_again_and_again(way: &[&str]) {
    let volume = TestVolume::new("64M");
    let mount = SurvivingMount::with(&volume, way);
    fs::write(mount.dir.join("file"), "content").expect("room");
    let open = File::open(mount.dir.join("file")).expect("the file");
    let begun = Instant::now();
    while is_mounted(&mount.dir) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the mount is taken away");
        daemon_of(&volume.device).map(|daemon| kill_process(daemon, Signal::KILL));
        std::thread::sleep(Duration::from_millis(5));
    }
    open.metadata().and_then(|_| open.sync_all()).expect_err("nobody answers");
    drop(open);
    drop(mount);
    wait_until("the daemon has ended", || daemon_of(&volume.device).is_none());
    let mount = SurvivingMount::with(&volume, way);
    mount.unmount();
}

/// Returns the line of a mount that is refused where the kernel starts no programs from memory.
fn refused_without_programs_in_memory(volume: &TestVolume) -> String {
    let script = format!("echo 2 >{NO_EXEC} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-p", "-f", "--mount-proc", "sh", "-c", &script, "sh", SFS_MOUNT]);
    let output =
        command.args(["-f", "-o", "survive"]).arg(&volume.device).arg(&volume.dir).output();
    let output = output.expect("unshare runs");
    assert!(!output.status.success());
    stderr(&output)
}

#[test]
fn options_that_cannot_be_combined_say_so() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    for (arguments, words) in [
        (&["-o", "survive", "--transport", "uring"][..], "requests on rings end with the daemon"),
        (&["-o", "survive", "--transport", "fuser"], "--transport fuser"),
        (&["-o", "survive,ro"], "nothing is changed"),
        (&["-o", "survive,sync"], "sync and dirsync"),
        (&["-o", "survive,nosandbox"], "there is no monitor"),
        (&["-o", "survive,nowriteback"], "nowriteback"),
        (&["-o", "survive", "--foreground"], "its end is taken for that of the mount"),
    ] {
        let output = mount(&volume, arguments);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(words), "{words}: {said}");
    }
    // The daemon could not be started again: its libraries would be on the mount. Nothing is mounted in any case.
    for dir in ["/", "/usr", "/dev"] {
        let mut command = Command::new(SFS_MOUNT);
        let output = command.args(["-f", "-o", "survive"]).arg(&volume.device).arg(dir).output();
        let output = output.expect("sfs-mount runs");
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains("would be below the mount"), "{said}");
    }
    if !Path::new(NO_EXEC).exists() {
        println!("skip: {NO_EXEC} needs Linux 6.3");
        return;
    }
    let said = refused_without_programs_in_memory(&volume);
    assert!(said.contains("sysctl vm.memfd_noexec=1") && said.lines().count() == 1, "{said}");
}
