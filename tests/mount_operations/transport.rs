//! Behaviour that depends on the transport of requests from the kernel.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};
use rustix::process::Pid;
use sfs_testkit::wait_until;

use super::harness::{
    TestVolume, can_mount, daemon_of, sfs_ctl_stat, stderr, transport, transport_used,
};
use super::{SIZE, expect_errno, on_volumes};

/// User ID of "nobody".
const NOBODY: u32 = 65_534;

/// Returns whether SFS reads requests itself, without the `fuser` crate.
fn is_own() -> bool {
    transport() != "fuser"
}

#[test]
fn mounted_transports_are_shown_by_stat() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let output = sfs_ctl_stat(&volume.dir, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let numbers: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(numbers["transport"]["name"], transport_used());
    assert!(numbers["transport"]["reason"].is_string());
    mount.unmount();
}

/// A directory in the kernel's cache is listed without a request to the daemon.
#[test]
fn mounted_directories_are_listed_by_the_kernel() {
    if !can_mount() {
        return;
    }
    const TIMES: u64 = 2000;
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    fs::write(mount.dir.join("file"), "content").expect("writing");
    let list = || assert_eq!(fs::read_dir(&mount.dir).expect("a directory").count(), 1);
    list();
    let daemon = daemon_of(&volume.device).expect("the daemon runs");
    let before = waits(daemon);
    (0..TIMES).for_each(|_| list());
    let meanwhile = waits(daemon) - before;
    assert!(meanwhile < TIMES / 2, "the daemon has waited {meanwhile} times for the next request");
    mount.unmount();
}

/// A file in the kernel's cache cannot be opened for writing when no daemon will store the data.
#[test]
fn mounted_files_are_not_opened_when_the_daemon_has_died() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let path = mount.dir.join("file");
    fs::write(&path, "content").expect("writing");
    assert_eq!(fs::read(&path).expect("reading"), b"content");
    mount.kill();
    // The kernel cancels requests to the rings of a dead daemon until the rings are removed.
    let is_canceled = || {
        let opened = File::open(&path);
        opened.is_err_and(|error| error.raw_os_error() == Some(libc::ECANCELED))
    };
    wait_until("the rings are gone", || !is_canceled());
    for options in [File::options().read(true), File::options().append(true)] {
        let refused = options.open(&path).expect_err("no daemon answers").raw_os_error();
        assert!([Some(libc::ENOTCONN), Some(libc::ECONNABORTED)].contains(&refused), "{refused:?}");
    }
    mount.detach();
}

/// Returns the number of times that threads of a process have slept: at least once per request.
fn waits(process: Pid) -> u64 {
    let tasks =
        fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).expect("a process");
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    let switches = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a count")
    };
    tasks.flatten().filter_map(status).map(switches).sum()
}

#[test]
fn mounted_unnamed_files_can_be_linked() {
    on_volumes(files_without_names);
}

/// A file that is created without a name stays without one, or is linked.
fn files_without_names(dir: &Path) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let new = |flags: OFlags| open(dir, flags, Mode::from_raw_mode(0o640));
    if !is_own() {
        return expect_errno(new(flags), libc::EOPNOTSUPP);
    }
    let name = |file: &File, name: &str| linkat(file, "", CWD, dir.join(name), AtFlags::EMPTY_PATH);
    let file = File::from(new(flags).expect("a file"));
    file.write_all_at(&[7; 10_000], 0).expect("writing");
    assert_eq!(file.metadata().expect("the file is open").nlink(), 0);
    name(&file, "named").expect("the first name of the file");
    name(&file, "twice").expect("the second name of the file");
    assert_eq!(file.metadata().expect("the file is open").nlink(), 2);
    assert!(fs::read(dir.join("named")).expect("reading") == [7; 10_000]);

    let nameless = File::from(new(flags).expect("a file"));
    nameless.write_all_at(&[8; 100_000], 0).expect("writing");
    nameless.sync_all().expect("syncing");
    let exclusive = File::from(new(flags | OFlags::EXCL).expect("a file"));
    expect_errno(name(&exclusive, "exclusive"), libc::ENOENT);
    let removed = File::create(dir.join("removed")).expect("a file");
    fs::remove_file(dir.join("removed")).expect("removing");
    expect_errno(name(&removed, "again"), libc::ENOENT);
    assert_eq!(fs::read_dir(dir).expect("a directory").count(), 2);
}

#[test]
fn mounted_birth_times_never_change() {
    on_volumes(births);
}

/// The birth time survives all changes of a file.
fn births(dir: &Path) {
    if !is_own() {
        return;
    }
    let path = dir.join("file");
    fs::write(&path, "content").expect("writing");
    let born = fs::metadata(&path).expect("the entry exists").created().expect("a time of birth");
    let file = File::options().write(true).open(&path).expect("the entry exists");
    file.set_modified(std::time::UNIX_EPOCH).expect("setting");
    file.write_all_at(b"other", 0).expect("writing");
    let now = fs::metadata(&path).expect("the entry exists");
    assert_eq!(now.created().expect("a time of birth"), born);
    assert!(born.elapsed().expect("the birth is in the past").as_secs() < 600);
}

#[test]
fn mounted_set_id_bits_are_dropped_as_by_the_kernel() {
    on_volumes(privileges);
}

/// Set-uid, and set-gid where the group may execute, are dropped as on the kernel's filesystems.
fn privileges(dir: &Path) {
    type Change = fn(&Path, u32);
    let by_shell: [(&str, Change); 3] = [
        ("written", |path, user| shell(path, user, "printf x >> \"$0\"")),
        ("truncated", |path, user| shell(path, user, "truncate -s 10 \"$0\"")),
        ("opened", |path, user| shell(path, user, ": > \"$0\"")),
    ];
    for (before, gone) in [(0o6775, 0o775), (0o6765, 0o2765), (0o2765, 0o2765)] {
        let check = |what: &str, change: Change, user: u32, after: u32| {
            let path = dir.join(format!("{what}-{before:o}-{user}"));
            fs::write(&path, [1; 5000]).expect("writing");
            chown(&path, Some(NOBODY), Some(NOBODY)).expect("a change of owner");
            fs::set_permissions(&path, Permissions::from_mode(before)).expect("setting");
            change(&path, user);
            let mode = fs::metadata(&path).expect("the entry exists").mode() & 0o7777;
            assert_eq!(mode, after, "{what} by {user}: {before:o} became {mode:o}");
        };
        for (what, change) in by_shell {
            check(what, change, 0, before);
            check(what, change, NOBODY, gone);
        }
        check("owned", |path, _| chown(path, Some(NOBODY), None).expect("giving"), 0, gone);
        check("touched", |path, _| chown(path, None, None).expect("giving"), 0, gone);
    }
}

/// Runs `script` as `user` on the file `path`.
fn shell(path: &Path, user: u32, script: &str) {
    let mut command = Command::new("sh");
    let status = command.args(["-c", script]).arg(path).uid(user).gid(user).status();
    assert!(status.expect("a shell").success(), "{script}");
}
