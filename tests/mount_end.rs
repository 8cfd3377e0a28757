//! Unmounts of all kinds, and the data on the device after them.

#[path = "mount_end/earlier_daemons.rs"]
mod earlier_daemons;
#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::{self, BufRead as _};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use harness::{
    CACHES, Mount, TestVolume, can_mount, sfs_ctl_stat, sfs_umount, sfs_umount_unused, stderr,
};
use rustix::fs::minor;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use sfs_testkit::{SeededRng, mount_table::is_mounted, wait_until};

const SIZE: &str = "64M";
const MOUNT: i32 = 32;

/// Asserts that the unmount itself failed, with one line that gives `reason`.
fn expect_failure(output: &Output, reason: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(MOUNT), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("sfs-umount: ") && said.contains(reason), "'{reason}': {said}");
}

/// Returns the first line that `program` prints to its standard error, which is piped.
fn first_line(program: &mut Child) -> String {
    let mut line = String::new();
    let said = program.stderr.take().expect("piped");
    io::BufReader::new(said).read_line(&mut line).expect("a line");
    line
}

/// A filesystem in memory that fills up soon.
struct Small(PathBuf);

impl Small {
    fn new(scratch: &Path) -> Self {
        let dir = scratch.join("small");
        fs::create_dir(&dir).expect("a directory");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&dir);
        assert!(command.status().expect("mount runs").success());
        Self(dir)
    }

    /// Copies the image of `volume` to this filesystem, and makes `volume` use the copy.
    fn take(&self, volume: &mut TestVolume) {
        let image = self.0.join("image");
        let mut copy = Command::new("cp");
        copy.arg("--sparse=always").args([&volume.device, &image]);
        assert!(copy.status().expect("cp runs").success());
        volume.device = image;
    }

    /// Fills this filesystem, so that no new data fits.
    fn fill(&self) {
        let _ = fs::write(self.0.join("rest"), vec![1; 8 << 20]);
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn mounted_volumes_whose_device_is_full_are_named_at_unmount() {
    if !can_mount() {
        return;
    }
    let mut volume = TestVolume::new(SIZE);
    let small = Small::new(volume.scratch.path());
    small.take(&mut volume);
    let mount = volume.mount("");
    fs::write(mount.dir.join("file"), SeededRng::new(5).bytes(1 << 20))
        .expect("the data is in memory");
    // The device is full before the data is written out.
    small.fill();
    let said = format!("unmounted, but {}: the last checkpoint failed", volume.device.display());
    expect_failure(&sfs_umount_unused(&volume.dir), &said);
    assert!(!is_mounted(&volume.dir));
    mount.wait_for_end();
}

/// Returns the error number of an operation that has to fail.
fn refusal<T>(outcome: io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// A sync after a loss fails with EIO, not with the error of a refused change.
#[test]
fn mounted_files_whose_data_is_lost_sync_with_eio() {
    if !can_mount() {
        return;
    }
    for options in CACHES {
        let mut volume = TestVolume::new(SIZE);
        let small = Small::new(volume.scratch.path());
        small.take(&mut volume);
        let mount = volume.mount(options);
        let [synced, waiting] = ["synced", "waiting"].map(|name| {
            let file = File::create(mount.dir.join(name)).expect("creating");
            file.write_all_at(&[1; 100_000], 0).expect("writing");
            file
        });
        synced.sync_all().expect("there is room");
        let more = SeededRng::new(5).bytes(1 << 20);
        waiting.write_all_at(&more, 0).expect("the data is in memory");
        small.fill();
        let dir = File::open(&mount.dir).expect("opening");
        for file in [&waiting, &synced, &dir, &waiting] {
            assert_eq!(refusal(file.sync_all()), Some(libc::EIO), "{options}");
            assert_eq!(refusal(file.sync_data()), Some(libc::EIO), "{options}");
        }
        assert_eq!(refusal(File::create(mount.dir.join("new"))), Some(libc::EROFS));
        let mode = fs::Permissions::from_mode(0o600);
        assert_eq!(refusal(synced.set_permissions(mode)), Some(libc::EROFS));
        // The kernel's cache may accept data that SFS refuses; that data is lost as well.
        let written = synced.write_all_at(b"late", 0);
        assert!(matches!(refusal(written), None | Some(libc::EROFS)), "{options}");
        assert_eq!(refusal(synced.sync_all()), Some(libc::EIO), "{options}");
        drop((synced, waiting, dir));
        sfs_umount_unused(&volume.dir);
        mount.wait_for_end();
    }
}

#[test]
fn mounted_volumes_report_that_the_unmount_waits() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    mount.signal(Signal::STOP);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-umount"));
    command.arg("-v").arg(&volume.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waiting = command.spawn().expect("sfs-umount runs");
    // The first line reports that the unmount waits.
    let line = first_line(&mut waiting);
    assert!(line.contains("waiting until everything is on"), "{line}");
    assert!(!is_mounted(&volume.dir));
    mount.signal(Signal::CONT);
    let output = waiting.wait_with_output().expect("the program ends");
    assert!(output.status.success());
    let steps = String::from_utf8(output.stdout).expect("UTF-8");
    let expected = [": unmounted", "waiting for", "does not answer", ": its daemon has released"];
    assert!(expected.iter().all(|step| steps.contains(step)), "{steps}");
    mount.wait_for_end();
    volume.check();
}

#[test]
fn mounted_volumes_in_use_are_detached_when_asked() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let file = fs::File::create(mount.dir.join("file")).expect("a file");
    let lazily = Command::new(env!("CARGO_BIN_EXE_sfs-umount"));
    let output = { lazily }.args(["-l", "-n", "-t", "fuse.sfs"]).arg(&volume.dir).output();
    assert!(output.expect("sfs-umount runs").status.success());
    assert!(!is_mounted(&volume.dir));
    drop(file);
    mount.wait_for_end();
    volume.check();
}

#[test]
fn mounted_volumes_work_without_a_control_socket() {
    if !can_mount() {
        return;
    }
    // A namespace in which no file can be created in /run.
    let volume = TestVolume::new(SIZE);
    let (mount, unmount) = (env!("CARGO_BIN_EXE_sfs-mount"), env!("CARGO_BIN_EXE_sfs-umount"));
    let script = r#"
        mount -t tmpfs -o ro tmpfs /run || { echo "skipped: no tmpfs"; exit 0; }
        "$1" "$3" "$4" && echo content > "$4/file" && "$2" -v "$4"
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh", mount, unmount])
        .args([&volume.device, &volume.dir])
        .output();
    let Ok(output) = output else { return eprintln!("skipped: unshare is not installed") };
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("skipped: ") || stderr(&output).contains("unshare") {
        return eprintln!("skipped: {said}{}", stderr(&output));
    }
    assert!(output.status.success(), "{said}{}", stderr(&output));
    assert!(said.contains("no control socket of its daemon"), "{said}");
    assert!(said.contains("its daemon has released"), "{said}");
    volume.check();
}

/// SIGTERM unmounts the daemon's own mount, not a later mount at the same path.
#[test]
fn mounted_volumes_do_not_unmount_a_later_mount_on_sigterm() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let file = File::create(mount.dir.join("held")).expect("a file");
    unmount(&mount.dir, UnmountFlags::DETACH).expect("the volume is mounted");
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "tmpfs"]).arg(&mount.dir);
    assert!(command.status().expect("mount runs").success());
    fs::write(mount.dir.join("other"), "content").expect("writing");
    mount.signal(Signal::TERM);
    // The open file keeps the daemon alive; the daemon has had time to handle the signal.
    for _ in 0..20 {
        assert_eq!(fs::read(mount.dir.join("other")).expect("the file stays"), b"content");
        thread::sleep(Duration::from_millis(5));
    }
    drop(file);
    unmount(&mount.dir, UnmountFlags::DETACH).expect("the mount stayed");
    mount.wait_for_end();
    volume.check();
}

