//! Input that cannot be mounted or unmounted. Each failure prints one line that names the input,
//! has the exit status of mount(8), and leaves every byte of the device unchanged.
//!
//! `sfs-mkfs` and `sfs-fsck` have the same tests in their own crates.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::{
    TestVolume, can_mount, sfs_mount, sfs_mount_unused, sfs_umount, sfs_umount_unused, stderr,
    transport,
};
use rustix::mount::{UnmountFlags, unmount};
use sfs_testkit::{SeededRng, mount_table::is_mounted, scratch_directory, wait_until};

const SIZE: &str = "16M";
const LEN: usize = 16 << 20;
const BLOCK: usize = 4096;

/// Positions from docs/FORMAT.md: the superblock, and its checksum and version inside it.
const SUPERBLOCK_AT: usize = 16 << 10;
const CHECKSUM_AT: usize = 8;
const VERSION_AT: usize = 12;

const USAGE: i32 = 1;
const MOUNT: i32 = 32;

/// Asserts a failure with `status`, and one line that names `thing` and gives `reason`.
fn expect_failure(output: &Output, status: i32, thing: &Path, reason: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("sfs-mount: ") || said.starts_with("sfs-umount: "), "{said}");
    assert!(said.contains(thing.to_str().expect("UTF-8")), "{} is not in: {said}", thing.display());
    assert!(said.contains(reason), "'{reason}' is not in: {said}");
    assert!(output.stdout.is_empty());
}

/// Returns an image that consists of `bytes`, in the scratch directory of a test volume.
fn image(volume: &TestVolume, bytes: &[u8]) -> PathBuf {
    let path = volume.scratch.path().join("bad");
    fs::write(&path, bytes).expect("an image");
    path
}

/// Asserts that mounting `bytes` fails with status 32 and `reason`, read-only too, and leaves
/// `bytes` unchanged.
fn expect_refusal(volume: &TestVolume, bytes: &[u8], reason: &str) {
    let path = image(volume, bytes);
    for options in ["rw", "ro", "nowriteback"] {
        expect_failure(&sfs_mount(&path, &volume.dir, options), MOUNT, &path, reason);
        assert!(fs::read(&path).expect("the image") == bytes, "the image was changed: {reason}");
        assert!(!is_mounted(&volume.dir));
    }
}

fn volume() -> (TestVolume, Vec<u8>) {
    let volume = TestVolume::new(SIZE);
    let bytes = fs::read(&volume.device).expect("the image");
    assert_eq!(bytes.len(), LEN);
    (volume, bytes)
}

/// Changes both superblocks and recomputes their checksums.
fn reseal(bytes: &mut [u8], change: impl Fn(&mut [u8])) {
    let backup_at = bytes.len() - BLOCK;
    for at in [SUPERBLOCK_AT, backup_at] {
        let block = &mut bytes[at..at + BLOCK];
        change(block);
        let checksum = crc32c::crc32c(&block[VERSION_AT..]).to_le_bytes();
        block[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum);
    }
}

#[test]
fn mounted_images_without_a_volume_are_refused() {
    if !can_mount() {
        return;
    }
    let (volume, bytes) = volume();
    expect_refusal(&volume, &[], "too small for");
    expect_refusal(&volume, &[0; BLOCK], "too small for");
    expect_refusal(&volume, &[7; 100], "too small for");
    expect_refusal(&volume, &vec![0; LEN], "not an SFS volume; 'sfs-mkfs ");
    expect_refusal(&volume, &SeededRng::new(1).bytes(LEN), "not an SFS volume; 'sfs-mkfs ");
    expect_refusal(&volume, &bytes[..LEN / 2], "truncated");
    expect_refusal(&volume, &bytes[..LEN - BLOCK], "truncated");
    // The format version is newer.
    let mut newer = bytes.clone();
    reseal(&mut newer, |block| block[VERSION_AT] += 1);
    expect_refusal(&volume, &newer, "upgrade sfs");
    let mut wrong = bytes.clone();
    // The label has a control character.
    reseal(&mut wrong, |block| block[40] = 7);
    expect_refusal(&volume, &wrong, "superblock");
    // Both superblocks are zeroed.
    let mut headless = bytes.clone();
    for at in [SUPERBLOCK_AT, LEN - BLOCK] {
        headless[at..at + BLOCK].fill(0);
    }
    expect_refusal(&volume, &headless, "both superblocks of the SFS volume on it are damaged");
}

#[test]
fn mounted_volumes_without_a_checkpoint_are_refused() {
    if !can_mount() {
        return;
    }
    let (volume, mut bytes) = volume();
    // Everything between the two superblocks is zeroed.
    bytes[SUPERBLOCK_AT + BLOCK..LEN - BLOCK].fill(0);
    expect_refusal(&volume, &bytes, "sfs-fsck -n");
    let noise = SeededRng::new(2).bytes(LEN - 2 * BLOCK - SUPERBLOCK_AT);
    bytes[SUPERBLOCK_AT + BLOCK..LEN - BLOCK].copy_from_slice(&noise);
    expect_refusal(&volume, &bytes, "sfs-fsck -n");
}

