//! `sfs-mkfs --from`: the tree of the volume against the source, the same bytes every time, and sources that are
//! refused.

mod tree;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sfs_testkit::scratch_directory;
use tar::{EntryType, Header};
use tree::{assert_same, of_directory, of_image};

const ORDER: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Runs `sfs-mkfs` and returns its output.
fn mkfs(arguments: &[&str], image: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mkfs"));
    command.env_remove("SOURCE_DATE_EPOCH");
    command.args(arguments).arg(image).output().expect("sfs-mkfs runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn expect_made(arguments: &[&str], image: &Path) -> String {
    let output = mkfs(arguments, image);
    assert!(output.status.success(), "{}", stderr(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Asserts that nothing is made from `source`, and that the one line of the reason ends with `reason`.
fn expect_refusal(arguments: &[&str], image: &Path, reason: &str) {
    let output = mkfs(arguments, image);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.trim_end().ends_with(reason), "'{reason}': {said}");
    assert!(!image.exists(), "the image is removed");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn is_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    eprintln!("skipped: owners and devices need root");
    false
}

#[test]
fn a_directory_is_copied_with_everything() {
    if !is_root() {
        return;
    }
    let scratch = scratch_directory();
    let [source, image] = ["source", "image"].map(|name| scratch.path().join(name));
    tree::make(&source, &ORDER);
    let said = expect_made(&["--size", "64M", "--from", text(&source)], &image);
    let expected = of_directory(&source);
    assert_same(&of_image(&image), &expected);
    assert!(said.contains(&format!("files     {}", expected.len() - 3)), "{said}");
    // Zeros take no space: 3 MB of content, small files, and metadata.
    let space = tree::open(&image).space();
    assert!((space.total_blocks - space.free_blocks) * 4096 < 9 << 20, "{space:?}");
    // sfs-fsck finds nothing.
    let device = sfs_device::FileDevice::open(&image, sfs_device::Access::ReadOnly).expect("image");
    assert!(sfs_fsck::is_unmounted(&device).expect("a check"));
}

#[test]
fn the_same_content_and_seed_give_the_same_bytes() {
    if !is_root() {
        return;
    }
    let scratch = scratch_directory();
    let path = |name: &str| scratch.path().join(name);
    tree::make(&path("a"), &ORDER);
    tree::make(&path("b"), &[3, 7, 1, 6, 5, 2, 0, 4]);
    let made = |name: &str, source: &str, arguments: &[&str]| {
        let (image, source) = (path(name), path(source));
        let all = [&["--size", "64M", "--from", text(&source)], arguments].concat();
        expect_made(&all, &image);
        fs::read(image).expect("the image")
    };
    let first = made("1", "a", &["--seed", "release 7"]);
    assert!(first == made("2", "b", &["--seed", "release 7"]), "the order of creation is seen");
    assert!(first != made("3", "a", &["--seed", "release 8"]));
    assert!(first != made("4", "a", &[]));
    let features = tree::open(&path("1")).superblock().features;
    assert!(features.has_key_from_seed());
    assert!(!tree::open(&path("4")).superblock().features.has_key_from_seed());
    // Times are bounded by SOURCE_DATE_EPOCH, which is also the time of creation.
    let dated = path("dated");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sfs-mkfs"));
    let status = command
        .args(["--size", "64M", "--seed", "x", "--from", text(&path("a"))])
        .arg(&dated)
        .env("SOURCE_DATE_EPOCH", "1500100000")
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.expect("sfs-mkfs runs").success());
    assert_eq!(tree::open(&dated).superblock().created.secs, 1_500_100_000);
    let (dated, source) = (of_image(&dated), of_directory(&path("a")));
    let mut bounded = 0;
    for (name, node) in &dated {
        let mtime = source[name].mtime;
        bounded += u32::from(mtime > (1_500_100_000, 0));
        assert_eq!(node.mtime, mtime.min((1_500_100_000, 0)), "{}", name.escape_ascii());
    }
    assert!(bounded > 10);
}

#[test]
fn archives_of_gnu_tar_are_copied_with_everything() {
    if !is_root() {
        return;
    }
    let scratch = scratch_directory();
    let path = |name: &str| scratch.path().join(name);
    tree::make(&path("source"), &ORDER);
    // GNU tar stores a second name of a pipe as another pipe.
    fs::remove_file(path("source").join("empty/pipe")).expect("the second name");
    let expected = of_directory(&path("source"));
    let archive = |name: &str, arguments: &[&str]| {
        let made = Command::new("tar")
            .args(arguments)
            .args(["--sort=name", "-C", text(&path("source")), "-cf", text(&path(name)), "."])
            .output()
            .expect("tar runs");
        assert!(made.status.success(), "{}", stderr(&made));
    };
    let posix = ["--format=posix", "--xattrs", "--xattrs-include=*"];
    archive("posix", &posix);
    archive("posix sparse", &[&posix[..], &["--sparse"]].concat());
    archive("gnu", &["--format=gnu", "--sparse"]);
    for name in ["posix", "posix sparse", "gnu"] {
        let image = path(&format!("image of {name}"));
        expect_made(&["--size", "64M", "--from", text(&path(name))], &image);
        let mut expected = expected.clone();
        if name == "gnu" {
            // This form has whole seconds and no extended attributes.
            for node in expected.values_mut() {
                node.mtime.1 = 0;
                node.xattrs.clear();
            }
        }
        assert_same(&of_image(&image), &expected);
    }
    let made = Command::new("gzip").arg(path("posix")).status().expect("gzip runs");
    assert!(made.success());
    let reason = "is compressed with gzip; decompress it first";
    expect_refusal(&["--size", "64M", "--from", text(&path("posix.gz"))], &path("none"), reason);
}

/// Returns a header of the archive.
fn header(name: &[u8], kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header.set_cksum();
    header
}

fn archive(scratch: &Path, parts: &[&[u8]]) -> PathBuf {
    let path = scratch.join("archive");
    let mut file = File::create(&path).expect("a file");
    for part in parts {
        file.write_all(part).expect("a write");
        let padding = part.len().next_multiple_of(512) - part.len();
        file.write_all(&vec![0; padding]).expect("a write");
    }
    path
}

#[test]
fn hostile_archives_stay_within_the_volume() {
    let scratch = scratch_directory();
    let image = scratch.path().join("image");
    let end = [0; 1024];
    let refused = |parts: &[&[u8]], reason: &str| {
        let path = archive(scratch.path(), parts);
        expect_refusal(&["--size", "16M", "--from", text(&path)], &image, reason);
    };
    let file = |name: &[u8]| header(name, EntryType::Regular, 4).as_bytes().to_vec();
    let link = |name: &[u8], kind, target: &[u8]| {
        let mut header = header(name, kind, 0);
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    refused(&[&file(b"a/../../b"), b"text", &end], "a/../../b: has '..' in its name");
    refused(
        &[&link(b"away", EntryType::Symlink, b"/etc"), &file(b"away/passwd"), b"text", &end],
        "away/passwd: its parent is not a directory",
    );
    refused(
        &[&link(b"hard", EntryType::Link, b"../../etc/passwd"), &end],
        "hard: has '..' in its name",
    );
    refused(
        &[&link(b"hard", EntryType::Link, b"/etc/passwd"), &end],
        "hard: is a hard link to '/etc/passwd', which is no earlier file of the archive",
    );
    refused(
        &[header(b"huge", EntryType::Regular, 1 << 50).as_bytes(), b"text"],
        "huge: unexpected end of file",
    );
    refused(
        &[header(b"long", EntryType::GNULongName, 1 << 40).as_bytes(), b"text"],
        "archive: has a wrong size of a header",
    );
    refused(&[&file(b"cut"), b"text"], "archive: unexpected end of file");
    refused(&[&file(b"name")[..100]], "archive: has a wrong checksum of a header");
    let mut wrong = file(b"name");
    wrong[0] ^= 1;
    refused(&[&wrong, b"text", &end], "archive: has a wrong checksum of a header");
    refused(
        &[header(b"x", EntryType::new(b'M'), 0).as_bytes(), &end],
        "x: has the unknown type 'M'",
    );
    let mut sparse = header(b"sparse", EntryType::GNUSparse, 4);
    let gnu = sparse.as_gnu_mut().expect("a GNU header");
    gnu.sparse[0].offset = *b"77777777777\0";
    gnu.sparse[0].numbytes = *b"00000000004\0";
    gnu.realsize = *b"00000000010\0";
    sparse.set_cksum();
    refused(&[sparse.as_bytes(), b"text", &end], "sparse: has a wrong map of a sparse file");
    // Absolute names, repeated entries, and devices are content like any other.
    let mut null = header(b"/dev/null", EntryType::Char, 0);
    null.set_device_major(1).expect("a field");
    null.set_device_minor(3).expect("a field");
    null.set_cksum();
    let parts: [&[u8]; 8] = [
        &file(b"/etc/passwd"),
        b"1st!",
        &file(b"etc/passwd"),
        b"2nd!",
        &link(b"./etc/shadow", EntryType::Link, b"/etc/passwd"),
        &link(b"etc/up", EntryType::Symlink, b"../../../../etc/passwd"),
        null.as_bytes(),
        &end,
    ];
    let path = archive(scratch.path(), &parts);
    expect_made(&["--size", "16M", "--from", text(&path)], &image);
    let found = of_image(&image);
    let names: Vec<&[u8]> = found.keys().map(|name| &name[..]).collect();
    let expected: [&[u8]; 7] =
        [b"", b"/dev", b"/dev/null", b"/etc", b"/etc/passwd", b"/etc/shadow", b"/etc/up"];
    assert_eq!(names, expected);
    assert_eq!(found[&b"/etc/shadow"[..]].content, b"2nd!");
    assert_eq!(found[&b"/dev/null"[..]].rdev, rustix::fs::makedev(1, 3));
}

#[test]
fn a_source_that_does_not_fit_leaves_no_volume() {
    let scratch = scratch_directory();
    let [source, image] = ["source", "image"].map(|name| scratch.path().join(name));
    fs::create_dir(&source).expect("a directory");
    fs::write(source.join("large"), vec![1; 30 << 20]).expect("a file");
    let arguments = ["--size", "16M", "--from", text(&source)];
    let reason = "large: no space is left on the volume; give a larger --size, or --fit";
    expect_refusal(&arguments, &image, reason);
    // On an existing file, no superblock is ever written.
    File::create(&image).expect("an image").set_len(16 << 20).expect("a size");
    let output = mkfs(&["--from", text(&source)], &image);
    assert_eq!(output.status.code(), Some(1));
    let file = File::open(&image).expect("the image");
    for at in [4, 5, 4095] {
        let mut block = [1; 4096];
        file.read_exact_at(&mut block, at * 4096).expect("a block");
        assert!(block == [0; 4096], "block {at}");
    }
    let missing = source.join("missing");
    let reason = format!("{}: No such file or directory (os error 2)", missing.display());
    fs::remove_file(&image).expect("the image");
    expect_refusal(&["--size", "16M", "--from", text(&missing)], &image, &reason);
    // The image is within its own source.
    let inside = source.join("image");
    let reason =
        format!("{}: is the image that is being made; make it elsewhere", inside.display());
    fs::remove_file(source.join("large")).expect("the file");
    expect_refusal(&["--size", "16M", "--from", text(&source)], &inside, &reason);
    let reason =
        "--seed needs --layout log: data in place is safe from other users by a secret key";
    let arguments = ["--size", "16M", "--seed", "x", "--layout", "block-group"];
    expect_refusal(&arguments, &image, reason);
}

#[test]
fn a_fitted_image_is_full_and_a_smaller_one_is_too_small() {
    let scratch = scratch_directory();
    let [source, image, less] = ["source", "image", "less"].map(|name| scratch.path().join(name));
    fs::create_dir(&source).expect("a directory");
    for no in 0..40u8 {
        let content: Vec<u8> = (0..500_000u32).map(|at| (at >> 3) as u8 ^ no | 1).collect();
        fs::write(source.join(no.to_string()), content).expect("a file");
    }
    let fit = ["--fit", "--seed", "s", "--segment-size", "256K", "--from", text(&source)];
    expect_made(&fit, &image);
    let size = fs::metadata(&image).expect("the image").size();
    let data: u64 = 40 * 500_000;
    assert!(size < data * 27 / 20, "{size} bytes for {data}");
    let (found, expected) = (of_image(&image), of_directory(&source));
    assert!(found.iter().all(|(name, node)| node.content == expected[name].content));
    let smaller = (size - size / 16).to_string();
    let reason = "no space is left on the volume; give a larger --size, or --fit";
    let arguments = ["--size", &smaller, "--segment-size", "256K", "--from", text(&source)];
    expect_refusal(&arguments, &less, reason);
    expect_refusal(&["--fit", "--size", "10M", "--from", text(&source)], &less, reason);
    let again = mkfs(&fit, &image);
    assert!(stderr(&again).contains("exists; --fit makes a new image file"));
    // Nothing but the root directory: 32 segments.
    let nothing = scratch.path().join("nothing");
    fs::create_dir(&nothing).expect("a directory");
    expect_made(&["--fit", "--from", text(&nothing)], &less);
    assert_eq!(fs::metadata(&less).expect("the image").size(), (32 + 32 * 32 + 17) * 4096);
}

#[test]
fn a_volume_can_be_smaller_than_its_device() {
    let scratch = scratch_directory();
    let image = scratch.path().join("image");
    let file = File::create(&image).expect("an image");
    file.set_len(64 << 20).expect("a size");
    expect_made(&["--size", "16M"], &image);
    let layout = tree::open(&image).layout();
    assert_eq!(layout.block_count, 4096);
    assert_eq!(file.metadata().expect("the image").len(), 64 << 20);
    let output = mkfs(&["-f", "--size", "65M"], &image);
    assert!(stderr(&output).contains("exists and has 67108864 bytes, not 68157440"));
}
