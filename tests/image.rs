//! `sfs-ctl image`: copies, their checksums, and the devices that they are restored to.

#[expect(dead_code, reason = "every test program uses a part of the module")]
mod harness;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::Parser;
use harness::{TestVolume, can_mount, content, stderr};
use sfs_testkit::{SeededRng, scratch_directory};

/// Names and lengths of the files of the volume.
const FILES: [(&str, usize); 3] = [("small", 100), ("middle", 50_000), ("large", 3_000_000)];

/// A volume with files, in an image file.
struct Saved {
    scratch: tempfile::TempDir,
    volume: PathBuf,
    copy: PathBuf,
}

fn ctl(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
    command.arg("image").args(arguments).args(paths).output().expect("sfs-ctl runs")
}

fn expect_success(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts a failure with one line that gives `reason`.
fn expect_failure(output: &Output, reason: &str) {
    let said = stderr(output);
    assert!(!output.status.success() && said.contains(reason), "'{reason}': {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Makes a volume of 64 MiB with [`FILES`], and a copy of it.
fn saved(data_layout: &str) -> Saved {
    let scratch = scratch_directory();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("source")).expect("a directory");
    for (name, len) in FILES {
        fs::write(path("source").join(name), content(name, 1, len)).expect("a file");
    }
    let (source, volume) = (path("source"), path("volume"));
    let [source, image] = [&source, &volume].map(|path| path.to_str().expect("UTF-8"));
    let arguments = ["sfs-mkfs", "--size", "64M", "--layout", data_layout, "--from", source, image];
    sfs_mkfs::make(&sfs_mkfs::MkfsOptions::parse_from(arguments)).expect("a volume");
    let copy = path("copy");
    let said = expect_success(&ctl(&["save"], &[&volume, &copy]));
    assert!(said.contains("of a volume of 64 MiB"), "{said}");
    let size = fs::metadata(&copy).expect("the copy").size();
    assert!(size < 6 << 20, "only used segments are copied: {size}");
    Saved { scratch, volume, copy }
}

/// Asserts that `device` holds the volume, sound and with all files.
fn expect_volume(device: &Path) {
    TestVolume::existing(device.to_owned()).check();
    let opened = sfs_device::FileDevice::open(device, sfs_device::Access::ReadOnly).expect("open");
    let options = sfs_core::request::VolumeOptions { read_only: true, ..Default::default() };
    let volume = sfs_core::Volume::open(std::sync::Arc::new(opened), options, Default::default());
    let volume = volume.expect("the volume opens");
    for (name, len) in FILES {
        let ino = volume.lookup(1, name.as_bytes()).expect("the file").ino;
        let found = volume.read(ino, 0, len + 1).expect("the content");
        assert!(found.as_bytes() == content(name, 1, len), "{name}");
    }
}

/// Asserts that no sound superblock is on `device`.
fn expect_no_volume(device: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_sfs-ctl")).arg("stat").arg(device).output();
    let (output, not) = (output.expect("sfs-ctl runs"), "not an SFS volume");
    let damaged = "both superblocks of the SFS volume on it are damaged";
    expect_failure(&output, if stderr(&output).contains(not) { not } else { damaged });
}

#[test]
fn a_copy_is_restored_to_new_files_and_larger_devices() {
    for data_layout in ["log", "greedy-space"] {
        let saved = saved(data_layout);
        let path = |name: &str| saved.scratch.path().join(name);
        expect_success(&ctl(&["restore"], &[&saved.copy, &path("new")]));
        expect_volume(&path("new"));
        let uuid = |device: &Path| {
            let mut uuid = [0; 16];
            let file = File::open(device).expect("an image");
            file.read_exact_at(&mut uuid, 4 * 4096 + 24).expect("the superblock");
            uuid
        };
        assert_eq!(uuid(&path("new")), uuid(&saved.volume));
        // A larger device full of something else, and then all of it.
        fs::write(path("larger"), SeededRng::new(1).bytes(100 << 20)).expect("a file");
        expect_success(&ctl(&["restore"], &[&saved.copy, &path("larger")]));
        expect_volume(&path("larger"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"));
        let grown = command.arg("resize").arg(path("larger")).output().expect("sfs-ctl runs");
        let said = expect_success(&grown);
        assert!(said.contains("grown from 64 MiB to 100 MiB"), "{said}");
        expect_volume(&path("larger"));
        let refused = ctl(&["restore"], &[&saved.copy, &path("larger")]);
        expect_failure(&refused, "has SFS volume; give -f to overwrite");
        // The later life of the volume on this device does not come back.
        expect_success(&ctl(&["restore", "-f"], &[&saved.copy, &path("larger")]));
        expect_volume(&path("larger"));
        File::create(path("less")).expect("a file").set_len(63 << 20).expect("a size");
        let refused = ctl(&["restore"], &[&saved.copy, &path("less")]);
        expect_failure(&refused, "and the volume 67108864; the device is unchanged");
    }
}

#[test]
fn a_copy_streams_through_pipes() {
    let saved = saved("log");
    let restored = saved.scratch.path().join("restored");
    let mut save = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"))
        .args(["image", "save"])
        .args([&saved.volume, Path::new("-")])
        .stdout(Stdio::piped())
        .spawn()
        .expect("sfs-ctl runs");
    let stream = save.stdout.take().expect("a pipe");
    let output = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"))
        .args(["image", "restore"])
        .args([Path::new("-"), &restored])
        .stdin(stream)
        .output()
        .expect("sfs-ctl runs");
    assert!(save.wait().expect("it ends").success());
    expect_success(&output);
    expect_volume(&restored);
    let again = ctl(&["save"], &[&saved.volume, &saved.copy]);
    expect_failure(&again, "exists; give -f to overwrite");
    expect_success(&ctl(&["save", "-f"], &[&saved.volume, &saved.copy]));
}

#[test]
fn a_damaged_copy_is_refused_and_leaves_no_volume() {
    let saved = saved("log");
    let (whole, target) = (fs::read(&saved.copy).expect("a copy"), saved.scratch.path().join("to"));
    let damaged = saved.scratch.path().join("damaged");
    let reset = || File::create(&target).expect("a file").set_len(64 << 20).expect("a size");
    let mut random = SeededRng::new(7);
    let (mut refused, mut streamed) = (0, 0);
    for round in 0..12 {
        let mut bytes = whole.clone();
        match round {
            0 => bytes.truncate(63),
            1 => bytes.truncate(64),
            2 => bytes.truncate(whole.len() - 1),
            3 => bytes.truncate(whole.len() - 32),
            4 => bytes.push(0),
            5..=7 => bytes.truncate(random.below(whole.len() as u64) as usize),
            _ => bytes[random.below(whole.len() as u64) as usize] ^= 1 << random.below(8),
        }
        fs::write(&damaged, &bytes).expect("a file");
        // A file is refused before the device is touched.
        reset();
        let output = ctl(&["restore"], &[&damaged, &target]);
        assert!(!output.status.success(), "round {round}");
        assert!(fs::read(&target).expect("the device").iter().all(|byte| *byte == 0));
        refused += 1;
        // A stream is noticed on the way.
        let mut restore = Command::new(env!("CARGO_BIN_EXE_sfs-ctl"))
            .args(["image", "restore", "-"])
            .arg(&target)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sfs-ctl runs");
        // The reader may stop early.
        let _ = restore.stdin.take().expect("a pipe").write_all(&bytes);
        let output = restore.wait_with_output().expect("it ends");
        assert!(!output.status.success(), "round {round}");
        streamed += u32::from(stderr(&output).contains("the device holds no volume now"));
        expect_no_volume(&target);
    }
    assert_eq!(refused, 12);
    assert!(streamed >= 6, "{streamed} streams were noticed on the way");
    expect_failure(
        &ctl(&["restore"], &[&saved.volume, &target]),
        "is not an image of an SFS volume",
    );
}

/// A mounted volume is frozen while it is saved, and goes on afterwards.
#[test]
fn mounted_volumes_are_saved_while_they_are_frozen() {
    if !can_mount() {
        return;
    }
    let volume = TestVolume::new("64M");
    let mount = volume.mount("");
    let bytes = content("file", 1, 3_000_000);
    fs::write(mount.dir.join("file"), &bytes).expect("writing");
    let copy = volume.scratch.path().join("copy");
    let inside = mount.dir.join("copy");
    expect_failure(&ctl(&["save"], &[&mount.dir, &inside]), "is on the volume that is saved");
    let said = expect_success(&ctl(&["save"], &[&mount.dir, &copy]));
    assert!(said.contains("of a volume of 64 MiB"), "{said}");
    fs::write(mount.dir.join("late"), b"late").expect("the mount goes on");
    let busy = ctl(&["save"], &[&mount.dir, &copy]);
    expect_failure(&busy, "exists");
    fs::write(mount.dir.join("later"), b"later").expect("a failure does not leave it frozen");
    let restored = volume.scratch.path().join("restored");
    expect_success(&ctl(&["restore"], &[&copy, &restored]));
    mount.unmount();
    let restored = TestVolume::existing(restored);
    restored.check();
    let mount = restored.mount("");
    assert!(fs::read(mount.dir.join("file")).expect("the file") == bytes);
    assert!(!mount.dir.join("late").exists());
    mount.unmount();
}
