//! The program `sfs-mkfs`: devices that it refuses, content that it preserves, and content that it wipes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use sfs_core::format::{DataLayout, Superblock};
use sfs_testkit::LoopDevice;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn mkfs(arguments: &[&str], device: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sfs-mkfs"))
        .args(arguments)
        .arg(device)
        .output()
        .expect("sfs-mkfs runs")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Makes an image of `size` bytes with `bytes` at `offset`.
fn image(directory: &TempDir, size: u64, offset: u64, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join("image");
    let file = File::create(&path).expect("an image");
    file.set_len(size).expect("the size of the image");
    file.write_all_at(bytes, offset).expect("the content of the image");
    path
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Asserts that `sfs-mkfs` fails with `message` and leaves the image unchanged.
fn expect_refusal(arguments: &[&str], path: &Path, message: &str) {
    let before = fs::read(path).expect("the image");
    let output = mkfs(arguments, path);
    assert_eq!(stderr(&output), format!("sfs-mkfs: {}: {message}\n", path.display()));
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).is_empty());
    assert!(before == fs::read(path).expect("the image"), "the image was changed");
}

#[test]
fn a_missing_device_names_the_remedy_and_is_not_made() {
    let directory = directory();
    let path = directory.path().join("none");
    let output = mkfs(&[], &path);
    assert_eq!(code(&output), 1);
    assert_eq!(
        stderr(&output),
        format!(
            "sfs-mkfs: {}: no such file or device; give --size to make an image file\n",
            path.display()
        )
    );
    assert!(!path.exists());
}

#[test]
fn a_directory_and_a_character_device_are_refused() {
    let directory = directory();
    let output = mkfs(&["-f"], directory.path());
    assert_eq!(code(&output), 1);
    let message = format!("sfs-mkfs: {}: is a directory\n", directory.path().display());
    assert_eq!(stderr(&output), message);
    let output = mkfs(&["-f"], Path::new("/dev/null"));
    assert_eq!(code(&output), 1);
    assert_eq!(stderr(&output), "sfs-mkfs: /dev/null: is neither a file nor a block device\n");
}

#[test]
fn wrong_usage_exits_with_1() {
    let path = Path::new("/nonexistent");
    for arguments in [
        &["--frobnicate"][..],
        &["--segment-size", "8Q"],
        &["-U", "not-a-uuid"],
        &["-L", "a label that is longer than the sixty-four bytes that there are for it"],
    ] {
        assert_eq!(code(&mkfs(arguments, path)), 1, "{arguments:?}");
    }
    let version = mkfs(&["-V"], path);
    assert_eq!(code(&version), 0);
    assert!(stdout(&version).starts_with("sfs-mkfs "));
}

#[test]
fn foreign_content_is_refused_and_unchanged() {
    let directory = directory();
    let signatures: [(u64, &[u8], &str); 7] = [
        (0, b"XFSB", "has XFS filesystem (at byte 0)"),
        (0x438, b"\x53\xef", "has ext2/ext3/ext4 filesystem (at byte 1080)"),
        (64 * 1024 + 0x40, b"_BHRfS_M", "has btrfs filesystem (at byte 65600)"),
        (0x4000, b"SFS-log\n", "has SFS volume (at byte 16384)"),
        (0x10000, b"SFSp", "has SFS volume (at byte 65536)"),
        (32 * MIB - 512, b"EFI PART", "has GPT partition table (at byte 33553920)"),
        (32 * MIB - 4096, b"SFS-log\n", "has SFS volume (at byte 33550336)"),
    ];
    for (offset, bytes, message) in signatures {
        let path = image(&directory, 32 * MIB, offset, bytes);
        expect_refusal(&[], &path, &format!("{message}; give -f to overwrite"));
        expect_refusal(&["-n"], &path, &format!("{message}; give -f to overwrite"));
    }
}

#[test]
fn a_signature_in_the_last_odd_bytes_is_found() {
    let directory = directory();
    let size = 32 * MIB + 1536;
    let path = image(&directory, size, size - 512, b"EFI PART");
    let message = format!("has GPT partition table (at byte {})", size - 512);
    expect_refusal(&[], &path, &format!("{message}; give -f to overwrite"));
}

#[test]
fn a_volume_that_does_not_fit_is_refused_and_the_image_unchanged() {
    let directory = directory();
    let path = image(&directory, MIB, 5000, b"hello");
    let before = fs::read(&path).expect("the image");
    let output = mkfs(&[], &path);
    assert_eq!(code(&output), 1);
    let text = stderr(&output);
    assert!(
        text.contains("too small") && !text.contains("auto"),
        "the option was automatic: {text}"
    );
    let output = mkfs(&["--segment-size", "1M"], &path);
    assert!(stderr(&output).contains("; try --segment-size auto"), "{}", stderr(&output));
    assert!(before == fs::read(&path).expect("the image"));
    let path = image(&directory, 32 * MIB, 5000, b"hello");
    expect_refusal(
        &["--segment-size", "100K"],
        &path,
        "segment size must be a power of two from 128K to 1G",
    );
    expect_refusal(
        &["--size", "64M"],
        &path,
        "exists and has 33554432 bytes, not 67108864; remove it, or leave out --size",
    );
}

