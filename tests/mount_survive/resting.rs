//! Mounts that a remount makes read-only and writable again, and whose daemon dies meanwhile.

use std::fs::{self, File};
use std::io::Read;
use std::process::Command;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::{Signal, kill_process};
use sfs_device::{Access, FileDevice};
use sfs_testkit::{SeededRng, number_from_env, wait_until};

use super::harness::{TestVolume, can_mount, daemon_of, sfs_mount, stderr};
use super::{SurvivingMount, WAYS, upgrading};

impl SurvivingMount<'_> {
    /// Remounts by sfs-mount, as root does.
    fn remount(&self, options: &str) {
        let output = sfs_mount(&self.volume.device, &self.dir, &format!("remount,{options}"));
        assert!(output.status.success(), "{options}: {}", stderr(&output));
    }

    fn image(&self) -> Vec<u8> {
        fs::read(&self.volume.device).expect("the image")
    }
}

#[test]
fn a_volume_at_rest_is_not_written_by_the_next_daemon() {
    if can_mount() {
        WAYS.into_iter().for_each(rest);
    }
}

fn rest(way: &[&str]) {
    let volume = TestVolume::new("64M");
    let mount = SurvivingMount::with(&volume, way);
    let path = |name: &str| mount.dir.join(name);
    let content = SeededRng::new(3).bytes(3 << 20);
    fs::write(path("file"), &content).expect("room");
    fs::write(path("removed"), "removed").expect("room");
    fs::remove_file(path("removed")).expect("the file");
    let mut opened = File::open(path("file")).expect("the file");
    mount.remount("ro");
    let image = mount.image();
    for _ in 0..2 {
        mount.kill();
        assert!(fs::read(path("file")).expect("the file") == content);
        fs::write(path("new"), "").expect_err("it is read-only");
        assert_eq!(fs::read_dir(&mount.dir).expect("the directory").count(), 1);
    }
    if mount.sends_again() {
        upgrading::upgrade(&volume);
    }
    let mut read = Vec::new();
    opened.read_to_end(&mut read).expect("the file is open");
    assert!(read == content);
    drop(opened);
    mount.remount("ro");
    assert!(mount.image() == image, "nothing was written");
    mount.remount("rw");
    fs::write(path("file"), "short").expect("it is writable");
    mount.kill();
    assert_eq!(fs::read(path("file")).expect("the file"), b"short");
    mount.remount("ro");
    mount.kill();
    mount.unmount();
    let device = FileDevice::open(&volume.device, Access::ReadOnly).expect("the image");
    assert!(sfs_fsck::is_unmounted(&device).expect("a volume"), "the last checkpoint is written");
}

/// Regression: nothing could be written to a mount that another program than sfs-mount made writable, once its daemon had died.
#[test]
fn a_remount_that_no_daemon_hears_of_ends_the_rest() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    let file = mount.dir.join("file");
    let go_on: [fn(&SurvivingMount<'_>); 2] = [
        |mount| {
            mount.kill();
        },
        |mount| {
            upgrading::upgrade(mount.volume);
        },
    ];
    for (round, go_on) in go_on.into_iter().enumerate() {
        mount.remount("ro");
        go_on(&mount);
        assert!(fs::write(&file, "").is_err(), "it is read-only");
        mount_remount(&mount.dir, MountFlags::empty(), "").expect("the kernel remounts");
        // It is the first change of one round.
        if round == 1 {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
            let output = command.arg("checkpoint").arg(&mount.dir).output().expect("it runs");
            assert!(output.status.success(), "{}", stderr(&output));
        }
        let text = format!("content {round}");
        fs::write(&file, &text).expect("it is writable");
        File::open(&file).and_then(|file| file.sync_all()).expect("it is writable");
        mount.kill();
        assert_eq!(fs::read_to_string(&file).expect("the file"), text);
    }
    mount.unmount();
}

/// The kernel refuses to make a mount writable whose device is not.
#[test]
fn a_remount_that_fails_leaves_the_rest() {
    if !can_mount() {
        return;
    }
    [false, true].into_iter().for_each(fail_to_remount);
}

