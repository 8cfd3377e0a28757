//! Exit codes and output of the program.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sfs_core::format::FileKind;
use sfs_device::{Block, Device};
use tempfile::TempDir;

use super::fixture::populated;
use super::forge::{Forge, SUB, entry_value};
use super::forged_volume::ForgedVolume;

/// End of the closing line of a check without `--data`.
const DATA_NOT_READ: &str = "; data was not read (--data reads it)";

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

pub(crate) fn image(directory: &TempDir, volume: &ForgedVolume) -> PathBuf {
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
fn a_sound_volume_exits_with_0_for_all_options() {
    let directory = directory();
    let path = image(&directory, &populated().build());
    let before = std::fs::read(&path).expect("the image");
    for arguments in [&["-n"][..], &["-f", "-a"], &["-pf"], &["-y"], &["-nfv", "--data"]] {
        let output = fsck(arguments, &path);
        assert_eq!(code(&output), 0, "{arguments:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let data = if arguments.contains(&"--data") { "" } else { DATA_NOT_READ };
        let last = format!("clean, 3 files, 2 directories, 28672 bytes used{data}\n");
        assert!(text.ends_with(&last), "{arguments:?}: {text}");
    }
    let output = fsck(&["-n", "--json"], &path);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&json["clean"], &json["data_read"]), (&true.into(), &false.into()));
    assert_eq!(json["files"], 3);
    assert!(before == std::fs::read(&path).expect("the image"), "nothing was written");
}

/// A repair without `--data` does not find damaged data, so its closing line says that data was not
/// read.
#[test]
fn a_repair_that_reads_no_data_says_so() {
    let directory = directory();
    let volume = populated().build();
    let path = image(&directory, &volume);
    let sound = String::from_utf8(fsck(&["-y"], &path).stdout).expect("UTF-8");
    assert!(
        sound.contains(": clean, ") && sound.ends_with(&format!("{DATA_NOT_READ}\n")),
        "{sound}"
    );
}

/// Returns a volume with 122 names that lead to no file.
fn dangling_names() -> ForgedVolume {
    let mut forge: Forge = populated();
    for ino in 1000..1122 {
        let name = format!("name-{ino}");
        let key = forge.entry_key(SUB, name.as_bytes());
        forge.put(key, entry_value(ino, FileKind::Regular, name.as_bytes()));
    }
    forge.build()
}

/// Without `-v`, five findings of a kind have a line each, and one line counts the others.
#[test]
fn findings_of_one_kind_are_grouped() {
    let directory = directory();
    let path = image(&directory, &dangling_names());
    let lines = |arguments: &[&str]| {
        let output = fsck(arguments, &path);
        assert_eq!(code(&output), 4);
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let text = lines(&["-n"]);
    assert!(text.contains(": and 117 more of this kind; -v lists all\n"), "{text}");
    assert!(text.lines().count() < 20, "{text}");
    let text = lines(&["-nv"]);
    assert!(text.lines().count() > 122 && !text.contains(" more of this kind"), "{text}");
}

/// No later run can name the losses of a repair, so the repair names each loss.
#[test]
fn a_repair_names_every_loss() {
    let directory = directory();
    let path = image(&directory, &dangling_names());
    let output = fsck(&["-y"], &path);
    assert_eq!(code(&output), 1);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for ino in 1000..1122 {
        let lost = format!("lost: /sub: inode {ino}: lost: \"name-{ino}\" in inode {SUB}\n");
        assert!(text.contains(&lost), "{lost}: {text}");
    }
    let again = String::from_utf8(fsck(&["-y"], &path).stdout).expect("UTF-8");
    assert!(!again.contains("lost: "), "{again}");
}

#[test]
fn preening_skips_an_unmounted_volume() {
    let mut forge: Forge = populated();
    forge.change_inode(SUB, |inode| inode.links = 7);
    let directory = directory();
    let path = image(&directory, &forge.build());
    for arguments in ["-a", "-p"] {
        let output = fsck(&[arguments], &path);
        assert_eq!(code(&output), 0);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(
            text.ends_with(": clean: the volume was unmounted; -f checks it in full\n"),
            "{text}"
        );
    }
    assert_eq!(code(&fsck(&["-a", "-f"], &path)), 1);
    assert_eq!(code(&fsck(&["-n"], &path)), 0);

    let mut forge: Forge = populated();
    forge.change_inode(SUB, |inode| inode.links = 7);
    forge.on_record = Box::new(|record| record.unmounted = false);
    let path = image(&directory, &forge.build());
    assert_eq!(code(&fsck(&["-a"], &path)), 1, "the volume was not unmounted");
}

#[test]
fn damage_exits_with_4_until_it_is_repaired() {
    let mut forge: Forge = populated();
    forge.change_inode(SUB, |inode| inode.size = 2);
    let directory = directory();
    let path = image(&directory, &forge.build());
    let before = std::fs::read(&path).expect("the image");
    for (arguments, message) in
        [("-n", ""), ("-pf", "a repair may lose data; run sfs-fsck -y to repair")]
    {
        let output = fsck(&[arguments], &path);
        assert_eq!(code(&output), 4, "{arguments}");
        let errors = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(errors.contains(message) && errors.is_empty() == message.is_empty(), "{errors}");
    }
    assert!(before == std::fs::read(&path).expect("the image"), "nothing was written");
    let output = fsck(&["-y"], &path);
    assert_eq!(code(&output), 1);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let name = path.display();
    let lost = format!("{name}: lost: /sub: inode 18: 1 names lost\n");
    assert!(text.contains(&lost), "{text}");
    assert!(text.contains(&format!("{name}: repaired: clean, 3 files")), "{text}");
    assert_eq!(code(&fsck(&["-y"], &path)), 0);
}

#[test]
fn a_repair_reports_its_losses_in_json() {
    let mut forge: Forge = populated();
    forge.change_inode(SUB, |inode| inode.size = 2);
    let directory = directory();
    let path = image(&directory, &forge.build());
    let output = fsck(&["-y", "--json"], &path);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["clean"], false);
    assert_eq!(json["repaired"], true);
    assert_eq!(json["errors_left"], 0);
    assert_eq!(json["losses"][0]["loss"], "Names");
    assert_eq!(json["losses"][0]["path"], "/sub");
}

