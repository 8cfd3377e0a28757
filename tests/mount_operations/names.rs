//! Names, links, directories, and attributes that belong to names.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags, lgetxattr,
    lremovexattr, lsetxattr, makedev, mknodat, renameat_with, utimensat,
};

use super::snapshot::{read_quietly, xattr};
use super::{expect_errno, on_volumes};
use crate::harness::transport;

/// Scenarios that other tests run on other kinds of volumes.
pub(crate) const EVERYTHING: &[fn(&Path)] = &[
    renames,
    links,
    symlinks,
    xattrs,
    names_of_all_kinds,
    times,
    privileges,
    directories,
    deleting_while_listing,
];

/// Files in the directory that is listed while they are deleted.
const LISTED: usize = 10_000;

/// An ordinary user.
const NOBODY: u32 = 65_534;

#[test]
fn mounted_renames_follow_posix_and_renameat2() {
    on_volumes(renames);
}

fn renames(dir: &Path) {
    let [one, two, three] = ["one", "two", "three"].map(|name| dir.join(name));
    fs::write(&one, "1").expect("writing");
    fs::write(&two, "2").expect("writing");
    let rename = |from: &Path, to: &Path, flags| renameat_with(CWD, from, CWD, to, flags);
    expect_errno(rename(&one, &two, RenameFlags::NOREPLACE), libc::EEXIST);
    rename(&one, &three, RenameFlags::NOREPLACE).expect("the name is not taken");
    expect_errno(rename(&one, &two, RenameFlags::EXCHANGE), libc::ENOENT);
    rename(&two, &three, RenameFlags::EXCHANGE).expect("both are there");
    let read = |path: &Path| fs::read_to_string(path).expect("reading");
    assert_eq!((read(&two), read(&three)), ("1".into(), "2".into()));
    fs::rename(&three, &two).expect("a rename over a file");
    assert_eq!(read(&two), "2");
    whiteouts(&one, &two);

    let [outer, other] = ["outer", "other"].map(|name| dir.join(name));
    let inner = outer.join("inner");
    fs::create_dir_all(&inner).expect("directories");
    fs::create_dir(&other).expect("a directory");
    expect_errno(fs::rename(&outer, inner.join("below")), libc::EINVAL);
    expect_errno(fs::rename(&other, &outer), libc::ENOTEMPTY);
    expect_errno(fs::rename(&other, &two), libc::ENOTDIR);
    expect_errno(fs::rename(&two, &other), libc::EISDIR);
    rename(&two, &inner, RenameFlags::EXCHANGE).expect("a file and a directory");
    assert!(two.is_dir() && inner.is_file());
    assert_eq!((links_of(&outer), links_of(dir)), (2, 5));
    fs::rename(&outer, &other).expect("a rename over an empty directory");
}

/// Asserts that `two` is a file and `one` does not exist.
fn whiteouts(one: &Path, two: &Path) {
    let rename = |from: &Path, to: &Path, flags| {
        renameat_with(CWD, from, CWD, to, RenameFlags::WHITEOUT | flags)
    };
    let none = RenameFlags::empty();
    rename(two, one, none).expect("a whiteout is left");
    let whiteout = fs::symlink_metadata(two).expect("the entry exists");
    assert!(whiteout.file_type().is_char_device());
    assert_eq!((whiteout.rdev(), whiteout.mode() & 0o7777, whiteout.nlink()), (0, 0, 1));
    expect_errno(rename(one, two, RenameFlags::NOREPLACE), libc::EEXIST);
    expect_errno(rename(one, two, RenameFlags::EXCHANGE), libc::EINVAL);
    rename(one, two, none).expect("a rename over a whiteout");
    assert!(fs::symlink_metadata(one).expect("the entry exists").file_type().is_char_device());
    fs::remove_file(one).expect("deleting a whiteout");
    let [left, moved] = ["left", "moved"].map(|name| one.with_file_name(name));
    fs::write(&left, "content").expect("writing");
    rename(&left, &moved, RenameFlags::NOREPLACE).expect("the name is free");
}

fn links_of(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("the entry exists").nlink()
}

#[test]
fn mounted_links_share_one_inode() {
    on_volumes(links);
}

