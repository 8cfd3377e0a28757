//! `-o remount`, by `sfs-mount` and by mount(8), which finds `mount.sfs` by its name.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use harness::{Mount, TestVolume, can_mount, sfs_mount, stderr};
use sfs_testkit::{SeededRng, mount_table};

const SIZE: &str = "64M";
const USAGE: i32 = 1;
const MOUNT: i32 = 32;

fn remount(volume: &TestVolume, options: &str) {
    let output = sfs_mount(&volume.device, &volume.dir, &format!("remount,{options}"));
    assert!(output.status.success(), "{options}: {}", stderr(&output));
}

/// Asserts a failure with `status`, and one line that gives `reason`.
fn expect_failure(output: &Output, status: i32, reason: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("sfs-mount: ") && said.contains(reason), "'{reason}': {said}");
}

/// Returns the kernel's options of `mount`: those of the mount itself, and those of its filesystem.
fn options_of(mount: &Mount) -> (String, String) {
    mount_table::options_of(&mount.dir).expect("the volume is mounted")
}

fn expect_read_only(mount: &Mount) {
    let refused = File::create(mount.dir.join("new")).expect_err("the volume is read-only");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let (of_mount, filesystem) = options_of(mount);
    assert!(
        of_mount.starts_with("ro,") && filesystem.starts_with("ro,"),
        "{of_mount} {filesystem}"
    );
}

#[test]
fn mounted_volumes_are_synced_before_they_become_read_only() {
    if !can_mount() {
        return;
    }
    for volume in TestVolume::in_image_and_on_loop(SIZE) {
        let mount = volume.mount("nosuid");
        let content = SeededRng::new(8).bytes(20 << 20);
        fs::write(mount.dir.join("file"), &content).expect("writing");
        fs::write(mount.dir.join("small"), b"small").expect("writing");
        fs::remove_file(mount.dir.join("small")).expect("removing");
        remount(&volume, "ro");
        let bytes = fs::read(&volume.device).expect("the device");
        expect_read_only(&mount);
        assert!(options_of(&mount).0.contains("nosuid"), "an option that is not named stays");
        assert!(fs::read(mount.dir.join("file")).expect("reading") == content);
        // The pause is longer than any commit or checkpoint interval.
        thread::sleep(Duration::from_millis(1500));
        assert!(
            fs::read(&volume.device).expect("the device") == bytes,
            "the device was written to"
        );
        // The remount has written everything: nothing is lost when the daemon is killed.
        mount.kill();
        mount.detach();
        let mount = volume.mount("ro");
        assert!(fs::read(mount.dir.join("file")).expect("reading") == content);
        assert!(!mount.dir.join("small").exists());
        mount.unmount();
        volume.check();
    }
}

#[test]
fn mounted_volumes_become_writable_again() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("noexec");
    for round in 0..3 {
        remount(&volume, "ro");
        expect_read_only(&mount);
        remount(&volume, "ro,exec");
        assert!(!options_of(&mount).0.contains("noexec"));
        remount(&volume, "rw,noexec");
        assert!(options_of(&mount).0.contains("noexec"));
        fs::write(mount.dir.join(round.to_string()), [round; 9000]).expect("writing");
    }
    // Background work runs again: unsynced data becomes durable soon.
    thread::sleep(Duration::from_secs(3));
    mount.kill();
    mount.detach();
    let mount = volume.mount("");
    for round in 0..3 {
        assert_eq!(fs::read(mount.dir.join(round.to_string())).expect("reading"), [round; 9000]);
    }
    mount.unmount();
    volume.check();
}

#[test]
fn mounted_volumes_refuse_remounts_with_fixed_options() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("cache=16M");
    let try_to =
        |options: &str| sfs_mount(&volume.device, &volume.dir, &format!("remount,{options}"));
    expect_failure(&try_to("ro,frobnicate"), USAGE, "'frobnicate'");
    expect_failure(&try_to("cache=lots"), USAGE, "cache=lots");
    expect_failure(&try_to("ro,cache=32M"), MOUNT, "'cache=32M' cannot be changed");
    expect_failure(&try_to("writeback=off"), MOUNT, "'writeback=off' cannot be changed");
    remount(&volume, "cache=16M,writeback=on,noatime,rw");
    let file = File::create(mount.dir.join("file")).expect("a file");
    expect_failure(&try_to("ro"), MOUNT, "files are open for writing");
    drop(file);
    let wrong = sfs_mount(volume.scratch.path(), &volume.dir, "remount,ro");
    expect_failure(&wrong, MOUNT, "is not mounted there");
    let nothing = sfs_mount(&volume.device, volume.scratch.path(), "remount,ro");
    expect_failure(&nothing, MOUNT, "not a mount point");
    expect_failure(
        &sfs_mount(&volume.device, Path::new("/proc"), "remount,ro"),
        MOUNT,
        "not an SFS",
    );
    fs::write(mount.dir.join("file"), b"the mount is writable still").expect("writing");
    mount.kill();
    expect_failure(&try_to("ro"), MOUNT, "its daemon has died");
    mount.detach();
    let mount = volume.mount("ro");
    expect_read_only(&mount);
    remount(&volume, "ro,nosuid");
    mount.unmount();
}

