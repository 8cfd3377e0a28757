//! Upgrades of mounted volumes: another program goes on with a mount, under load, and a handover that fails at any point leaves a
//! program serving.
//!
//! `SFS_UPGRADES` is the number of upgrades under load (default 5); `SFS_SEED` repeats the choices of a run.

#[path = "mount_handover/hard_cases.rs"]
mod hard_cases;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;
#[path = "mount_handover/load.rs"]
mod load;
#[path = "mount_handover/programs.rs"]
mod programs;
#[path = "mount_handover/upgrading.rs"]
mod upgrading;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use harness::{TestVolume, can_mount, daemon_of, sfs_ctl_stat, stderr, transport_used};
use load::Load;
use programs::{Program, script};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use sfs_testkit::mount_table::is_mounted;
use sfs_testkit::{number_from_env, wait_until};
use upgrading::print_pauses;

/// A mount over `/dev/fuse` whose program changes.
struct UpgradedMount<'a> {
    volume: &'a TestVolume,
    dir: PathBuf,
}

impl<'a> UpgradedMount<'a> {
    fn new(volume: &'a TestVolume, program: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(["--transport", "dev"]).args(options).arg(&volume.device).arg(&volume.dir);
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{}", stderr(&output));
        Self { volume, dir: volume.dir.clone() }
    }

    fn of(volume: &'a TestVolume, options: &str) -> Self {
        Self::new(volume, Path::new(env!("CARGO_BIN_EXE_sfs-mount")), &["-o", options])
    }

    /// Mounts `volume` with a copy of the program, which a test replaces.
    fn with_copy(volume: &'a TestVolume) -> (Program, Self) {
        let program = Program::copy_to(volume.scratch.path());
        let mount = Self::new(volume, &program.path, &[]);
        (program, mount)
    }

    /// Changes the options of the mount.
    fn remount(&self, list: &str) {
        let mut of = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
        let output = of.args(["-o", list]).arg(&self.dir).output().expect("sfs-mount runs");
        assert!(output.status.success(), "{list}: {}", stderr(&output));
    }

    fn daemon(&self) -> Pid {
        self.volume.daemon()
    }

    fn try_upgrade(&self, arguments: &[&str]) -> Output {
        upgrading::try_upgrade(&self.dir, arguments)
    }

    /// Upgrades, and returns the length of the pause.
    fn upgrade(&self) -> Duration {
        upgrading::upgrade(self.volume)
    }

    /// Asserts that an upgrade fails with these words, and that the program before serves on.
    fn fails_to_upgrade(&self, arguments: &[&str], words: &str) {
        self.is_refused(arguments, words);
        self.is_served(words);
    }

    /// Asserts that an upgrade is refused with these words.
    fn is_refused(&self, arguments: &[&str], words: &str) {
        let before = self.daemon();
        let output = self.try_upgrade(arguments);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(words), "{words}: {said}");
        assert_eq!(self.daemon(), before, "{words}");
    }

    fn is_served(&self, text: &str) {
        let path = self.dir.join("served");
        let mut file = File::create(&path).expect("the mount is served");
        file.write_all(text.as_bytes()).expect("room");
        file.sync_all().expect("the device works");
        assert_eq!(fs::read_to_string(&path).expect("the file"), text);
        let stat = sfs_ctl_stat(&self.dir, &[]);
        assert!(stat.status.success(), "{}", stderr(&stat));
    }

    fn unmount(self) {
        self.volume.unmount_and_check();
    }
}

impl Drop for UpgradedMount<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.dir) {
            let _ = unmount(&self.dir, UnmountFlags::DETACH);
            let daemon = daemon_of(&self.volume.device);
            daemon.map(|daemon| kill_process(daemon, Signal::KILL));
        }
    }
}

/// No program sees an error, and no byte differs.
#[test]
fn programs_see_a_pause_and_nothing_else() {
    if !can_mount() {
        return;
    }
    let upgrades = number_from_env("SFS_UPGRADES", 5);
    let volume = TestVolume::new("512M");
    let mount = UpgradedMount::of(&volume, "rw");
    let load = Load::new(&mount.dir);
    let pauses = load.run(|| {
        let mut pauses = Vec::new();
        for _ in 0..upgrades {
            std::thread::sleep(Duration::from_millis(300));
            pauses.push(mount.upgrade());
        }
        pauses
    });
    print_pauses(pauses);
    load.verify();
    mount.unmount();
    let mount = UpgradedMount::of(&volume, "rw");
    load.verify();
    mount.unmount();
}