#[test]
fn without_a_terminal_a_mode_is_required() {
    let directory = directory();
    let path = image(&directory, &populated().build());
    let output = fsck(&[], &path);
    assert_eq!(code(&output), 8);
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(errors, "sfs-fsck: not on a terminal: give -n to check, -p or -y to repair\n");
}

#[test]
fn an_unusable_device_exits_with_8() {
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
    file.set_len(1 << 20).expect("the size of the image");
    file.write_all_at(b"XFSB", 0).expect("the content of the image");
    expect(&path, "not an SFS volume; found: XFS filesystem");
    let path = image(&directory, &populated().build());
    let file = File::options().write(true).open(&path).expect("the image");
    file.set_len(8 << 20).expect("the size of the image");
    expect(
        &path,
        "the device has 2048 blocks, but its volume has 4096: \
         the image is truncated, or the partition table is wrong",
    );
    file.lock().expect("a lock");
    expect(&path, "is mounted or in use; unmount it first");
}

#[test]
fn wrong_usage_exits_with_16() {
    let path = Path::new("/nonexistent");
    for arguments in [&["-n", "-y"][..], &["-p", "-n"], &["-a", "-y"], &["-r", "-y"], &["--frob"]] {
        assert_eq!(code(&fsck(arguments, path)), 16, "{arguments:?}");
    }
    assert_eq!(code(&fsck(&["-V"], path)), 0);
}

#[test]
fn losses_go_to_standard_error_if_the_output_is_full() {
    let mut forge: Forge = populated();
    forge.items.remove(&sfs_core::format::Key::inode(super::forge::HELLO));
    let directory = directory();
    for (full, code_wanted) in [(true, 1 | 8), (false, 1)] {
        let path = image(&directory, &forge.build());
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-fsck"));
        command.arg("-y").arg(&path);
        if full {
            command.stdout(File::options().write(true).open("/dev/full").expect("/dev/full"));
        } else {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            command.stdout(writer);
        }
        let output = command.stderr(std::process::Stdio::piped()).output().expect("sfs-fsck runs");
        let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
        assert_eq!(code(&output), code_wanted, "{text}");
        assert_eq!(text.contains("lost: "), full, "{text}");
        assert_eq!(text.contains("sfs-fsck: output: No space left on device"), full, "{text}");
    }
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-fsck"));
    let output = command.args(["-n", "/nowhere"]).stderr(full).output().expect("sfs-fsck runs");
    assert_eq!(code(&output), 8);
}

#[test]
fn a_volume_without_superblocks_exits_with_4() {
    let directory = directory();
    let volume = populated().build();
    let path = image(&directory, &volume);
    let file = File::options().write(true).open(&path).expect("the image");
    for at in [sfs_core::format::SUPERBLOCK_ADDRESS, volume.superblock.layout.backup] {
        file.write_all_at(&[0; sfs_device::BLOCK_SIZE], at * 4096).expect("the image");
    }
    let output = fsck(&["-n"], &path);
    assert_eq!(code(&output), 4);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(text.contains("both superblocks are damaged"), "{text}");
}
