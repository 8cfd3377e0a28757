//! The program from the outside: exit codes and output.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sfs_device::{Block, Device};
use tempfile::TempDir;

use super::findings::populated;
use super::forge::{Forge, SUB, Volume};

fn fsck(arguments: &[&str], device: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sfs-fsck"))
        .args(arguments)
        .arg(device)
        .output()
        .expect("sfs-fsck runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn image(directory: &TempDir, volume: &Volume) -> PathBuf {
    let path = directory.path().join("image");
    let mut blocks = Block::zeroed(volume.device.geometry().block_count as usize);
    volume.device.read(0, &mut blocks).expect("RAM");
    File::create(&path)
        .and_then(|file| file.write_all_at(Block::bytes_of(&blocks), 0))
        .expect("an image");
    path
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_sound_volume_exits_with_0_whatever_was_asked() {
    let directory = directory();
    let path = image(&directory, &populated().build());
    for arguments in [&[][..], &["-n"], &["-a"], &["-p"], &["-y"], &["-f", "-v", "--data"]] {
        let output = fsck(arguments, &path);
        assert_eq!(code(&output), 0, "{arguments:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let last = "clean, 3 files, 2 directories, 28672 bytes used\n";
        assert!(text.ends_with(last), "{arguments:?}: {text}");
    }
    let output = fsck(&["--json"], &path);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["clean"], true);
    assert_eq!(json["files"], 3);
}

#[test]
fn damage_exits_with_4_and_is_not_repaired() {
    let mut forge: Forge = populated();
    forge.change_inode(SUB, |inode| inode.size = 0);
    let directory = directory();
    let path = image(&directory, &forge.build());
    let before = std::fs::read(&path).expect("the image");
    for arguments in [&["-n"][..], &["-a"], &["-p"], &["-y"]] {
        let output = fsck(arguments, &path);
        assert_eq!(code(&output), 4, "{arguments:?}");
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        let expected = match arguments {
            ["-n"] => "",
            _ => "sfs-fsck: repair is not part of this version\n",
        };
        assert_eq!(errors, expected);
    }
    assert!(before == std::fs::read(&path).expect("the image"));
}

#[test]
fn what_cannot_be_checked_exits_with_8() {
    let directory = directory();
    let expect = |path: &Path, message: &str| {
        let output = fsck(&["-n"], path);
        assert_eq!(code(&output), 8, "{message}");
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(errors, format!("sfs-fsck: {}: {message}\n", path.display()));
    };
    expect(&directory.path().join("none"), "no such file or device");
    expect(directory.path(), "is a directory");
    let path = directory.path().join("short");
    File::create(&path).expect("a file");
    expect(&path, "not an SFS volume");
    let file = File::create(&path).expect("a file");
    file.set_len(1 << 20).expect("its size");
    file.write_all_at(b"XFSB", 0).expect("its content");
    expect(&path, "not an SFS volume, but: XFS filesystem");
    let path = image(&directory, &populated().build());
    let file = File::options().write(true).open(&path).expect("the image");
    file.set_len(8 << 20).expect("its size");
    expect(
        &path,
        "the device has 2048 blocks and its volume 4096: \
         a truncated image, or the wrong partition table",
    );
    file.lock().expect("a lock");
    expect(&path, "is mounted or in use; unmount it first");
}

#[test]
fn wrong_usage_exits_with_16() {
    let path = Path::new("/nonexistent");
    for arguments in [&["-n", "-y"][..], &["-p", "-n"], &["-a", "-y"], &["--frobnicate"]] {
        assert_eq!(code(&fsck(arguments, path)), 16, "{arguments:?}");
    }
    assert_eq!(code(&fsck(&["-V"], path)), 0);
}