/// A volume that was mounted read-only after a crash becomes writable, and read-only again.
#[test]
fn mounted_volumes_become_writable_by_a_remount() {
    if !can_mount() {
        return;
    }
    for volume in [TestVolume::new(SIZE), TestVolume::placed(SIZE, "greedy-space")] {
        let mount = volume.mount("");
        let names = |dir: &Path| fs::read_dir(dir).expect("a listing").count();
        fs::write(mount.dir.join("synced"), [1; 30_000]).expect("writing");
        File::open(mount.dir.join("synced")).and_then(|file| file.sync_all()).expect("a sync");
        mount.kill();
        mount.detach();
        let before = fs::read(&volume.device).expect("the image");

        let mount = volume.mount("norecovery");
        expect_read_only(&mount);
        assert_eq!(names(&mount.dir), 0, "the last checkpoint is that of the mount");
        let refused = sfs_mount(&volume.device, &volume.dir, "remount,rw");
        expect_failure(&refused, MOUNT, "was mounted with norecovery");
        mount.unmount();
        let mount = volume.mount("ro");
        expect_read_only(&mount);
        let open = File::open(mount.dir.join("synced")).expect("opening");
        assert!(fs::read(&volume.device).expect("the image") == before, "nothing is written");

        let device = volume.device.clone();
        let reader = sfs_device::FileDevice::open(&device, sfs_device::Access::ReadOnly);
        let refused = sfs_mount(&volume.device, &volume.dir, "remount,rw");
        expect_failure(&refused, MOUNT, "is mounted or in use");
        drop(reader.expect("an image has several readers"));
        remount(&volume, "rw");
        let writer = sfs_device::FileDevice::open(&device, sfs_device::Access::ReadOnly);
        assert!(writer.is_err(), "the volume is locked for writing");
        fs::write(mount.dir.join("new"), [2; 30_000]).expect("writing");
        fs::write(mount.dir.join("synced"), [3; 30_000]).expect("writing");
        fs::remove_file(mount.dir.join("new")).expect("removing");
        drop(open);
        remount(&volume, "ro");
        expect_read_only(&mount);
        remount(&volume, "rw");
        fs::write(mount.dir.join("again"), [4; 30_000]).expect("writing");
        File::open(mount.dir.join("again")).and_then(|file| file.sync_all()).expect("a sync");
        mount.kill();
        mount.detach();
        volume.check();
        let mount = volume.mount("");
        assert_eq!(fs::read(mount.dir.join("synced")).expect("reading"), [3; 30_000]);
        assert_eq!(fs::read(mount.dir.join("again")).expect("reading"), [4; 30_000]);
        mount.unmount();
        volume.check();
    }
}

#[test]
fn mounted_volumes_are_remounted_by_their_directory() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("nosymfollow");
    symlink("file", mount.dir.join("link")).expect("a symbolic link");
    fs::write(mount.dir.join("file"), b"content").expect("writing");
    let by_directory = |options: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
        let output =
            command.args(["-o", options]).arg(&mount.dir).output().expect("the program runs");
        assert!(output.status.success(), "{options}: {}", stderr(&output));
    };
    let followed = || fs::read(mount.dir.join("link")).map_err(|error| error.raw_os_error());
    assert_eq!(followed(), Err(Some(libc::ELOOP)));
    by_directory("remount,ro");
    expect_read_only(&mount);
    assert_eq!(followed(), Err(Some(libc::ELOOP)), "an option that is not named stays");
    by_directory("remount,rw,symfollow");
    assert_eq!(followed().expect("the link is followed"), b"content");
    fs::write(mount.dir.join("file"), b"more").expect("writing");
    mount.unmount();
}

/// Installs the programs as a distribution would, in a mount namespace of this test.
const HELPERS: &str = r#"
    set -e
    mkdir "$4/layer"; mount -t tmpfs tmpfs "$4/layer"; mkdir "$4/layer/upper" "$4/layer/work"
    sbin=$(readlink -f /sbin)
    mount -t overlay -o "lowerdir=$sbin,upperdir=$4/layer/upper,workdir=$4/layer/work" overlay "$sbin" ||
        { echo "skipped: no overlay over /sbin"; exit 0; }
    for name in mount.sfs mount.fuse.sfs mount.fuseblk.sfs; do ln -s "$1" "$sbin/$name"; done
    for name in umount.sfs umount.fuse.sfs umount.fuseblk.sfs; do ln -s "$2" "$sbin/$name"; done
    mount -t sfs -o nosuid,commit=9,uhelper=sfs "$3" "$4/mount"
    echo content > "$4/mount/file"
    mount -o remount,ro "$4/mount"
    if echo more 2>/dev/null > "$4/mount/file"; then exit 1; fi
    mount -o remount,rw "$4/mount"
    echo more > "$4/mount/file"
    mount -t sfs -o remount,ro "$3" "$4/mount"
    mount -o remount,rw,noexec "$4/mount"
    umount -v "$4/mount"
"#;

#[test]
fn mounted_volumes_are_remounted_and_unmounted_by_the_system() {
    if !can_mount() {
        return;
    }
    for volume in TestVolume::in_image_and_on_loop(SIZE) {
        let (mount, unmount) = (env!("CARGO_BIN_EXE_sfs-mount"), env!("CARGO_BIN_EXE_sfs-umount"));
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", HELPERS, "sh", mount, unmount])
            .args([volume.device.as_path(), volume.scratch.path()])
            .output();
        let Ok(output) = output else { return eprintln!("skipped: unshare is not installed") };
        let said = String::from_utf8_lossy(&output.stdout);
        if said.contains("skipped: ") || stderr(&output).contains("unshare:") {
            return eprintln!("skipped: {said}{}", stderr(&output));
        }
        assert!(output.status.success(), "{said}{}", stderr(&output));
        assert!(said.contains("everything is on"), "umount(8) has called sfs-umount: {said}");
        let mount = volume.mount("ro");
        assert_eq!(fs::read(mount.dir.join("file")).expect("reading"), b"more\n");
        mount.unmount();
        volume.check();
    }
}
