//! A tree of files as a value: of a directory, and of a volume in an image file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, chownat, lgetxattr, llistxattr,
    lsetxattr, mknodat, utimensat,
};
use rustix::process::{Gid, Uid};
use sfs_core::Volume;
use sfs_core::format::{FileKind, ROOT_INO, Timestamp};
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, FileDevice};

/// Attributes and content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, u32),
    pub(crate) links: u64,
    pub(crate) rdev: u64,
    /// Content of a regular file, target of a symbolic link.
    pub(crate) content: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// First path, in the order of paths, of the same file.
    pub(crate) first: Vec<u8>,
}

pub(crate) type Tree = BTreeMap<Vec<u8>, Node>;

/// Returns the tree below the directory `root`, which is called "".
pub(crate) fn of_directory(root: &Path) -> Tree {
    let (mut tree, mut firsts) = (Tree::new(), BTreeMap::new());
    let mut waiting = vec![(Vec::new(), root.to_owned())];
    let mut paths = BTreeMap::new();
    while let Some((name, path)) = waiting.pop() {
        if fs::symlink_metadata(&path).expect("a file").is_dir() {
            for entry in fs::read_dir(&path).expect("a directory") {
                let entry = entry.expect("an entry");
                let below = [&name[..], b"/", entry.file_name().as_bytes()].concat();
                waiting.push((below, entry.path()));
            }
        }
        paths.insert(name, path);
    }
    for (name, path) in paths {
        let found = fs::symlink_metadata(&path).expect("a file");
        let first = firsts.entry(found.ino()).or_insert_with(|| name.clone()).clone();
        let content = match found.mode() & 0o170_000 {
            0o100_000 => fs::read(&path).expect("a file"),
            0o120_000 => fs::read_link(&path).expect("a link").into_os_string().into_vec(),
            _ => Vec::new(),
        };
        let node = Node {
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            mtime: (found.mtime(), found.mtime_nsec() as u32),
            links: if found.is_dir() { 0 } else { found.nlink() },
            rdev: found.rdev(),
            content,
            xattrs: xattrs(&path),
            first,
        };
        tree.insert(name, node);
    }
    tree
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 65_536];
    let len = llistxattr(path, &mut list).unwrap_or(0);
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; 65_536];
        let len = lgetxattr(path, name, &mut value).expect("an attribute");
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Opens the volume in `image` for reading.
pub(crate) fn open(image: &Path) -> Volume {
    let device = FileDevice::open(image, Access::ReadOnly).expect("the image opens");
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    Volume::open(Arc::new(device), options, Timestamp::default()).expect("the volume opens")
}

/// Returns the tree of the volume in `image`, which must be sound.
pub(crate) fn of_image(image: &Path) -> Tree {
    let volume = open(image);
    assert_eq!(volume.audit().expect("an audit"), []);
    let mut paths = BTreeMap::new();
    let mut waiting = vec![(Vec::new(), ROOT_INO)];
    while let Some((name, ino)) = waiting.pop() {
        let inode = volume.attributes(ino).expect("attributes");
        if inode.kind() == FileKind::Directory {
            let each = &mut |entry: &sfs_core::request::DirectoryEntry<'_>| {
                if entry.name != b"." && entry.name != b".." {
                    waiting.push(([&name[..], b"/", entry.name].concat(), entry.ino));
                }
                true
            };
            volume.read_directory(ino, 0, false, each).expect("a listing");
        }
        paths.insert(name, (ino, inode));
    }
    let (mut tree, mut firsts) = (Tree::new(), BTreeMap::new());
    for (name, (ino, inode)) in paths {
        let content = match inode.kind() {
            FileKind::Regular => {
                let len = inode.size as usize;
                volume.read(ino, 0, len).expect("content").as_bytes().to_vec()
            }
            FileKind::Symlink => volume.read_link(ino).expect("a target"),
            _ => Vec::new(),
        };
        let names = volume.xattr_names(ino).expect("names");
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let value = |name: &[u8]| volume.xattr(ino, name).expect("an attribute");
        let node = Node {
            mode: inode.mode,
            owner: (inode.uid, inode.gid),
            mtime: (inode.mtime.secs, inode.mtime.nanos),
            links: if inode.kind() == FileKind::Directory { 0 } else { inode.links.into() },
            rdev: inode.rdev.into(),
            content,
            xattrs: names.map(|name| (name.to_vec(), value(name))).collect(),
            first: firsts.entry(ino).or_insert_with(|| name.clone()).clone(),
        };
        tree.insert(name, node);
    }
    tree
}