#[test]
fn mounted_ext4_images_are_refused_by_name() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let path = volume.scratch.path().join("ext4");
    File::create(&path).and_then(|file| file.set_len(LEN as u64)).expect("an image");
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: mkfs.ext4 is not installed");
    }
    let bytes = fs::read(&path).expect("the image");
    expect_refusal(&volume, &bytes, "not an SFS volume but ext2/ext3/ext4 filesystem");
}

#[test]
fn a_path_that_is_no_device_is_refused() {
    let (volume, bytes) = volume();
    let scratch = volume.scratch.path();
    let missing = scratch.join("missing");
    expect_failure(&sfs_mount(&missing, &volume.dir, "rw"), MOUNT, &missing, "o such file");
    assert!(!missing.exists());
    expect_failure(&sfs_mount(scratch, &volume.dir, "rw"), MOUNT, scratch, "directory");
    let null = Path::new("/dev/null");
    expect_failure(&sfs_mount(null, &volume.dir, "rw"), MOUNT, null, "neither a file nor");
    assert!(fs::read(&volume.device).expect("the image") == bytes);
}

#[test]
fn a_mount_point_that_is_no_directory_is_refused() {
    let (volume, bytes) = volume();
    let missing = volume.scratch.path().join("missing");
    let reason = "mount point: No such file or directory";
    expect_failure(&sfs_mount(&volume.device, &missing, "rw"), MOUNT, &missing, reason);
    let file = volume.scratch.path().join("file");
    fs::write(&file, b"").expect("a file");
    let reason = "mount point is not a directory";
    expect_failure(&sfs_mount(&volume.device, &file, "rw"), MOUNT, &file, reason);
    assert!(fs::read(&volume.device).expect("the image") == bytes);
}

#[test]
fn invalid_options_are_refused() {
    let (volume, bytes) = volume();
    for options in [
        "frobnicate",
        "cache=lots",
        "cache=1",
        "cache=99999999999999999999999999",
        "write_buffer=-1M",
        "commit=0",
        "commit=1.5",
        "commit=",
        "checkpoint=4000",
        "threads=0",
        "threads=65",
        "threads",
        "discard=yes",
        "writeback=1",
        "\u{fffd}\n\u{7}",
    ] {
        let list = format!("noatime,{options}");
        let name = Path::new(options.split('\n').next().expect("a first part"));
        expect_failure(&sfs_mount(&volume.device, &volume.dir, &list), USAGE, name, "");
        assert!(!is_mounted(&volume.dir));
    }
    assert!(fs::read(&volume.device).expect("the image") == bytes);
}

#[test]
fn invalid_command_lines_are_refused() {
    let mount = env!("CARGO_BIN_EXE_sfs-mount");
    let unmount = env!("CARGO_BIN_EXE_sfs-umount");
    for (program, arguments, named) in [
        (mount, &[][..], "<DEVICE>"),
        (mount, &["/dev/null"], "<DIR>"),
        (mount, &["--frobnicate", "a", "b"], "--frobnicate"),
        (mount, &["a", "b", "c"], "'c'"),
        (mount, &["", "b"], "none was supplied; see --help"),
        (unmount, &[], "<DIR|DEVICE>"),
        (unmount, &["--frobnicate", "a"], "--frobnicate"),
        (unmount, &["a", "b"], "'b'"),
    ] {
        let output = Command::new(program).args(arguments).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(USAGE), "{arguments:?}");
        let line = stderr(&output);
        assert!(line.contains(named), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
    }
}

/// A write-protected card in /etc/fstab does not stop the boot: the mount becomes read-only, as
/// with mount(8).
#[test]
fn mounted_write_protected_devices_become_read_only() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop(SIZE) else { return };
    let mount = volume.mount("rw");
    fs::write(mount.dir.join("file"), b"content").expect("writing");
    mount.unmount();
    let set = |option| Command::new("blockdev").arg(option).arg(&volume.device).status();
    assert!(set("--setro").expect("blockdev(8) runs").success());
    let bytes = fs::read(&volume.device).expect("the device");
    for options in ["rw", "noexec", "ro"] {
        let output = sfs_mount_unused(&volume.device, &volume.dir, options);
        assert!(output.status.success(), "{options}: {}", stderr(&output));
        let warning = format!(
            "sfs-mount: WARNING: {} is write-protected, mounted read-only\n",
            volume.device.display()
        );
        assert_eq!(stderr(&output), if options == "ro" { "" } else { &warning }, "{options}");
        assert_eq!(fs::read(volume.dir.join("file")).expect("reading"), b"content");
        let refused = File::create(volume.dir.join("new")).expect_err("the volume is read-only");
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
        assert!(sfs_umount_unused(&volume.dir).status.success());
    }
    assert!(fs::read(&volume.device).expect("the device") == bytes);
    assert!(set("--setrw").expect("blockdev(8) runs").success());
    volume.mount("rw").unmount();
}