#[test]
fn a_dry_run_writes_nothing() {
    let directory = directory();
    let path = image(&directory, 64 * MIB, 0, b"XFSB");
    let before = fs::read(&path).expect("the image");
    let output = mkfs(&["-n", "-f", "-L", "photos"], &path);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
    assert!(stdout(&output).starts_with("Would make an SFS volume on "), "{}", stdout(&output));
    assert!(before == fs::read(&path).expect("the image"));

    let path = directory.path().join("new");
    let output = mkfs(&["-n", "--json", "--size", "64M"], &path);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!path.exists());
    let made: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(made["segment_size"], 256 << 10);
    assert_eq!(made["layout"], "log");
    assert_eq!(made["dry_run"], true);
}

#[test]
fn the_data_layout_is_stored_in_the_superblock_with_either_spelling() {
    let directory = directory();
    for (data_layout, option) in DataLayout::ALL
        .into_iter()
        .flat_map(|layout| ["--layout", "--placement"].map(|o| (layout, o)))
    {
        let name = data_layout.name();
        let path = directory.path().join(format!("{name}{option}"));
        let output = mkfs(&[option, name, "--size", "16M"], &path);
        assert_eq!((code(&output), stderr(&output).as_str()), (0, ""), "{option}");
        assert!(stdout(&output).contains(name), "{}", stdout(&output));
        let mut block = [0; 4096];
        let file = File::open(&path).expect("the image");
        file.read_exact_at(&mut block, 4 * 4096).expect("a superblock");
        let superblock = Superblock::decode(&block, 4).expect("a valid superblock");
        assert_eq!(superblock.data_layout, data_layout, "{option}");
    }
    let path = directory.path().join("none");
    let output = mkfs(&["--layout", "ext2", "--size", "16M"], &path);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("greedy-space"), "{}", stderr(&output));
    assert!(!path.exists());
}

#[test]
fn an_image_is_measured_only_on_request() {
    let directory = directory();
    let path = image(&directory, 64 * MIB, 0, b"");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = mkfs(arguments, &path);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).expect("JSON")
    };
    let made = json(&["--json"]);
    assert_eq!(made["segment_size"], 256 << 10);
    assert!(made["measured"].is_null());
    let made = json(&["--json", "-f", "--segment-size", "measure"]);
    let measured = &made["measured"];
    assert!(measured["written_bytes"].as_u64().expect("bytes") >= 64 * MIB, "{measured}");
    // The disk of this machine may be too uneven for a row, but then there is a reason.
    let rows = measured["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["size"].as_u64().expect("bytes") <= 8 * MIB), "{measured}");
    assert!(!rows.is_empty() || measured["unclear"]["reason"].is_string(), "{measured}");
    // The disk of this machine may have any erase block size; 32 segments of 2 MiB do not fit.
    let found = measured["segment_size"].as_u64().filter(|size| *size < 2 * MIB);
    assert_eq!(made["segment_size"], found.unwrap_or(256 << 10));
}

#[test]
fn an_image_in_use_is_refused() {
    let directory = directory();
    let path = image(&directory, 32 * MIB, 0, b"");
    let holder = File::open(&path).expect("the image");
    holder.lock().expect("a lock");
    expect_refusal(&[], &path, "is mounted or in use");
}

#[test]
fn making_an_image_prints_what_was_made() {
    let directory = directory();
    let path = directory.path().join("new");
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let output = mkfs(&["--size", "64M", "-L", "photos", "-U", uuid], &path);
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
    let expected = format!(
        "Made an SFS volume on {}\n  uuid      {uuid}\n  label     photos\n  segments  254 of 256 KiB\n  capacity  63.5 MiB\n",
        path.display()
    );
    assert_eq!(stdout(&output), expected);
    assert_eq!(fs::metadata(&path).expect("the image").len(), 64 * MIB);
    // systemd-makefs runs mkfs at every boot when libblkid finds no filesystem.
    let again = mkfs(&[], &path);
    assert_eq!(code(&again), 1);
    assert!(stderr(&again).contains("has SFS volume"), "{}", stderr(&again));
    assert_eq!(stdout(&mkfs(&["-q", "-f"], &path)), "");
}

#[test]
fn other_filesystems_are_wiped() {
    let makers: [(&str, &[&str]); 6] = [
        ("mkfs.ext4", &["-q", "-F"]),
        ("mkfs.xfs", &["-q", "-f"]),
        ("mkfs.btrfs", &["-q", "-f"]),
        ("mkswap", &[]),
        ("mkntfs", &["-q", "-F"]),
        ("mkfs.minix", &[]),
    ];
    for (maker, arguments) in makers {
        let directory = directory();
        let path = image(&directory, 320 * MIB, 0, b"");
        let made = Command::new(maker).args(arguments).arg(&path).output();
        if !made.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {maker} is not installed, or failed");
            continue;
        }
        assert!(blkid(&path).is_none_or(|seen| !seen.is_empty()), "{maker}");
        let refused = mkfs(&[], &path);
        assert_eq!(code(&refused), 1, "{maker}");
        assert!(stderr(&refused).contains("give -f"), "{maker}: {}", stderr(&refused));
        let output = mkfs(&["-f", "-K"], &path);
        assert_eq!(code(&output), 0, "{maker}: {}", stderr(&output));
        assert!(blkid(&path).is_none_or(|seen| seen.is_empty()), "{maker}: {:?}", blkid(&path));
    }
}