/// A mount whose FUSE connection was aborted has no server any more, and can be unmounted.
#[test]
fn mounted_volumes_with_an_aborted_connection_are_unmounted() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let connections = volume.scratch.path().join("connections");
    fs::create_dir(&connections).expect("a directory");
    let mut command = Command::new("mount");
    command.args(["-t", "fusectl", "fusectl"]).arg(&connections);
    if !command.status().expect("mount runs").success() {
        return eprintln!("skipped: no fusectl");
    }
    let mount = volume.mount("");
    fs::write(mount.dir.join("file"), "content").expect("writing");
    let number = minor(fs::metadata(&mount.dir).expect("the mount answers").dev());
    let abort = fs::write(connections.join(number.to_string()).join("abort"), "1");
    unmount(&connections, UnmountFlags::DETACH).expect("fusectl is mounted");
    abort.expect("root may abort the connection");
    mount.wait_for_end();
    volume.check();
}

/// A card that was pulled out has no device node any more, and another image may have got the old
/// name.
#[test]
fn mounted_volumes_whose_device_node_is_gone_are_unmounted() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    fs::write(mount.dir.join("file"), "content").expect("writing");
    let renamed = volume.scratch.path().join("renamed");
    fs::rename(&volume.device, &renamed).expect("renaming");
    let output = sfs_ctl_stat(&volume.dir, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let output = sfs_umount_unused(&volume.dir);
    assert!(output.status.success(), "{}", stderr(&output));
    mount.wait_for_end();
    TestVolume::existing(renamed).check();
}

