//! Damage that a mount meets: the error of the request, the record of the damage, and the effect of
//! `errors=`.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use harness::{
    TestVolume, can_mount, content, sfs_ctl_stat, sfs_mount, sfs_umount_unused, stderr, transport,
};
use serde_json::Value;
use sfs_core::format::Timestamp;
use sfs_device::{Access, Device, FileDevice};
use sfs_fsck::{DumpSubject, RepairOptions, RepairOutcome, dump, is_unmounted, repair};
use sfs_testkit::wait_until;

const SIZE: &str = "64M";
const BLOCK: usize = 4096;
const LEN: usize = 64 * BLOCK;

fn numbers(path: &Path) -> Value {
    let output = sfs_ctl_stat(path, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn text(path: &Path) -> String {
    let output = sfs_ctl_stat(path, &[]);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns a volume with a file that has one corrupted block, and the address of the block.
fn corrupted() -> (TestVolume, u64) {
    let volume = TestVolume::new(SIZE);
    let mount = volume.mount("");
    let bytes = content("file", 1, LEN);
    fs::write(mount.dir.join("file"), &bytes).expect("writing");
    mount.unmount();
    let image = fs::read(&volume.device).expect("the image");
    let wanted = &bytes[5 * BLOCK..6 * BLOCK];
    let at = image.chunks(BLOCK).position(|block| block == wanted).expect("the block") as u64;
    let file = File::options().write(true).open(&volume.device).expect("the image");
    file.write_all_at(&[!wanted[77]], at * BLOCK as u64 + 77).expect("writing");
    (volume, at)
}

/// Opens the device of a volume whose daemon has ended.
fn device(volume: &TestVolume) -> Arc<FileDevice> {
    let mut device = None;
    wait_until("the daemon releases its device", || {
        device = FileDevice::open(&volume.device, Access::ReadWrite).ok();
        device.is_some()
    });
    Arc::new(device.expect("the device was opened"))
}

fn preen(device: Arc<dyn Device>) -> RepairOutcome {
    let options = RepairOptions { data: false, preen: true, now: Timestamp::default() };
    repair(&device, &options, &mut |_| ControlFlow::Continue(())).expect("a check")
}

#[test]
fn damage_that_a_mount_met_is_shown_and_makes_fsck_check() {
    if !can_mount() {
        return;
    }
    let (volume, at) = corrupted();
    let mount = volume.mount("errors=continue");
    assert_eq!(numbers(&volume.dir)["errors"], Value::Array(Vec::new()));
    let error = fs::read(mount.dir.join("file")).expect_err("a block is damaged");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let seen = numbers(&volume.dir);
    assert_eq!(seen["on_error"], "continue");
    assert_eq!(seen["errors"][0]["kind"], "data");
    assert_eq!(seen["errors"][0]["first"]["at"], at);
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    let secs = seen["errors"][0]["last"]["secs"].as_u64().expect("a time");
    assert!((now - 60..=now).contains(&secs), "error at {secs}, now {now}");
    assert!(text(&volume.dir).contains("wrong checksum of data"));
    fs::write(mount.dir.join("new"), b"the mount goes on").expect("writing");
    mount.unmount();

    let remembered = numbers(&volume.device);
    assert_eq!(remembered["errors"], seen["errors"], "errors of the unmounted device");
    assert_eq!(remembered["on_error"], Value::Null);
    let device = device(&volume);
    assert!(!is_unmounted(&*device).expect("a volume"), "fsck -a does not skip the volume");
    assert_eq!(preen(device.clone()).before.errors(), 0);
    assert!(!is_unmounted(&*device).expect("a volume"), "data was not read");

    let slots = dump(&*device, &DumpSubject::Checkpoints).expect("checkpoints");
    let is_first = slots["slot 0"]["number"].as_u64() > slots["slot 1"]["number"].as_u64();
    let newest = &slots[if is_first { "slot 0" } else { "slot 1" }];
    let root = newest["root"]["address"].as_u64().expect("an address");
    let file = File::options().write(true).open(&volume.device).expect("the image");
    file.write_all_at(&[0; BLOCK], root * BLOCK as u64).expect("writing");
    assert!(preen(device).errors_left() > 0, "fsck -a finds a destroyed root");
}

#[test]
fn errors_remount_ro_stops_all_writes_after_damage() {
    if !can_mount() {
        return;
    }
    let (volume, at) = corrupted();
    let mount = volume.mount("errors=remount-ro");
    fs::write(mount.dir.join("before"), b"written").expect("writing");
    File::open(mount.dir.join("before")).and_then(|file| file.sync_all()).expect("a sync");
    fs::read(mount.dir.join("file")).expect_err("a block is damaged");
    let refused = File::create(mount.dir.join("after")).expect_err("nothing is written");
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read(mount.dir.join("before")).expect("reading goes on"), b"written");
    let seen = numbers(&volume.dir);
    assert_eq!((&seen["on_error"], &seen["has_failed"]), (&"remount-ro".into(), &true.into()));
    assert_eq!((&seen["failure"]["kind"], &seen["failure"]["at"]), (&"data".into(), &at.into()));
    let output = sfs_umount_unused(&mount.dir);
    assert!(!output.status.success(), "there is no last checkpoint: {}", stderr(&output));
    mount.wait_for_end();

    assert_eq!(
        numbers(&volume.device)["failure"],
        seen["failure"],
        "the failure is in the superblock"
    );
    let mount = volume.mount("");
    assert_eq!(fs::read(mount.dir.join("before")).expect("the file was synced"), b"written");
    mount.unmount();
}

#[test]
fn errors_panic_is_refused_with_a_reason() {
    let volume = TestVolume::new("16M");
    let output = sfs_mount(&volume.device, &volume.dir, "errors=panic");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("errors=panic: a filesystem in user space does not stop the machine"));
}

/// Regression: the kernel repeats a failed read page by page, and each repetition logged a line
/// without path and remedy.
#[test]
fn mounted_damage_is_logged_once_with_path_and_remedy() {
    if !can_mount() {
        return;
    }
    let (volume, at) = corrupted();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mount"));
    command.args(["--foreground", "--transport", &transport()]);
    command.arg(&volume.device).arg(&volume.dir).stderr(Stdio::piped());
    let daemon = command.spawn().expect("sfs-mount runs");
    let file = volume.dir.join("file");
    wait_until("the mount answers", || file.exists());
    for _ in 0..3 {
        fs::read(&file).expect_err("a block is damaged");
    }
    assert!(sfs_umount_unused(&volume.dir).status.success());
    let log = daemon.wait_with_output().expect("the daemon ends");
    let log = String::from_utf8(log.stderr).expect("UTF-8");
    let line = format!(
        "{}: /file (inode 16): data at block {at}: checksum mismatch; restore the file from a backup;",
        volume.device.display()
    );
    assert_eq!(log.matches("checksum mismatch").count(), 1, "{log}");
    assert!(log.contains(&line), "{log}");
}
