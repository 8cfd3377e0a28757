//! Mounts of volumes with another format version or with features of newer programs. Each volume is
//! upgraded with one line in the log, mounted read-only, or refused with a hint.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use harness::{TestVolume, can_mount, sfs_mount, sfs_umount_unused, stderr, transport};
use sfs_testkit::{mount_table::is_mounted, wait_until};

const BLOCK: usize = 4096;

/// Positions from docs/FORMAT.md: the superblock, and its checksum, version, compatible and
/// read-only-compatible features inside it.
const SUPERBLOCK_AT: usize = 4 * BLOCK;
const CHECKSUM_AT: usize = 8;
const VERSION_AT: usize = 12;
const INCOMPATIBLE_AT: usize = 16;
const COMPATIBLE_AT: usize = 184;
const READ_ONLY_COMPATIBLE_AT: usize = 192;

/// Changes both superblocks of the image at `path`.
fn change(path: &Path, change: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(path).expect("the image");
    let backup_at = bytes.len() - BLOCK;
    for at in [SUPERBLOCK_AT, backup_at] {
        let block = &mut bytes[at..at + BLOCK];
        change(block);
        let checksum = crc32c::crc32c(&block[VERSION_AT..]).to_le_bytes();
        block[CHECKSUM_AT..VERSION_AT].copy_from_slice(&checksum);
    }
    fs::write(path, bytes).expect("the image");
}

/// Returns a volume with a file in format version 1.
fn volume_of_version_1() -> TestVolume {
    let volume = TestVolume::new("16M");
    let mount = volume.mount("rw");
    fs::write(mount.dir.join("file"), "content").expect("a file");
    mount.unmount();
    change(&volume.device, |block| {
        block[VERSION_AT] = 1;
        block[COMPATIBLE_AT..].fill(0);
    });
    volume
}

fn version(volume: &TestVolume) -> [u8; 2] {
    let bytes = fs::read(&volume.device).expect("the image");
    [SUPERBLOCK_AT, bytes.len() - BLOCK].map(|at| bytes[at + VERSION_AT])
}

/// Returns the log lines of one mount of `volume`, and asserts that its file is readable.
fn log_of_mount(volume: &TestVolume, options: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    command.args(["--foreground", "--transport", &transport(), "-o", options]);
    command.arg(&volume.device).arg(&volume.dir).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon = command.spawn().expect("sfs-mount runs");
    wait_until("the volume is mounted", || is_mounted(&volume.dir));
    let content = fs::read(volume.dir.join("file")).expect("the file");
    assert_eq!(content, b"content");
    let output = sfs_umount_unused(&volume.dir);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(daemon.wait().expect("the daemon ends").success());
    let mut said = String::new();
    daemon.stdout.take().expect("the output").read_to_string(&mut said).expect("UTF-8");
    daemon.stderr.take().expect("the errors").read_to_string(&mut said).expect("UTF-8");
    said
}

#[test]
fn a_mount_for_writing_upgrades_version_1_and_says_so_once() {
    if !can_mount() {
        return;
    }
    let volume = volume_of_version_1();
    assert_eq!(version(&volume), [1, 1]);
    let before = fs::read(&volume.device).expect("the image");
    assert!(!log_of_mount(&volume, "ro").contains("upgraded"));
    assert!(before == fs::read(&volume.device).expect("the image"), "-o ro changes nothing");
    let said = log_of_mount(&volume, "rw");
    let lines = said.lines().filter(|line| line.contains("upgraded")).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("from format version 1 to 2"), "{said}");
    assert!(lines[0].contains("cannot use the volume any more"), "{said}");
    assert_eq!(version(&volume), [2, 2]);
    assert!(!log_of_mount(&volume, "rw").contains("upgraded"));
    volume.check();
}

#[test]
fn a_volume_that_a_newer_program_allows_to_read_is_mounted_read_only() {
    if !can_mount() {
        return;
    }
    let volume = volume_of_version_1();
    log_of_mount(&volume, "rw");
    change(&volume.device, |block| block[READ_ONLY_COMPATIBLE_AT + 3] = 1);
    let before = fs::read(&volume.device).expect("the image");
    let output = sfs_mount(&volume.device, &volume.dir, "rw");
    assert_eq!(output.status.code(), Some(32));
    let said = stderr(&output);
    assert!(said.contains("features 0x1000000 are newer than this program knows"), "{said}");
    assert!(said.contains("mount it with '-o ro', or upgrade sfs"), "{said}");
    log_of_mount(&volume, "ro");
    assert!(before == fs::read(&volume.device).expect("the image"), "nothing was changed");
}

/// Returns one of the feature words of both superblocks, which are the same.
fn feature_word(volume: &TestVolume, at: usize) -> u64 {
    let bytes = fs::read(&volume.device).expect("the image");
    let words = [SUPERBLOCK_AT, bytes.len() - BLOCK].map(|copy| {
        u64::from_le_bytes(bytes[copy + at..copy + at + 8].try_into().expect("eight bytes"))
    });
    assert_eq!(words[0], words[1]);
    words[0]
}

/// A volume goes to a newer program and back: features of the newer step are bits that this program does not know.
#[test]
fn mounted_volumes_go_between_two_steps_of_the_format_and_back() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("16M");
    let mount = volume.mount("rw");
    fs::write(mount.dir.join("file"), "content").expect("a file");
    mount.unmount();
    // A mount without a new feature leaves the volume to older programs.
    assert_eq!(feature_word(&volume, READ_ONLY_COMPATIBLE_AT), 0);

    // Up: a newer program has written a compatible feature. Down: this program writes, and keeps it.
    change(&volume.device, |block| block[COMPATIBLE_AT + 7] = 0x40);
    let mount = volume.mount("rw");
    assert_eq!(fs::read(mount.dir.join("file")).expect("the file"), b"content");
    fs::write(mount.dir.join("second"), "of the older program").expect("a file");
    mount.unmount();
    assert_eq!(feature_word(&volume, COMPATIBLE_AT), 1 << 62);

    // The first use of a read-only-compatible feature, and of no other, sets its bit.
    let mount = volume.mount("rw");
    let mut allocate = Command::new("fallocate");
    allocate.args(["-l", "64K"]).arg(mount.dir.join("reserved"));
    assert!(allocate.status().expect("fallocate runs").success());
    mount.unmount();
    assert_eq!(feature_word(&volume, READ_ONLY_COMPATIBLE_AT), 4);
    assert_eq!(feature_word(&volume, COMPATIBLE_AT), 1 << 62);

    // An incompatible feature ends the way back: nothing is mounted or changed, not even read-only.
    change(&volume.device, |block| block[INCOMPATIBLE_AT + 1] = 1);
    let before = fs::read(&volume.device).expect("the image");
    for options in ["rw", "ro"] {
        let output = sfs_mount(&volume.device, &volume.dir, options);
        assert_eq!(output.status.code(), Some(32), "{options}");
        assert!(stderr(&output).contains("features 0x100 are newer"), "{}", stderr(&output));
    }
    assert!(before == fs::read(&volume.device).expect("the image"), "nothing was changed");
}