fn links(dir: &Path) {
    let path = |name: &str| dir.join(name);
    fs::write(path("first"), "content").expect("writing");
    fs::create_dir(path("sub")).expect("a directory");
    for index in 0..100 {
        fs::hard_link(path("first"), path("sub").join(format!("link-{index}"))).expect("a link");
    }
    assert_eq!(links_of(&path("first")), 101);
    expect_errno(fs::hard_link(path("first"), path("sub")), libc::EEXIST);
    expect_errno(fs::hard_link(path("sub"), path("directory")), libc::EPERM);
    for index in 0..50 {
        fs::remove_file(path("sub").join(format!("link-{index}"))).expect("deleting");
    }
    fs::remove_file(path("first")).expect("deleting");
    let last = path("sub").join("link-99");
    assert_eq!(links_of(&last), 50);
    assert_eq!(fs::read_to_string(last).expect("reading"), "content");
    // Both names are of the same file: the rename does nothing.
    fs::rename(path("sub").join("link-98"), path("sub").join("link-99")).expect("no effect");
    assert_eq!(links_of(&path("sub").join("link-98")), 50);
}

#[test]
fn mounted_symlinks_keep_their_target() {
    on_volumes(symlinks);
}

fn symlinks(dir: &Path) {
    for len in [1, 40, 255, 2000, 4095] {
        let target = PathBuf::from("t".repeat(len));
        let link = dir.join(format!("link-{len}"));
        symlink(&target, &link).expect("a link");
        assert_eq!(fs::read_link(&link).expect("the target"), target);
        assert_eq!(fs::symlink_metadata(&link).expect("the entry exists").len(), len as u64);
    }
    expect_errno(symlink("t".repeat(4096), dir.join("longer")), libc::ENAMETOOLONG);
}

#[test]
fn mounted_xattrs_are_stored_and_listed() {
    on_volumes(xattrs);
}

/// `u::rw-,u:65534:---,g::r--,m::r--,o::r--` as setxattr(2) takes it.
const ACCESS_LIST: &[u8] = b"\x02\0\0\0\
    \x01\0\x06\0\xff\xff\xff\xff\
    \x02\0\0\0\xfe\xff\0\0\
    \x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\
    \x20\0\x04\0\xff\xff\xff\xff";

fn xattrs(dir: &Path) {
    let file = dir.join("file");
    File::create(&file).expect("a file");
    let set = |name: &str, value: &[u8], flags| lsetxattr(&file, name, value, flags);
    let large: Vec<u8> = (0..65_536_u32).map(|index| (index * 7) as u8).collect();
    for (name, value) in [
        ("user.empty", &b""[..]),
        ("user.small", b"value"),
        ("user.large", &large),
        ("trusted.ours", b"root's"),
        ("security.ours", b"anyone's"),
    ] {
        set(name, value, XattrFlags::CREATE).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(xattr(&file, name.as_bytes()) == value, "{name}");
    }
    let list = set("system.posix_acl_access", ACCESS_LIST, XattrFlags::empty());
    if transport() == "fuser" {
        // The kernel would not enforce the list.
        expect_errno(list, libc::EOPNOTSUPP);
    } else {
        list.expect("an access list");
    }
    for unknown in ["other.name", "name"] {
        expect_errno(set(unknown, b"", XattrFlags::empty()), libc::EOPNOTSUPP);
        expect_errno(lgetxattr(&file, unknown, &mut [0; 8][..]), libc::EOPNOTSUPP);
        expect_errno(lremovexattr(&file, unknown), libc::EOPNOTSUPP);
    }
    expect_errno(set("user.", b"", XattrFlags::empty()), libc::EINVAL);
    expect_errno(lgetxattr(&file, "user.", &mut [0; 8][..]), libc::EINVAL);
    expect_errno(set("user.small", b"", XattrFlags::CREATE), libc::EEXIST);
    expect_errno(set("user.other", b"", XattrFlags::REPLACE), libc::ENODATA);
    expect_errno(set("user.larger", &[0; 65_537], XattrFlags::empty()), libc::E2BIG);
    set("user.small", &large[..5000], XattrFlags::REPLACE).expect("the entry exists");
    set("user.large", &large[1..], XattrFlags::empty()).expect("the entry exists");
    lremovexattr(&file, "user.empty").expect("the entry exists");
    expect_errno(lremovexattr(&file, "user.empty"), libc::ENODATA);
    let long = format!("user.{}", "n".repeat(250));
    set(&long, b"long", XattrFlags::empty()).expect("255 bytes");
    let both = XattrFlags::CREATE | XattrFlags::REPLACE;
    expect_errno(set("user.small", b"", both), libc::EEXIST);
    expect_errno(set("user.other", b"", both), libc::ENODATA);
    trusted_names_are_hidden(&file);
}

