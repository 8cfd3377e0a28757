//! The limits of a daemon that serves a mount, as the kernel states them, and what still works inside.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::{Mount, TestVolume, can_mount, sfs_ctl_stat, sfs_mount, stderr};
use rustix::process::{Pid, Signal, kill_process};
use sfs_testkit::{mount_table::is_mounted, wait_until};

/// CAP_DAC_OVERRIDE, as a bit of a set.
const DAC_OVERRIDE: u64 = 1 << 1;

/// CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE and CAP_SYS_ADMIN.
const OF_MONITOR: u64 = 1 << 2 | 1 << 19 | 1 << 21;

/// Limits of one thread: its sets of capabilities, `NoNewPrivs`, and the mode of seccomp.
#[derive(Debug, PartialEq, Eq)]
struct ThreadLimits {
    effective: u64,
    permitted: u64,
    bounding: u64,
    no_new_privileges: u64,
    seccomp: u64,
}

fn limits_of(status: &Path) -> ThreadLimits {
    let text = fs::read_to_string(status).expect("the thread runs");
    let number = |name: &str, radix| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        u64::from_str_radix(value.trim(), radix).expect("a number")
    };
    ThreadLimits {
        effective: number("CapEff:", 16),
        permitted: number("CapPrm:", 16),
        bounding: number("CapBnd:", 16),
        no_new_privileges: number("NoNewPrivs:", 10),
        seccomp: number("Seccomp:", 10),
    }
}

/// Returns the limits of all threads of `process`.
fn limits_of_threads(process: Pid) -> Vec<ThreadLimits> {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let tasks = fs::read_dir(tasks).expect("the daemon runs").flatten();
    tasks.map(|task| limits_of(&task.path().join("status"))).collect()
}

/// Returns the child of the daemon.
fn monitor_of(mount: &Mount) -> Option<Pid> {
    let daemon = mount.daemon.as_raw_nonzero();
    let path = format!("/proc/{daemon}/task/{daemon}/children");
    let children = fs::read_to_string(path).expect("the daemon runs");
    let child = children.split_whitespace().next()?.parse().expect("a number");
    Pid::from_raw(child)
}

/// Returns what `sfs-ctl stat` says of the sandbox.
fn said(mount: &Mount) -> serde_json::Value {
    let output = sfs_ctl_stat(&mount.dir, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["sandbox"].clone()
}

#[test]
fn every_thread_of_the_daemon_is_limited() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("rw");
    fs::write(mount.dir.join("file"), "text").expect("room");
    let threads = limits_of_threads(mount.daemon);
    assert!(threads.len() > 4, "{threads:?}");
    let expected =
        ThreadLimits { effective: 0, permitted: 0, bounding: 0, no_new_privileges: 1, seccomp: 2 };
    assert!(threads.iter().all(|limits| *limits == expected), "{threads:?}");
    let monitor = monitor_of(&mount).expect("a monitor");
    let limits = limits_of(Path::new(&format!("/proc/{}/status", monitor.as_raw_nonzero())));
    assert_eq!((limits.effective, limits.permitted), (OF_MONITOR, OF_MONITOR));
    // A program of an upgrade that it starts has what this process may have.
    assert_eq!(limits.bounding, limits_of(Path::new("/proc/self/status")).bounding);
    let name = fs::read_to_string(format!("/proc/{}/comm", monitor.as_raw_nonzero()));
    assert_eq!(name.expect("the monitor runs").trim(), "sfs-monitor");
    let report = said(&mount);
    for limit in ["wanted", "capabilities", "no_new_privileges", "files", "system_calls"] {
        assert_eq!(report[limit], true, "{report}");
    }
    // The monitor ends with the daemon.
    mount.unmount();
    let gone = || !Path::new(&format!("/proc/{}", monitor.as_raw_nonzero())).exists();
    wait_until("the monitor ends", gone);
}

/// Rings are made before the sandbox, which allows none later, and used inside.
#[test]
fn scattered_reads_are_made_together_inside() {
    const BLOCKS: usize = 2000;
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if !can_mount() || setting.is_ok_and(|setting| setting.trim() != "0") {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("rw");
    let path = mount.dir.join("file");
    let file = fs::File::create(&path).expect("room");
    // Each second block is written once more, far from its neighbours.
    let write = |no: usize, byte: u8| {
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte; 4096], no as u64 * 4096)
    };
    for no in 0..BLOCKS {
        write(no, 1).expect("room");
    }
    file.sync_all().expect("the device works");
    for no in (0..BLOCKS).step_by(2) {
        write(no, 2).expect("room");
    }
    drop(file);
    mount.unmount();
    let mount = volume.mount("rw");
    let report = |mount: &Mount| -> serde_json::Value {
        let output = sfs_ctl_stat(&mount.dir, &["--json"]);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let before = report(&mount)["reads"]["ring_requests"].as_u64().expect("a number");
    let content = fs::read(mount.dir.join("file")).expect("readable");
    let expected = (0..BLOCKS).flat_map(|no| [2 - (no % 2) as u8; 4096]);
    assert!(content.iter().copied().eq(expected));
    let report = report(&mount);
    assert_eq!(report["sandbox"]["system_calls"], true, "{report}");
    let reads = &report["reads"];
    let is_direct = !reads["bytes_per_second"].is_null();
    let after = reads["ring_requests"].as_u64().expect("a number");
    assert!(after > before || !is_direct, "{before}: {reads}");
}

#[test]
fn nosandbox_leaves_the_daemon_as_it_was() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("nosandbox");
    let own = limits_of(Path::new("/proc/self/status"));
    assert!(limits_of_threads(mount.daemon).iter().all(|limits| *limits == own));
    assert_eq!(monitor_of(&mount), None);
    assert_eq!(said(&mount)["wanted"], false);
    mount.signal(Signal::TERM);
    mount.wait_for_end();
    volume.check();
}

#[test]
fn a_mount_for_reading_can_become_one_for_writing() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    // An image of another user, which root opens only with a capability.
    let user = Some(65534);
    std::os::unix::fs::chown(&volume.device, user, user).expect("root");
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(&volume.device, mode).expect("root");
    let mount = volume.mount("ro");
    let threads = limits_of_threads(mount.daemon);
    let is_right = |limits: &ThreadLimits| {
        (limits.effective, limits.bounding, limits.seccomp) == (DAC_OVERRIDE, 0, 2)
    };
    assert!(threads.iter().all(is_right), "{threads:?}");
    let output = sfs_mount(&volume.device, &volume.dir, "remount,rw");
    assert!(output.status.success(), "{}", stderr(&output));
    fs::write(mount.dir.join("file"), "text").expect("the mount is writable");
    mount.unmount();
    volume.check();
}

#[test]
fn without_the_monitor_the_mount_serves_on() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("rw");
    kill_process(monitor_of(&mount).expect("a monitor"), Signal::KILL).expect("it runs");
    fs::write(mount.dir.join("file"), "text").expect("the daemon serves");
    // SIGTERM cannot unmount any more, and must not end the daemon.
    mount.signal(Signal::TERM);
    assert_eq!(fs::read(mount.dir.join("file")).expect("the daemon serves"), b"text");
    assert!(is_mounted(&volume.dir));
    let status = Command::new("umount").arg(&volume.dir).status().expect("umount runs");
    assert!(status.success());
    mount.wait_for_end();
    volume.check();
}