#[test]
fn mounted_volumes_are_not_mounted_twice() {
    if !can_mount() {
        return;
    }
    for volume in TestVolume::in_image_and_on_loop(SIZE) {
        let mount = volume.mount("");
        fs::write(mount.dir.join("file"), b"content").expect("writing");
        let other = volume.scratch.path().join("other");
        fs::create_dir(&other).expect("a directory");
        for options in ["rw", "ro"] {
            let again = sfs_mount(&volume.device, &other, options);
            expect_failure(&again, MOUNT, &volume.device, "in use");
            assert!(!is_mounted(&other));
        }
        let second = TestVolume::new(SIZE);
        let above = sfs_mount(&second.device, &volume.dir, "rw");
        expect_failure(&above, MOUNT, &volume.dir, "is mounted there already");
        assert_eq!(fs::read(mount.dir.join("file")).expect("the mount goes on"), b"content");
        mount.unmount();
        volume.check();
    }
}

#[test]
fn mounted_images_in_use_elsewhere_are_refused() {
    if !can_mount() {
        return;
    }
    let (volume, bytes) = volume();
    let holder = File::open(&volume.device).expect("the image");
    holder.lock().expect("a lock");
    let refused = sfs_mount(&volume.device, &volume.dir, "rw");
    expect_failure(&refused, MOUNT, &volume.device, "in use");
    let mut read = vec![0; LEN];
    holder.read_exact_at(&mut read, 0).expect("the image");
    assert!(read == bytes);
}

#[test]
fn mounted_volumes_in_use_are_not_unmounted() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    // A process whose working directory is in the mount. The process ends with its input.
    let mut command = Command::new("cat");
    command.current_dir(&mount.dir).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut user = command.spawn().expect("cat runs");
    expect_failure(&sfs_umount(&mount.dir), MOUNT, &mount.dir, "in use");
    assert!(is_mounted(&mount.dir));
    drop(user.stdin.take());
    user.wait().expect("cat ends");
    mount.unmount();
    volume.check();
}

/// A mount with too few file descriptors fails; a mount with enough of them succeeds and serves
/// requests.
#[test]
fn mounted_volumes_need_enough_descriptors() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let mut mounts = 0;
    for limit in (8..40).step_by(2) {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}")).arg(env!("CARGO_BIN_EXE_sfs-mount"));
        command.args(["--transport", &transport()]).arg(&volume.device).arg(&volume.dir);
        let output = command.output().expect("prlimit runs");
        if output.status.success() {
            mounts += 1;
            fs::read_dir(&volume.dir).expect("the mount answers");
            unmount(&volume.dir, UnmountFlags::DETACH).expect("the volume is mounted");
            wait_until("the daemon ends", || harness::daemon_of(&volume.device).is_none());
        } else {
            assert!(!is_mounted(&volume.dir), "{}", stderr(&output));
            assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        }
    }
    assert!(mounts > 0);
    volume.check();
}

#[test]
fn a_directory_without_a_volume_is_not_unmounted() {
    let scratch = scratch_directory();
    let dir = scratch.path();
    let missing = dir.join("missing");
    expect_failure(&sfs_umount(&missing), USAGE, &missing, "No such file or directory");
    expect_failure(&sfs_umount(dir), MOUNT, dir, "not a mount point");
    let proc = Path::new("/proc");
    expect_failure(&sfs_umount(proc), MOUNT, proc, "not an SFS volume; use umount");
    assert!(proc.join("self").exists());
}

/// The lock on an image and the exclusive open of a loop device over the image do not exclude each
/// other.
#[test]
fn mounted_images_are_not_mounted_through_a_loop_device() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new(SIZE);
    let looped = || TestVolume::existing(volume.device.clone()).looped();
    let Some(first) = looped() else { return };
    let mount = first.mount("");
    for options in ["rw", "ro"] {
        let failure = sfs_mount(&volume.device, &volume.dir, options);
        expect_failure(&failure, MOUNT, &volume.device, "is in use by /dev/loop");
    }
    let second = looped().expect("another loop device");
    let failure = sfs_mount(&second.device, &second.dir, "rw");
    expect_failure(&failure, MOUNT, &second.device, "is in use by /dev/loop");
    mount.unmount();
    drop((first, second));

    let is_free = || sfs_mkfs::refuse_in_use(&volume.device).is_ok();
    wait_until("the loop devices are gone", is_free);
    let mount = volume.mount("");
    let late = looped().expect("a loop device");
    let failure = sfs_mount(&late.device, &late.dir, "rw");
    expect_failure(&failure, MOUNT, &late.device, "is mounted at");
    // sfs-mkfs and sfs-fsck make the same check.
    let refusal =
        sfs_mkfs::refuse_in_use(&late.device).expect_err("the volume is mounted").to_string();
    assert!(refusal.contains("is mounted at"), "{refusal}");
    drop(late);
    mount.unmount();
    volume.check();
}
