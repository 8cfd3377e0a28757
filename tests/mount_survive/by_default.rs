//! Mounts that mount(8) makes survive by default: it calls the program by the name `mount.sfs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, kill_process};
use sfs_testkit::wait_until;

use super::harness::{TestVolume, can_mount, daemon_of, sfs_ctl_stat};
use super::{SFS_MOUNT, SurvivingMount};

/// Words of `sfs-ctl stat -v` for a mount that survives.
const SURVIVES: &str = "for -o survive";

/// Makes the name by which mount(8) finds the program.
fn helper(volume: &TestVolume) -> PathBuf {
    let path = volume.scratch.path().join("mount.sfs");
    symlink(SFS_MOUNT, &path).expect("a link");
    path
}

/// Words before the reason why a mount does not survive.
const DOES_NOT: &str = "the mount does not survive its daemon: ";

fn said_of(mount: &SurvivingMount<'_>) -> String {
    let stat = sfs_ctl_stat(&mount.dir, &["-v"]);
    String::from_utf8_lossy(&stat.stdout).into_owned()
}

fn survives(mount: &SurvivingMount<'_>) -> bool {
    said_of(mount).contains(SURVIVES)
}

#[test]
fn mounts_of_fstab_survive_by_default() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    // Kernels that do not send requests again are not used for it by default.
    let Some(asked) = SurvivingMount::new(&volume) else { return };
    asked.unmount();
    let helper = helper(&volume);
    let mount = SurvivingMount::with_program(&helper, &volume, &["-o", "rw,nosuid"]);
    assert!(survives(&mount));
    fs::write(mount.dir.join("file"), "content").expect("room");
    for _ in 0..2 {
        mount.kill();
        assert_eq!(fs::read(mount.dir.join("file")).expect("the file"), b"content");
    }
    assert!(survives(&mount), "the next daemon knows");
    mount.unmount();
    let mount = SurvivingMount::with_program(&helper, &volume, &["-o", "nosurvive"]);
    assert!(!survives(&mount), "it is switched off");
    kill_process(mount.daemon(), Signal::KILL).expect("the daemon runs");
    wait_until("no other daemon is started", || daemon_of(&volume.device).is_none());
    fs::read(mount.dir.join("file")).expect_err("nobody serves the mount");
}

#[test]
fn whatever_prevents_it_switches_the_default_off() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let helper = helper(&volume);
    for (options, reason) in [
        ("ro", "nothing is changed"),
        ("sync", "sync and dirsync"),
        ("nosandbox", "there is no monitor"),
        ("writeback=off", "nowriteback"),
    ] {
        let mount = SurvivingMount::with_program(&helper, &volume, &["-o", options]);
        let said = said_of(&mount);
        assert!(!survives(&mount) && said.contains(DOES_NOT), "{options}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
        mount.unmount();
    }
    // Its records would be a longer file, and the signal of the limit would end the daemon.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 2000000; exec \"$@\"", "sh"]).arg(&helper);
    let mounted = limited.arg(&volume.device).arg(&volume.dir).status();
    assert!(mounted.expect("sh runs").success());
    let stat = sfs_ctl_stat(&volume.dir, &["-v"]);
    let said = String::from_utf8_lossy(&stat.stdout);
    assert!(said.contains(DOES_NOT), "{said}");
    volume.unmount_and_check();
    let mount = SurvivingMount::with(&volume, &[]);
    assert!(!survives(&mount), "a mount by the program itself does not ask for it");
    mount.unmount();
}