/// Asserts that two trees are the same, and names the first path that differs.
pub(crate) fn assert_same(found: &Tree, expected: &Tree) {
    let names = |tree: &Tree| -> Vec<String> {
        tree.keys().map(|name| name.escape_ascii().to_string()).collect()
    };
    assert_eq!(names(found), names(expected));
    for (name, node) in found {
        let (other, name) = (&expected[name], name.escape_ascii());
        assert!(node.content == other.content, "content of {name}");
        let without = |node: &Node| Node { content: Vec::new(), ..node.clone() };
        assert_eq!(without(node), without(other), "{name}");
    }
}

/// Makes a tree with files of all kinds below the new directory `root`; `order` decides in which order.
pub(crate) fn make(root: &Path, order: &[usize]) {
    fs::create_dir(root).expect("a directory");
    let steps: [&dyn Fn(); 8] = [
        &|| fs::write(root.join("small"), b"text").expect("a file"),
        &|| {
            let large: Vec<u8> = (0..3_000_001u32).map(|at| (at / 7) as u8).collect();
            fs::write(root.join("large"), large).expect("a file");
        },
        &|| {
            let sparse = File::create(root.join("sparse")).expect("a file");
            sparse.write_all_at(b"middle", 5_000_001).expect("a write");
            sparse.set_len(20_000_003).expect("a size");
            // Zeros that were written are holes of the volume as well.
            fs::write(root.join("zeros"), vec![0; 50_000]).expect("a file");
        },
        &|| {
            for no in 0..300 {
                let dir = root.join(format!("dir/{}/{no}", no % 7));
                fs::create_dir_all(&dir).expect("directories");
                fs::write(dir.join("x".repeat(255 - no % 200)), no.to_string()).expect("a file");
            }
        },
        &|| {
            symlink("../somewhere/else", root.join("link")).expect("a link");
            symlink("t".repeat(4000), root.join("long link")).expect("a link");
        },
        &|| {
            for (name, kind, rdev) in [
                ("pipe", FileType::Fifo, 0),
                ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
                ("disk", FileType::BlockDevice, rustix::fs::makedev(300, 70_000)),
            ] {
                mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), rdev)
                    .expect("a node");
            }
        },
        &|| {
            fs::create_dir(root.join("empty")).expect("a directory");
            fs::write(root.join("odd\nname \u{e9}\\"), b"").expect("a file");
        },
        &|| fs::write(root.join("program"), vec![7; 5000]).expect("a file"),
    ];
    for step in order {
        steps[*step]();
    }
    fs::hard_link(root.join("large"), root.join("dir/same")).expect("a link");
    fs::hard_link(root.join("pipe"), root.join("empty/pipe")).expect("a link");
    for (path, uid, gid) in [("small", 1000, 100), ("link", 5, 6), ("dir/3", 70_000, 80_000)] {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        chownat(CWD, root.join(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            .expect("an owner");
    }
    for (path, mode) in [("program", 0o6755), ("empty", 0o1777), ("small", 0o400)] {
        fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).expect("a mode");
    }
    let binary: Vec<u8> = (0..=255).rev().collect();
    for (path, name, value) in [
        ("small", "user.text", &b"value"[..]),
        ("small", "trusted.binary", &binary),
        ("dir", "trusted.of directory", b"\n\n"),
    ] {
        lsetxattr(root.join(path), name, value, XattrFlags::empty()).expect("an attribute");
    }
    // Directories last, and the root after them.
    let mut paths: Vec<Vec<u8>> = of_directory(root).into_keys().collect();
    paths.reverse();
    for (no, path) in (0..).zip(&paths) {
        let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: nanos };
        let mtime = time(1_500_000_000 + no * 1000, no as _);
        let times = Timestamps { last_access: time(9, 9), last_modification: mtime };
        let path = [root.as_os_str().as_bytes(), path].concat();
        utimensat(CWD, path.as_slice(), &times, AtFlags::SYMLINK_NOFOLLOW).expect("times");
    }
}
