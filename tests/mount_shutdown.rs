//! The ioctl(2) that shuts a volume down: the image afterwards is as after a crash.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, ptr};

use harness::{
    CACHES, TestVolume, can_mount, copy_program, sfs_ctl_stat, sfs_umount_unused, stderr, transport,
};
use rustix::fs::syncfs;
use sfs_testkit::SeededRng;

const SHUTDOWN: libc::Ioctl = 0x8004_587d;

/// Mount options with which data becomes durable by itself only after a pause.
const LAZY: &str = "nowriteback,commit=3600,checkpoint=3600";

/// Time limit of a round, shorter than the pause after which dirty data is written out.
const NO_PAUSE: Duration = Duration::from_millis(300);

/// Environment variable with the path of the file on which a child process issues the shutdown.
const CHILD: &str = "SFS_TEST_SHUTDOWN";

/// Issues the shutdown; `flags` is the address of the argument.
fn ask(path: &Path, flags: *const u32) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the descriptor is open, and the address only goes to the kernel and the daemon, which
    // check it.
    match unsafe { libc::ioctl(file.as_raw_fd(), SHUTDOWN, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn can_be_asked() -> bool {
    let can = transport() != "fuser";
    if !can {
        eprintln!("skipped: fuser does not pass the address of an ioctl's argument");
    }
    can_mount() && can
}

#[test]
fn mounted_volumes_after_a_shutdown_are_as_after_a_crash() {
    if !can_be_asked() {
        return;
    }
    for (flags, is_flushed) in [(0u32, true), (1, true), (2, false)] {
        // A round in which the machine paused is repeated.
        assert!((0..20).any(|_| shuts_down_in_time(flags, is_flushed)), "the machine is too busy");
    }
}

/// Shuts a volume down and checks the result; returns `false` if the machine paused, which makes
/// the round meaningless.
fn shuts_down_in_time(flags: u32, is_flushed: bool) -> bool {
    let volume = TestVolume::new("64M");
    let mount = volume.mount(LAZY);
    let (first, second) = (mount.dir.join("first"), mount.dir.join("second"));
    let content = SeededRng::new(1).bytes(300_000);
    fs::write(&first, &content).expect("writing");
    File::open(&first).and_then(|file| file.sync_all()).expect("syncing");
    let writing = Instant::now();
    fs::write(&second, &content).expect("writing");
    // The shutdown is issued through a directory, as other tools do, or through a file.
    let through = if flags == 0 { &mount.dir } else { &first };
    ask(through, &raw const flags).expect("the volume is shut down");
    let is_quick = writing.elapsed() < NO_PAUSE;

    let refused = fs::write(mount.dir.join("third"), b"late").expect_err("the volume is shut down");
    assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    assert!(fs::read(&first).expect("synced data can be read") == content);
    assert!(sfs_ctl_stat(&volume.dir, &[]).status.success());
    let output = sfs_umount_unused(&volume.dir);
    assert!(stderr(&output).contains("the last checkpoint failed"), "{}", stderr(&output));
    mount.wait_for_end();

    volume.check();
    let mount = volume.mount("");
    assert!(fs::read(&first).expect("the file was synced") == content);
    let found = fs::read(&second);
    if is_flushed || is_quick {
        assert_eq!(found.is_ok_and(|found| found == content), is_flushed, "flags {flags}");
        assert_eq!(second.exists(), is_flushed, "flags {flags}");
    }
    assert!(!mount.dir.join("third").exists());
    mount.unmount();
    is_flushed || is_quick
}

/// Data that was not durable is lost; a later sync or write fails with EIO, not with the error of a
/// refused change.
#[test]
fn mounted_files_lost_by_a_shutdown_sync_with_eio() {
    if !can_be_asked() {
        return;
    }
    for options in CACHES {
        let Some(volume) = TestVolume::on_loop("64M") else { return };
        let mount = volume.mount(options);
        let [synced, waiting] = ["synced", "waiting"].map(|name| {
            let file = File::create(mount.dir.join(name)).expect("creating");
            file.write_all_at(&[1; 100_000], 0).expect("writing");
            file
        });
        synced.sync_all().expect("the volume is not yet shut down");
        ask(&mount.dir, &2u32).expect("the volume is shut down");
        let dir = File::open(&mount.dir).expect("opening");
        let code = |outcome: io::Result<()>| outcome.err().and_then(|error| error.raw_os_error());
        for file in [&waiting, &synced, &dir, &waiting] {
            assert_eq!(code(file.sync_all()), Some(libc::EIO), "{options}");
            assert_eq!(code(file.sync_data()), Some(libc::EIO), "{options}");
        }
        assert_eq!(code(syncfs(&dir).map_err(Into::into)), Some(libc::EIO), "{options}");
        // The kernel's cache may accept the write.
        let written = code(synced.write_all_at(b"late", 0));
        assert!(matches!(written, None | Some(libc::EIO)), "{options}: {written:?}");
        assert_eq!(code(synced.sync_all()), Some(libc::EIO), "{options}");
        assert_eq!(code(fs::remove_file(mount.dir.join("synced"))), Some(libc::EIO));
        drop((synced, waiting, dir));
        sfs_umount_unused(&volume.dir);
        mount.wait_for_end();
    }
}

#[test]
fn mounted_volumes_go_on_when_a_shutdown_is_refused() {
    if let Some(path) = env::var_os(CHILD) {
        let refused = ask(path.as_ref(), &2u32).expect_err("a user must not shut down");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{refused}");
        return;
    }
    if !can_be_asked() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let file = mount.dir.join("file");
    fs::write(&file, b"content").expect("writing");
    let code = |error: io::Error| error.raw_os_error();
    assert_eq!(code(ask(&file, &3u32).expect_err("no such flag")), Some(libc::EINVAL));
    assert_eq!(code(ask(&file, ptr::null()).expect_err("no address")), Some(libc::EFAULT));
    // Neither an ordinary user nor root of another user namespace may shut down.
    let test = ["--exact", "mounted_volumes_go_on_when_a_shutdown_is_refused"];
    let own = env::current_exe().expect("the test has a path");
    let nobody = scratch_copy(&volume, &own);
    let mut plain = Command::new(&nobody);
    plain.uid(65534).gid(65534);
    let mut namespaced = Command::new("unshare");
    namespaced.args(["--user", "--map-root-user"]).arg(&own);
    for mut command in [plain, namespaced] {
        let output = command.args(test).env(CHILD, &file).output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    fs::write(&file, b"other content").expect("the volume goes on");
    mount.unmount();
    volume.check();
}

/// Copies this program to a place where every user can run it.
fn scratch_copy(volume: &TestVolume, own: &Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let dir = volume.scratch.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
    let copy = dir.join("test");
    copy_program(own, &copy);
    copy
}