fn fail_to_remount(dies: bool) {
    let Some(volume) = TestVolume::on_loop("64M") else { return };
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    fs::write(mount.dir.join("file"), "content").expect("room");
    mount.remount("ro");
    if dies {
        mount.kill();
    }
    let image = mount.image();
    let set = |flag| Command::new("blockdev").arg(flag).arg(&volume.device).status();
    assert!(set("--setro").expect("blockdev runs").success());
    let refused = sfs_mount(&volume.device, &volume.dir, "remount,rw");
    assert!(!refused.status.success(), "the kernel refuses");
    assert!(set("--setrw").expect("blockdev runs").success());
    mount.kill();
    assert_eq!(fs::read(mount.dir.join("file")).expect("the file"), b"content");
    assert!(mount.image() == image, "nothing was written");
    mount.remount("rw");
    fs::write(mount.dir.join("file"), "more").expect("it is writable");
    mount.unmount();
}

/// The end of a freeze writes.
#[test]
fn a_frozen_volume_is_not_made_read_only() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("rw");
    let sfs_ctl = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
        command.args(words).arg(&mount.dir).output().expect("sfs-ctl runs")
    };
    assert!(sfs_ctl(&["freeze"]).status.success());
    let refused = sfs_mount(&volume.device, &volume.dir, "remount,ro");
    assert!(stderr(&refused).contains("is frozen; thaw it first"), "{}", stderr(&refused));
    assert!(sfs_ctl(&["thaw"]).status.success());
    let done = sfs_mount(&volume.device, &volume.dir, "remount,ro");
    assert!(done.status.success(), "{}", stderr(&done));
    mount.unmount();
}

/// Regression: nothing could be written to a mount that was writable again, and whose daemon had died before it was at rest.
#[test]
fn a_daemon_that_dies_before_the_rest_writes_on() {
    if can_mount() {
        WAYS.into_iter().for_each(die_before_the_rest);
    }
}

fn die_before_the_rest(way: &[&str]) {
    let volume = TestVolume::new("64M");
    let mount = SurvivingMount::with(&volume, way);
    let file = mount.dir.join("file");
    fs::write(&file, "content").expect("room");
    let by_kernel = |flags| mount_remount(&mount.dir, flags, "").expect("the kernel remounts");
    by_kernel(MountFlags::RDONLY);
    mount.kill();
    assert_eq!(fs::read(&file).expect("the file"), b"content");
    by_kernel(MountFlags::empty());
    fs::write(&file, "more content").expect("it is writable");
    mount.kill();
    assert_eq!(fs::read(&file).expect("the file"), b"more content");
    // Nobody was told of a rest that is over.
    mount.remount("ro");
    mount.remount("rw");
    mount.kill();
    fs::write(&file, "the last").expect("it is writable");
    mount.kill();
    assert_eq!(fs::read(&file).expect("the file"), b"the last");
    mount.unmount();
}

/// The remount waits for the next daemon.
#[test]
fn remounts_beside_deaths_succeed() {
    if !can_mount() {
        return;
    }
    let rounds = number_from_env("SFS_DEATHS", 20);
    let mut random = SeededRng::new(number_from_env("SFS_SEED", 1));
    let volume = TestVolume::new("64M");
    let Some(mount) = SurvivingMount::new(&volume) else { return };
    for round in 0..rounds {
        let name = format!("file-{round}");
        let content = SeededRng::new(round).bytes(100_000);
        fs::write(mount.dir.join(&name), &content).expect("room");
        for options in ["ro", "rw"] {
            let pause = Duration::from_micros(random.below(30_000));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(pause);
                    daemon_of(&volume.device).map(|daemon| kill_process(daemon, Signal::KILL));
                });
                mount.remount(options);
            });
            statvfs(&mount.dir).expect("the mount is served");
            assert!(fs::read(mount.dir.join(&name)).expect("the file") == content);
        }
    }
    wait_until("a daemon runs", || daemon_of(&volume.device).is_some());
    mount.unmount();
}