#[test]
fn an_open_file_without_a_name_and_a_lock_go_with_the_mount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = UpgradedMount::of(&volume, "rw");
    let path = mount.dir.join("deleted");
    let mut deleted = File::options().read(true).write(true).create_new(true).open(&path);
    let deleted = deleted.as_mut().expect("room");
    deleted.write_all(b"first,").expect("room");
    fs::remove_file(&path).expect("the file");
    let locked = File::create(mount.dir.join("locked")).expect("room");
    locked.try_lock().expect("nobody has the lock");
    for _ in 0..8 {
        // The next program is asked at once, although the one before has not ended yet.
        let output = mount.try_upgrade(&[]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    for _ in 0..3 {
        mount.upgrade();
        deleted.write_all(b"more,").expect("the file is open");
        let other = File::open(mount.dir.join("locked")).expect("the file");
        assert!(other.try_lock_shared().is_err(), "the lock is held");
    }
    deleted.rewind().expect("a file");
    let mut text = String::new();
    deleted.read_to_string(&mut text).expect("the file is open");
    assert_eq!(text, "first,more,more,more,");
    assert!(deleted.metadata().is_ok_and(|of| std::os::unix::fs::MetadataExt::nlink(&of) == 0));
    drop(locked);
    // Its space comes back with its last handle: the check would find an orphan.
    let _ = std::mem::replace(deleted, tempfile::tempfile().expect("a file"));
    mount.unmount();
}

#[test]
fn a_handover_that_fails_leaves_the_program_before_serving() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let (program, mount) = UpgradedMount::with_copy(&volume);
    mount.is_served("before");
    program.remove();
    mount.fails_to_upgrade(&[], "cannot start the installed sfs-mount: No such file");
    program.replace_by(b"no program");
    mount.fails_to_upgrade(&[], "cannot start the installed sfs-mount: Exec format error");
    program.replace_by(script("exit 1").as_bytes());
    mount.fails_to_upgrade(&[], "the new program has ended");
    program.replace_by(script("echo hello >&0; exec sleep 1000").as_bytes());
    mount.fails_to_upgrade(&[], "does not speak the protocol");
    let hello = programs::hello;
    program.replace_by(script(&hello(0, "9.9.9")).as_bytes());
    mount.fails_to_upgrade(&[], "version 9.9.9 cannot take over");
    program.replace_by(script(&hello(programs::PROTOCOL, "9.9.9")).as_bytes());
    mount.fails_to_upgrade(&[], "the new program has ended");
    program.replace_by(
        script(&format!("{}; exec sleep 1000", hello(programs::PROTOCOL, "9.9.9"))).as_bytes(),
    );
    mount.fails_to_upgrade(&["--timeout", "1"], "does not answer in time");
    // The real program, which finds a volume that it cannot open.
    let saved = programs::superblocks(&volume.device);
    program.replace_by(script(&programs::damage_and_run(&volume.device)).as_bytes());
    let before = mount.daemon();
    let output = mount.try_upgrade(&[]);
    programs::restore(&volume.device, &saved);
    assert!(stderr(&output).contains("both superblocks"), "{}", stderr(&output));
    assert_eq!(mount.daemon(), before);
    mount.is_served("after a volume that could not be opened");
    program.restore();
    mount.upgrade();
    mount.is_served("upgraded");
    mount.unmount();
}

/// Once the new program may write, only a program that opens the volume anew can go on.
#[test]
fn a_program_that_ends_when_it_may_write_is_replaced_by_the_one_before() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let (program, mount) = UpgradedMount::with_copy(&volume);
    fs::write(mount.dir.join("file"), "content").expect("room");
    let open = File::open(mount.dir.join("file")).expect("the file");
    fs::remove_file(mount.dir.join("file")).expect("the file");
    let before = mount.daemon();
    let steps = [
        programs::hello(programs::PROTOCOL, "9.9.9"),
        programs::take_state(),
        programs::ready(),
        "head -c 12 <&0 >/dev/null".into(),
    ];
    program.replace_by(script(&steps.join("; ")).as_bytes());
    let output = mount.try_upgrade(&[]);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("the new program has ended"), "{said}");
    assert!(said.contains("serves on"), "{said}");
    wait_until("the old program ends", || daemon_of(&volume.device) != Some(before));
    mount.is_served("by the program before");
    let mut text = String::new();
    (&open).read_to_string(&mut text).expect("the file is open");
    assert_eq!(text, "content");
    drop(open);
    program.restore();
    mount.upgrade();
    mount.unmount();
}

#[test]
fn mounts_that_cannot_be_handed_over_say_so() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let frozen = UpgradedMount::of(&volume, "rw");
    let ctl = |command: &str| {
        let mut of = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
        of.arg(command).arg(&volume.dir).status().expect("sfs-ctl runs").success()
    };
    assert!(ctl("freeze"));
    let output = frozen.try_upgrade(&[]);
    assert!(stderr(&output).contains("is frozen; thaw it first"), "{}", stderr(&output));
    assert!(ctl("thaw"));
    frozen.upgrade();
    frozen.unmount();
    if transport_used() != "dev" {
        let mount = volume.mount("rw");
        let mut of = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
        let output = of.arg("upgrade").arg(&mount.dir).output().expect("sfs-ctl runs");
        assert!(stderr(&output).contains("--transport dev for upgrades"), "{}", stderr(&output));
        mount.unmount();
    }
}

/// Nothing is written to a volume that is mounted for reading.
#[test]
fn a_read_only_mount_is_handed_over_without_a_write() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let mount = UpgradedMount::of(&volume, "rw");
    fs::write(mount.dir.join("file"), "content").expect("room");
    mount.unmount();
    let image = || fs::read(&volume.device).expect("the image");
    let mount = UpgradedMount::of(&volume, "ro");
    let before = image();
    for _ in 0..2 {
        mount.upgrade();
        assert_eq!(fs::read(mount.dir.join("file")).expect("the file"), b"content");
        File::create(mount.dir.join("x")).expect_err("the mount is read-only");
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(before == image(), "something was written");
    mount.remount("remount,rw");
    mount.is_served("written again");
    mount.upgrade();
    mount.unmount();
}

/// A mount of the kind `fuseblk`: the kernel holds the device, and sends SYNCFS and DESTROY.
#[test]
fn a_volume_on_a_block_device_is_handed_over() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop("64M") else { return };
    for options in ["rw", "nosandbox"] {
        let mount = UpgradedMount::of(&volume, options);
        for number in 0..3 {
            mount.upgrade();
            mount.is_served(&format!("{options} {number}"));
            let synced = File::open(&mount.dir).map(rustix::fs::syncfs);
            synced.expect("the directory").expect("the device works");
        }
        mount.unmount();
    }
}
