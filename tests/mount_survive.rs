//! Deaths of the daemon of a mount with `-o survive`: programs see a pause, and nothing else.
//!
//! `SFS_DEATHS` is the number of kills under load (default 20), and `SFS_UPGRADES` that of upgrades (default 5); `SFS_SEED` repeats the choices of a run.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_handover/load.rs"]
mod load;
#[expect(dead_code, reason = "the test of handovers uses all of it")]
#[path = "mount_handover/programs.rs"]
mod programs;
#[path = "mount_survive/upgrades.rs"]
mod upgrades;

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

/// `FS_IOC_SHUTDOWN`.
const SHUTDOWN: libc::Ioctl = 0x8004_587d;

/// Longest time between two kills.
const BETWEEN_MAX_MS: u64 = 700;

/// Mount that survives its daemon.
struct SurvivingMount<'a> {
    volume: &'a TestVolume,
    dir: PathBuf,
}

impl<'a> SurvivingMount<'a> {
    /// Mounts; `None` if the kernel does not send requests again.
    fn new(volume: &'a TestVolume) -> Option<Self> {
        Self::by(Path::new(env!("CARGO_BIN_EXE_sfs-mount")), volume)
    }

    /// Mounts by another copy of the program.
    fn by(program: &Path, volume: &'a TestVolume) -> Option<Self> {
        let mut command = Command::new(program);
        command.args(["-o", "survive"]).arg(&volume.device).arg(&volume.dir);
        let output = command.output().expect("the program runs");
        let said = stderr(&output);
        if said.contains("needs Linux 6.10") {
            println!("skip: {said}");
            return None;
        }
        assert!(output.status.success(), "{said}");
        Some(Self { volume, dir: volume.dir.clone() })
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
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

#[test]
fn an_open_file_without_a_name_and_a_lock_survive() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
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
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
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
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    File::open(mount.dir.join("file")).expect("the file was synced");
    mount.unmount();
}

/// A daemon with a defect ends by SIGABRT, and writes no core dump, for which the next one would wait.
#[test]
fn a_defect_is_survived() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
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
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("256M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
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
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    assert!(fs::read(mount.dir.join("file")).expect("the file") == content);
    mount.unmount();
}

/// A daemon that cannot serve is given up: calls get an error, and none hangs.
#[test]
fn a_daemon_that_dies_again_and_again_is_not_started_for_ever() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
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
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    mount.unmount();
}

/// Returns the line of a mount that is refused in a namespace made by unshare(1) with the arguments `way`, where `setting` holds.
fn refused_where(way: &[&str], setting: &str, volume: &TestVolume) -> String {
    let script = format!("{setting} && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(way).args(["sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_sfs-mount")]);
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
        let output = command.args(["-f", "-o", "survive"]).arg(&volume.device).arg(dir).output();
        let output = output.expect("sfs-mount runs");
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains("would be below the mount"), "{said}");
    }
    for (way, setting, words) in [
        (
            &["-p", "-f", "--mount-proc"][..],
            "echo 2 >/proc/sys/vm/memfd_noexec",
            "sysctl vm.memfd_noexec=1",
        ),
        (&["-m"], "mount -t tmpfs none /etc && touch /etc/initrd-release", "is in an initramfs"),
    ] {
        let said = refused_where(way, setting, &volume);
        assert!(said.contains(words) && said.lines().count() == 1, "{words}: {said}");
    }
}
