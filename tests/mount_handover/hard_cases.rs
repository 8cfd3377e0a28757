//! Handovers that meet a remount, a signal, another format, or a second failure.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use sfs_testkit::mount_table::is_mounted;
use sfs_testkit::wait_until;

use super::UpgradedMount;
use super::harness::{TestVolume, can_mount, daemon_of, stderr};
use super::programs::{self, script};

/// The background rests after a remount to read-only, until the next change.
#[test]
fn a_mount_that_was_read_only_for_some_time_is_written_after_an_upgrade() {
    if !can_mount() {
        return;
    }
    for data_layout in ["log", "greedy-space"] {
        let volume = match data_layout {
            "log" => TestVolume::new("16M"),
            layout => TestVolume::placed("16M", layout),
        };
        let mount = UpgradedMount::of(&volume, "rw");
        mount.is_served("before");
        mount.remount("remount,ro");
        mount.is_refused(&[], "was made read-only by a remount");
        mount.remount("remount,rw");
        mount.upgrade();
        mount.is_served("upgraded without a change since the remount");
        mount.unmount();
        let mount = UpgradedMount::of(&volume, "ro");
        mount.remount("remount,rw");
        mount.upgrade();
        mount.is_served("upgraded without a change since the mount");
        mount.unmount();
    }
}

/// The unmount waits for an answer that nobody gives in the pause: it must not keep the program before from going on.
#[test]
fn a_signal_in_the_pause_ends_the_handover_and_the_mount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::on_loop("64M").unwrap_or_else(|| TestVolume::new("64M"));
    let (program, mount) = UpgradedMount::with_copy(&volume);
    mount.is_served("before");
    let waiting = volume.scratch.path().join("waiting");
    let steps = [
        programs::hello(programs::PROTOCOL, "9.9.9"),
        programs::take_state(),
        format!("touch {}", waiting.display()),
        "exec sleep 1000".into(),
    ];
    program.replace_by(script(&steps.join("; ")).as_bytes());
    let daemon = mount.daemon();
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| mount.try_upgrade(&["--timeout", "2"]));
        wait_until("the pause has begun", || waiting.exists());
        kill_process(daemon, Signal::TERM).expect("the daemon runs");
        let output = upgrade.join().expect("no panic");
        assert!(!output.status.success(), "{}", stderr(&output));
    });
    wait_until("the mount ends", || !is_mounted(&volume.dir));
    wait_until("the daemon ends", || daemon_of(&volume.device).is_none());
    volume.check();
}

/// The program before could not read a volume whose format was raised.
#[test]
fn a_program_with_another_format_does_not_take_a_mount_over() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let (program, mount) = UpgradedMount::with_copy(&volume);
    mount.is_served("before");
    let saved = programs::superblocks(&volume.device);
    let older = volume.scratch.path().join("older");
    let put = programs::put_older_format(&volume.device, &saved, &older);
    program.replace_by(script(&put).as_bytes());
    let before = mount.daemon();
    let output = mount.try_upgrade(&[]);
    programs::restore(&volume.device, &saved);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("would raise the volume's format"), "{said}");
    assert_eq!(mount.daemon(), before);
    mount.is_served("after the refusal");
    mount.unmount();
}

/// Neither program can go on: the mount is taken away, and whoever waits for its end gets an answer.
#[test]
fn a_mount_that_no_program_can_serve_is_taken_away() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let (program, mount) = UpgradedMount::with_copy(&volume);
    mount.is_served("before");
    let saved = programs::superblocks(&volume.device);
    let steps = [
        programs::hello(programs::PROTOCOL, "9.9.9"),
        programs::take_state(),
        programs::ready(),
        "head -c 12 <&0 >/dev/null".into(),
        programs::damage(&volume.device),
    ];
    program.replace_by(script(&steps.join("\n")).as_bytes());
    let output = mount.try_upgrade(&[]);
    let said = stderr(&output);
    assert!(
        !output.status.success() && said.contains("no program serves the mount any more"),
        "{said}"
    );
    wait_until("the mount is gone", || !is_mounted(&volume.dir));
    wait_until("the daemon ends", || daemon_of(&volume.device).is_none());
    assert!(fs::read_dir(&volume.dir).expect("the directory below").next().is_none());
    programs::restore(&volume.device, &saved);
    volume.check();
}

/// A program that others could replace is not run as root, and one on a FIFO holds nobody up.
#[test]
fn root_runs_no_program_of_others() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let volume = TestVolume::new("64M");
    let (program, mount) = UpgradedMount::with_copy(&volume);
    let mode = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).expect("a mode");
    };
    mode(&program.path, 0o757);
    mount.fails_to_upgrade(&[], "users other than root can change");
    mode(&program.path, 0o755);
    std::os::unix::fs::chown(&program.path, Some(1000), None).expect("root may");
    mount.fails_to_upgrade(&[], "users other than root can change");
    program.remove();
    let fifo = Command::new("mkfifo").args(["-m", "755"]).arg(&program.path).status();
    assert!(fifo.expect("mkfifo runs").success());
    mount.fails_to_upgrade(&[], "cannot start the installed sfs-mount");
    program.restore();
    assert!(mount.upgrade() < Duration::from_secs(60));
    mount.unmount();
}