/// A process without CAP_SYS_ADMIN sees no names of `trusted.`.
fn trusted_names_are_hidden(file: &Path) {
    let listed = |without: &[&str]| {
        let mut command = Command::new("setpriv");
        let list = "import os, sys; print(os.listxattr(sys.argv[1]))";
        command.args(without).args(["python3", "-c", list]).arg(file);
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let names = listed(&["--no-new-privs"]);
    let Some(names) = names else {
        return eprintln!("skipped: setpriv or python3 is not installed");
    };
    assert!(names.contains("trusted.ours") && names.contains("user.small"), "{names}");
    let names = listed(&["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]);
    let names = names.expect("python3 runs");
    assert!(!names.contains("trusted.ours") && names.contains("user.small"), "{names}");
}

#[test]
fn mounted_names_of_all_lengths_and_types_are_listed() {
    on_volumes(names_of_all_kinds);
}

fn names_of_all_kinds(dir: &Path) {
    let mut names: Vec<OsString> = vec![
        OsStr::from_bytes(b"\xff\xfe\x80 not UTF-8").to_owned(),
        OsStr::from_bytes(&[0xc3; 255]).to_owned(),
        "n".repeat(255).into(),
        "line\nbreak".into(),
        "...".into(),
        " ".into(),
        "\u{1f980}".into(),
    ];
    for (index, name) in names.iter().enumerate() {
        fs::write(dir.join(name), [index as u8]).expect("writing");
    }
    let listed =
        fs::read_dir(dir).expect("the root").map(|entry| entry.expect("an entry").file_name());
    let mut listed: Vec<OsString> = listed.collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    expect_errno(File::create(dir.join("n".repeat(256))), libc::ENAMETOOLONG);
    expect_errno(fs::metadata(dir.join("n".repeat(254))), libc::ENOENT);
    let make = |name: &str, kind, device| {
        mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device).expect("a node");
    };
    make("fifo", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    make("null", FileType::CharacterDevice, makedev(1, 3));
    make("block", FileType::BlockDevice, makedev(259, 70_000));
}

#[test]
fn mounted_times_change_as_posix_says() {
    on_volumes(times);
}

fn times(dir: &Path) {
    let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: nanos };
    for (index, (secs, nanos)) in [
        (0, 0),
        (1, 999_999_999),
        (-1, 999_999_999),
        (-1, 1),
        (-2_208_988_800, 123_456_789), // 1900.
        (1 << 33, 1),
        (16_725_225_600, 999_999_999), // 2500.
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.join(format!("file-{index}"));
        let mut file = File::create(&path).expect("a file");
        std::io::Write::write_all(&mut file, b"content").expect("writing");
        let times =
            Timestamps { last_access: time(secs, nanos), last_modification: time(secs, nanos) };
        utimensat(CWD, &path, &times, AtFlags::empty()).expect("setting times");
        let expect = || {
            let seen = fs::metadata(&path).expect("the entry exists");
            assert_eq!((seen.mtime(), seen.mtime_nsec()), (secs, nanos), "modified");
            assert_eq!((seen.atime(), seen.atime_nsec()), (secs, nanos), "accessed");
        };
        expect();
        drop(file); // Closing the file must not change the times that were set.
        read_quietly(&path);
        expect();
    }
}

#[test]
fn mounted_privileges_are_dropped_by_writes_and_owners() {
    on_volumes(privileges);
}

fn privileges(dir: &Path) {
    let mode = |path: &Path| fs::metadata(path).expect("the entry exists").mode() & 0o7777;
    let program = |name: &str, mode: u32| {
        let path = dir.join(name);
        fs::write(&path, "program").expect("writing");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changing the mode");
        path
    };
    let as_nobody = |script: &str, path: &Path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(path).uid(NOBODY).gid(NOBODY);
        assert!(shell.status().expect("sh runs").success(), "{script}");
    };
    let written = program("written", 0o6777);
    assert_eq!(mode(&written), 0o6777);
    as_nobody("printf more >> \"$0\"", &written);
    assert_eq!(mode(&written), 0o777, "written by another user");
    let emptied = program("emptied", 0o6777);
    as_nobody(": > \"$0\"", &emptied);
    assert_eq!(mode(&emptied), 0o777, "truncated by another user");
    let given = program("given", 0o6755);
    chown(&given, Some(1000), Some(1000)).expect("changing the owner");
    assert_eq!(mode(&given), 0o755, "given to another user");
    // Without the group's right to execute, sgid is no privilege.
    let locked = program("locked", 0o6745);
    chown(&locked, Some(1000), Some(1000)).expect("changing the owner");
    assert_eq!(mode(&locked), 0o2745, "sgid without execution");
    let shared = dir.join("shared");
    fs::create_dir(&shared).expect("a directory");
    chown(&shared, None, Some(1234)).expect("changing the group");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).expect("changing the mode");
    as_nobody("mkdir \"$0\"/below && : > \"$0\"/file", &shared);
    let below = fs::metadata(shared.join("below")).expect("the entry exists");
    assert_eq!((below.gid(), below.mode() & 0o2000), (1234, 0o2000), "the group is inherited");
    assert_eq!(fs::metadata(shared.join("file")).expect("the entry exists").gid(), 1234);
}