/// Returns the output of blkid(8); `None` if it is not installed.
fn blkid(path: &Path) -> Option<String> {
    let output = Command::new("blkid").arg("-p").arg(path).output();
    let Ok(output) = output else {
        eprintln!("skipped: blkid is not installed");
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn a_probe_follows_the_refusals_and_precedes_the_volume() {
    let directory = directory();
    let path = image(&directory, 32 * MIB, 0, b"XFSB");
    expect_refusal(&["--probe"], &path, "has XFS filesystem (at byte 0); give -f to overwrite");
    let output = mkfs(&["--probe", "-f"], &path);
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
    let verdict = format!("Probed {}: stores all data: ", path.display());
    assert!(stdout(&output).starts_with(&verdict), "{}", stdout(&output));
    assert!(stdout(&output).contains("\nMade an SFS volume"));
    let output = mkfs(&["--probe", "--json", "-f"], &path);
    let made: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(made["probed"]["claimed_bytes"], 32 * MIB);
    assert!(made["probed"]["fault"].is_null() && made["probed"]["bytes"].as_u64() > Some(1 << 20));
    assert_eq!(code(&mkfs(&["--probe", "-n", "-f"], &path)), 1, "a dry run writes nothing");
}

/// A misspelled name of a device must not become a file in memory.
#[test]
fn no_image_is_made_among_the_device_files() {
    let typo = Path::new("/dev/sfs-typo");
    let output = mkfs(&["--size", "8M"], typo);
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    let line = "sfs-mkfs: /dev/sfs-typo: no such device; an image file cannot be made in /dev, where \
                only device files are\n";
    assert_eq!(stderr(&output), line);
    assert!(!typo.exists());
    if Path::new("/dev/shm").is_dir() {
        let image = Path::new("/dev/shm").join(format!("sfs-mkfs-{}", std::process::id()));
        let output = mkfs(&["--size", "8M"], &image);
        std::fs::remove_file(&image).expect("an image was made");
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
}

#[test]
fn a_loop_device_gets_the_default_segment_size_without_a_measurement() {
    let directory = directory();
    let Some(device) = LoopDevice::attach(&image(&directory, 4 << 30, 0, b"")) else { return };
    // Other processes may delay the disk: the fastest of three runs counts.
    let mut durations = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        let output = mkfs(&["--json", "-f"], &device.path);
        durations.push(began.elapsed());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let made: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(made["segment_size"], 4 * MIB);
        assert!(made["measured"].is_null(), "a loop device has no erase blocks of its own");
    }
    assert!(durations.iter().any(|took| *took < Duration::from_secs(1)), "{durations:?}");
}

#[test]
fn a_full_output_is_an_error_and_a_closed_output_is_not() {
    let directory = directory();
    let run = |stdout: Stdio, stderr: Stdio, device: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mkfs"));
        command.arg("-f").arg(device).stdout(stdout).stderr(stderr);
        command.spawn().expect("sfs-mkfs runs").wait_with_output().expect("the program ends")
    };
    let full = || Stdio::from(File::options().write(true).open("/dev/full").expect("/dev/full"));
    let path = image(&directory, 64 << 20, 0, &[]);
    let output = run(full(), Stdio::piped(), &path);
    assert_eq!(code(&output), 1);
    assert_eq!(stderr(&output), "sfs-mkfs: output: No space left on device (os error 28)\n");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(code(&run(writer.into(), Stdio::piped(), &path)), 0);
    assert_eq!(code(&run(Stdio::null(), full(), Path::new("/nowhere"))), 1);
}

#[test]
fn sections_that_do_not_fit_are_refused_before_either_device_is_written() {
    let directory = directory();
    let disk = image(&directory, 64 * MIB, 5 * MIB, b"content of the disk");
    let ssd = directory.path().join("ssd");
    fs::write(&ssd, vec![7; 32 << 20]).expect("room");
    let before = [&disk, &ssd].map(|path| fs::read(path).expect("an image"));
    let cache = ssd.to_str().expect("UTF-8");
    let output = mkfs(&["--cache", cache, "--section", "1G:16K"], &disk);
    assert!(stderr(&output).contains("too small for a cache"), "{}", stderr(&output));
    assert_eq!(code(&output), 1);
    let after = [&disk, &ssd].map(|path| fs::read(path).expect("an image"));
    assert!(before == after, "a device was written");
    let output = mkfs(&["--cache", cache, "--section", "rest:16K"], &disk);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("of memory"), "{}", stdout(&output));
}