#[test]
fn mounted_volumes_are_unmounted_by_their_device() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let output = sfs_umount_unused(&volume.device);
    assert!(output.status.success(), "{}", stderr(&output));
    mount.wait_for_end();
    let output = sfs_umount_unused(&volume.device);
    expect_failure(&output, "not mounted");
    volume.check();
}

#[test]
fn mounted_volumes_with_another_mount_point_are_named_at_once() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let other = bind_elsewhere(&volume, &mount);
    let begun = Instant::now();
    let output = sfs_umount_unused(&mount.dir);
    assert!(begun.elapsed() < Duration::from_secs(60), "{}", stderr(&output));
    let line = format!("is still mounted on {} and must not be removed", other.display());
    expect_failure(&output, &line);
    assert!(!is_mounted(&volume.dir) && is_mounted(&other));
    fs::write(other.join("file"), "content").expect("the daemon goes on");
    let output = sfs_umount_unused(&other);
    assert!(output.status.success(), "{}", stderr(&output));
    mount.wait_for_end();
    volume.check();
}

/// Makes the mount visible at another directory, too, and returns it.
fn bind_elsewhere(volume: &TestVolume, mount: &Mount) -> PathBuf {
    let other = volume.scratch.path().join("other");
    fs::create_dir(&other).expect("a directory");
    let mut command = Command::new("mount");
    command.arg("--bind").args([&mount.dir, &other]);
    assert!(command.status().expect("mount runs").success());
    other
}

/// Runs `sfs-umount` as umount(8) runs its helper for an image file.
fn umount_helper(volume: &TestVolume, dir: &Path, flags: &[&str]) -> Output {
    let helper = volume.scratch.path().join("umount.fuse.sfs");
    if !helper.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sfs-umount"), &helper).expect("a link");
    }
    let mut command = Command::new(helper);
    command.arg(dir).args(flags).args(["-t", "fuse.sfs"]).output().expect("sfs-umount runs")
}

#[test]
fn mounted_volumes_are_unmounted_by_the_helper_of_umount() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let other = bind_elsewhere(&volume, &mount);
    // umount(8) takes one of several mount points away without an error.
    let output = umount_helper(&volume, &mount.dir, &["-n"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!is_mounted(&volume.dir) && is_mounted(&other));
    let output = umount_helper(&volume, &other, &["-v"]);
    assert!(output.status.success(), "{}", stderr(&output));
    mount.wait_for_end();

    let mount = volume.mount("");
    let file = File::create(mount.dir.join("file")).expect("a file");
    file.sync_all().expect("a sync");
    let output = umount_helper(&volume, &mount.dir, &[]);
    expect_failure(&output, "in use");
    drop(file);
    let dir = File::open(&mount.dir).expect("the directory opens");
    let output = umount_helper(&volume, &mount.dir, &["-r"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(is_mounted(&volume.dir));
    assert_eq!(refusal(File::create(mount.dir.join("new"))), Some(libc::EROFS));
    drop(dir);
    wait_until("the mount is unmounted by force", || {
        umount_helper(&volume, &mount.dir, &["-f"]).status.success()
    });
    assert!(!is_mounted(&volume.dir));
    mount.wait_for_end();
    volume.check();
}

#[test]
fn mounted_volumes_in_use_for_a_moment_are_unmounted() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let mut user = Command::new("sleep").arg("0.2").current_dir(&mount.dir).spawn().expect("sleep");
    let output = sfs_umount(&mount.dir);
    user.wait().expect("sleep ends");
    assert!(output.status.success(), "{}", stderr(&output));
    mount.wait_for_end();
}

/// umount(8) with `--force` aborts the connection: the daemon writes the data that it has received,
/// and ends.
#[test]
fn mounted_volumes_unmounted_by_force_keep_what_the_daemon_has() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("nowriteback");
    fs::write(mount.dir.join("file"), "content").expect("writing");
    let mut command = Command::new("umount");
    command.args(["--force", "--internal-only"]).arg(&mount.dir);
    assert!(command.status().expect("umount runs").success());
    mount.wait_for_end();
    let report = volume.check();
    assert!(report.unmounted && report.rolled_chunks == 0, "the last checkpoint is complete");
    let mount = volume.mount("");
    assert_eq!(fs::read(mount.dir.join("file")).expect("the file"), b"content");
    mount.unmount();
}

#[test]
fn mounted_devices_can_be_locked_for_inspection() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    for options in ["rw", "ro"] {
        let mount = volume.mount(options);
        let device = || File::open(&volume.device).expect("the device");
        // As udev does at every event of the device, and systemd at boot.
        device().try_lock_shared().expect("the lock of an inspection");
        assert!(device().try_lock().is_err(), "{options}: the daemon's lock excludes another user");
        mount.unmount();
    }
}