#[test]
fn mounted_directories_check_their_type_and_count_links() {
    on_volumes(directories);
}

fn directories(dir: &Path) {
    let path = dir.join("directory");
    fs::create_dir(&path).expect("a directory");
    expect_errno(fs::create_dir(&path), libc::EEXIST);
    fs::write(path.join("file"), "content").expect("writing");
    expect_errno(fs::remove_dir(&path), libc::ENOTEMPTY);
    expect_errno(fs::remove_file(&path), libc::EISDIR);
    expect_errno(fs::remove_dir(path.join("file")), libc::ENOTDIR);
    expect_errno(fs::read_dir(path.join("file")), libc::ENOTDIR);
    expect_errno(File::create(path.join("file/below")), libc::ENOTDIR);
    fs::remove_file(path.join("file")).expect("deleting");
    assert_eq!(links_of(dir), 3);
    fs::remove_dir(&path).expect("the directory is empty");
    assert_eq!(links_of(dir), 2);
    let mut deep = dir.to_owned();
    for index in 0..60 {
        deep.push(format!("level-{index}"));
    }
    fs::create_dir_all(&deep).expect("directories");
    fs::write(deep.join("file"), "deep").expect("writing");
}

#[test]
fn mounted_directories_list_correctly_during_deletions() {
    on_volumes(deleting_while_listing);
}

fn deleting_while_listing(dir: &Path) {
    let path = dir.join("large");
    fs::create_dir(&path).expect("a directory");
    let file = |index: usize| path.join(format!("file-{index:05}"));
    for index in 0..LISTED {
        File::create(file(index)).expect("a file");
    }
    let mut seen = BTreeSet::new();
    let entries = fs::read_dir(&path).expect("a directory");
    for (index, entry) in entries.enumerate() {
        let name = entry.expect("an entry").file_name();
        assert!(seen.insert(name.clone()), "{name:?} is listed twice");
        // Odd names are deleted while others are listed, at any position of the listing.
        let odd = 2 * index + 1;
        if odd < LISTED {
            fs::remove_file(file(odd)).expect("deleting");
        }
    }
    for index in (0..LISTED).step_by(2) {
        let path = file(index);
        assert!(seen.contains(path.file_name().expect("a name")), "{} is missing", path.display());
    }
    assert_eq!(fs::read_dir(&path).expect("a directory").count(), LISTED / 2);
    // Each name is deleted as it is listed.
    for entry in fs::read_dir(&path).expect("a directory") {
        fs::remove_file(entry.expect("an entry").path()).expect("deleting");
    }
    fs::remove_dir(&path).expect("the directory is empty");
    let kept = dir.join("kept");
    fs::create_dir(&kept).expect("a directory");
    for index in 0..2000 {
        fs::write(kept.join(format!("file-{index}")), format!("{index}")).expect("writing");
    }
}
