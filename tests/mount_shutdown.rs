//! The ioctl(2) that shuts a volume down: what is left is what a crash leaves.

#[expect(dead_code, reason = "every test program uses a part of it")]
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
    CACHES, Random, Volume, can_mount, copy_program, sfs_ctl_stat, sfs_umount_unused, stderr,
    transport,
};
use rustix::fs::syncfs;

const SHUTDOWN: libc::Ioctl = 0x8004_587d;

/// Nothing becomes durable by itself but after a pause.
const LAZY: &str = "nowriteback,commit=3600,checkpoint=3600";

/// Shorter than the pause after which what waits is written out.
const NO_PAUSE: Duration = Duration::from_millis(300);

/// The file that a child process asks to be shut down.
const CHILD: &str = "SFS_TEST_SHUTDOWN";

/// Asks for it; `flags` is where the number is.
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
        eprintln!("skipped: fuser does not say where an ioctl's argument is");
    }
    can_mount() && can
}

#[test]
fn mounted_volumes_are_shut_down() {
    if !can_be_asked() {
        return;
    }
    for (flags, is_flushed) in [(0u32, true), (1, true), (2, false)] {
        // A machine that pauses is asked again.
        assert!((0..20).any(|_| shuts_down_in_time(flags, is_flushed)), "the machine is too busy");
    }
}

/// Shuts a volume down, and looks at what is left; false if the machine paused, so that this says nothing.
fn shuts_down_in_time(flags: u32, is_flushed: bool) -> bool {
    let volume = Volume::new("64M");
    let mount = volume.mount(LAZY);
    let (first, second) = (mount.dir.join("first"), mount.dir.join("second"));
    let content = Random(1).bytes(300_000);
    fs::write(&first, &content).expect("writing");
    File::open(&first).and_then(|file| file.sync_all()).expect("syncing");
    let writing = Instant::now();
    fs::write(&second, &content).expect("writing");
    // Through a directory, as others do it, and through a file.
    let through = if flags == 0 { &mount.dir } else { &first };
    ask(through, &raw const flags).expect("it is shut down");
    let is_quick = writing.elapsed() < NO_PAUSE;

    let refused = fs::write(mount.dir.join("third"), b"late").expect_err("it is shut down");
    assert_eq!(refused.raw_os_error(), Some(libc::EIO));
    assert!(fs::read(&first).expect("what is there can be read") == content);
    assert!(sfs_ctl_stat(&volume.dir, &[]).status.success());
    let output = sfs_umount_unused(&volume.dir);
    assert!(stderr(&output).contains("the last checkpoint failed"), "{}", stderr(&output));
    mount.wait_for_end();

    volume.check();
    let mount = volume.mount("");
    assert!(fs::read(&first).expect("it was synced") == content);
    let found = fs::read(&second);
    if is_flushed || is_quick {
        assert_eq!(found.is_ok_and(|found| found == content), is_flushed, "flags {flags}");
        assert_eq!(second.exists(), is_flushed, "flags {flags}");
    }
    assert!(!mount.dir.join("third").exists());
    mount.unmount();
    is_flushed || is_quick
}

/// What was not durable is lost; who syncs or writes does not take that for a change that was refused.
#[test]
fn mounted_files_that_a_shutdown_loses_sync_with_eio() {
    if !can_be_asked() {
        return;
    }
    for options in CACHES {
        let Some(volume) = Volume::on_loop("64M") else { return };
        let mount = volume.mount(options);
        let [synced, waiting] = ["synced", "waiting"].map(|name| {
            let file = File::create(mount.dir.join(name)).expect("creating");
            file.write_all_at(&[1; 100_000], 0).expect("writing");
            file
        });
        synced.sync_all().expect("it is not yet shut down");
        ask(&mount.dir, &2u32).expect("it is shut down");
        let dir = File::open(&mount.dir).expect("opening");
        let code = |outcome: io::Result<()>| outcome.err().and_then(|error| error.raw_os_error());
        for file in [&waiting, &synced, &dir, &waiting] {
            assert_eq!(code(file.sync_all()), Some(libc::EIO), "{options}");
            assert_eq!(code(file.sync_data()), Some(libc::EIO), "{options}");
        }
        assert_eq!(code(syncfs(&dir).map_err(Into::into)), Some(libc::EIO), "{options}");
        // The kernel's cache may take it.
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
        let refused = ask(path.as_ref(), &2u32).expect_err("not for everybody");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{refused}");
        return;
    }
    if !can_be_asked() {
        return;
    }
    let volume = Volume::new("64M");
    let mount = volume.mount("");
    let file = mount.dir.join("file");
    fs::write(&file, b"content").expect("writing");
    let code = |error: io::Error| error.raw_os_error();
    assert_eq!(code(ask(&file, &3u32).expect_err("no such flag")), Some(libc::EINVAL));
    assert_eq!(code(ask(&file, ptr::null()).expect_err("no address")), Some(libc::EFAULT));
    // Nobody, and root of a namespace of his own.
    let test = ["--exact", "mounted_volumes_go_on_when_a_shutdown_is_refused"];
    let own = env::current_exe().expect("this is one");
    let nobody = scratch_copy(&volume, &own);
    let mut plain = Command::new(&nobody);
    plain.uid(65534).gid(65534);
    let mut namespaced = Command::new("unshare");
    namespaced.args(["--user", "--map-root-user"]).arg(&own);
    for mut command in [plain, namespaced] {
        let output = command.args(test).env(CHILD, &file).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    fs::write(&file, b"other content").expect("it goes on");
    mount.unmount();
    volume.check();
}

/// This program where everybody can run it.
fn scratch_copy(volume: &Volume, own: &Path) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let dir = volume.scratch.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let copy = dir.join("test");
    copy_program(own, &copy);
    copy
}
