//! Growing a volume: while it is mounted and written to, at the mount, and on a device that is not mounted.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use harness::{TestVolume, can_mount, content, stderr};
use rustix::fs::statvfs;

const MIB: u64 = 1 << 20;

fn resize(path: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("resize").arg(path).args(arguments).output().expect("sfs-ctl runs")
}

/// Runs `sfs-ctl resize`, and returns the line that it prints.
fn expect_resize(path: &Path, arguments: &[&str]) -> String {
    let output = resize(path, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn expect_refusal(path: &Path, arguments: &[&str], reason: &str) {
    let output = resize(path, arguments);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains(reason), "'{reason}': {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

fn size_of(dir: &Path) -> u64 {
    let found = statvfs(dir).expect("the mount answers");
    found.f_blocks * found.f_frsize
}

/// Gives the image another size.
fn set_len(image: &Path, len: u64) {
    File::options().write(true).open(image).expect("the image").set_len(len).expect("a size");
}

#[test]
fn a_mounted_volume_grows_with_its_device_while_it_is_written_to() {
    if !can_mount() {
        return;
    }
    let Some(volume) = TestVolume::on_loop("64M") else { return };
    let image = volume.scratch.path().join("image");
    let mount = volume.mount("");
    let before = size_of(&mount.dir);
    let line = expect_resize(&mount.dir, &[]);
    assert!(line.contains("has 64 MiB already"), "{line}");
    expect_refusal(&mount.dir, &["200M"], "the device has only 16384 blocks");
    expect_refusal(&mount.dir, &["32M"], "a mounted volume cannot shrink; unmount it first");
    set_len(&image, 200 * MIB);
    let refreshed = Command::new("losetup").arg("-c").arg(&volume.device).status();
    assert!(refreshed.expect("losetup runs").success());
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) || written < 20 {
                let name = format!("{}", written % 30);
                let mut file = File::create(mount.dir.join(&name)).expect("a file");
                file.write_all(&content(&name, written, 100_000)).expect("a write");
                file.sync_all().expect("a sync");
                written += 1;
            }
            written
        });
        for size in ["100M", "150M"] {
            let line = expect_resize(&mount.dir, &[size]);
            assert!(line.contains("grown from"), "{line}");
        }
        let line = expect_resize(&mount.dir, &[]);
        assert!(line.contains("to 200 MiB"), "{line}");
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("the writer")
    });
    assert!(size_of(&mount.dir) > 3 * before, "{} after {before}", size_of(&mount.dir));
    fs::write(mount.dir.join("large"), vec![5; 120 << 20]).expect("the new space is used");
    mount.unmount();
    volume.check();
    let mount = volume.mount("");
    for no in written - 20..written {
        let name = format!("{}", no % 30);
        assert!(fs::read(mount.dir.join(&name)).expect("a file") == content(&name, no, 100_000));
    }
    assert_eq!(fs::metadata(mount.dir.join("large")).expect("the file").len(), 120 << 20);
    mount.unmount();
}

#[test]
fn an_image_on_a_larger_card_grows_at_the_mount_that_asks_for_it() {
    if !can_mount() {
        return;
    }
    for data_layout in ["log", "block-group"] {
        let volume = TestVolume::placed("64M", data_layout);
        let mount = volume.mount("");
        fs::write(mount.dir.join("file"), content("file", 1, 1 << 20)).expect("a file");
        let before = size_of(&mount.dir);
        mount.unmount();
        set_len(&volume.device, 256 * MIB);
        for (options, grows) in [("", false), ("ro,grow", false), ("grow", true), ("grow", true)] {
            let mount = volume.mount(options);
            assert_eq!(size_of(&mount.dir) > 3 * before, grows, "-o {options}");
            let found = fs::read(mount.dir.join("file")).expect("the file");
            assert!(found == content("file", 1, 1 << 20));
            mount.unmount();
        }
        volume.check();
    }
}

#[test]
fn an_unmounted_volume_grows() {
    let volume = TestVolume::new("64M");
    expect_refusal(&volume.device, &["65M"], "the device has only 16384 blocks");
    set_len(&volume.device, 100 * MIB);
    let line = expect_resize(&volume.device, &["80M"]);
    assert!(line.contains("grown from 64 MiB to 80 MiB"), "{line}");
    let line = expect_resize(&volume.device, &[]);
    assert!(line.contains("grown from 80 MiB to 100 MiB"), "{line}");
    volume.check();
    expect_refusal(volume.scratch.path(), &[], "not a mount point");
}

#[test]
fn an_unmounted_volume_shrinks_and_keeps_its_files() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    for no in 0..40 {
        let name = format!("{no}");
        fs::write(mount.dir.join(&name), content(&name, 1, 1 << 20)).expect("a file");
    }
    for no in (0..40).filter(|no| no % 4 > 0) {
        fs::remove_file(mount.dir.join(format!("{no}"))).expect("a file");
    }
    mount.unmount();
    expect_refusal(&volume.device, &["9M"], "the volume is too full to shrink that far: it needs");
    let line = expect_resize(&volume.device, &["32M"]);
    assert!(line.contains("shrunk from 64 MiB to 32 MiB"), "{line}");
    volume.check();
    // The end of the device is no longer used.
    set_len(&volume.device, 32 * MIB);
    volume.check();
    let mount = volume.mount("");
    for no in (0..40).step_by(4) {
        let name = format!("{no}");
        assert!(fs::read(mount.dir.join(&name)).expect("a file") == content(&name, 1, 1 << 20));
    }
    mount.unmount();
    let placed = TestVolume::placed("64M", "clock-space");
    expect_refusal(&placed.device, &["32M"], "only a volume with --layout log can shrink");
}
