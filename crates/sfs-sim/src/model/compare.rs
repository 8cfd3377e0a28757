//! The comparison of a volume with its reference. A difference is a panic with its position.
//!
//! A comparison does not change the volume, except that [`listing`] creates and deletes files meanwhile, and
//! restores the times of the directory.

use std::collections::BTreeMap;

use sfs_core::format::{FileKind, Inode, InodeFlags, ROOT_INO, Timestamp};
use sfs_core::request::{Caller, Seek};
use sfs_core::{Error, Volume};

use super::content::BLOCK;
use super::fixture::same_kind;
use super::random::SplitMix64;
use super::reference::Reference;

/// Maximum length in bytes of files that are compared whole; of longer files, only the surroundings of their
/// blocks are compared.
const WHOLE_LEN_MAX: u64 = 2 << 20;

/// Asserts that `inode` has the attributes of `ino` in the reference.
pub fn attributes(reference: &Reference, ino: u64, inode: &Inode) {
    let node = reference.node(ino).expect("the reference has the file");
    let found = (inode.mode, inode.links, inode.uid, inode.gid, inode.rdev, inode.size);
    let expected = (node.mode, node.links, node.uid, node.gid, node.rdev, node.size());
    assert_eq!(found, expected, "mode, links, uid, gid, rdev, size of {ino}");
    let found = (inode.atime, inode.mtime, inode.ctime, inode.btime);
    assert_eq!(found, (node.atime, node.mtime, node.ctime, node.btime), "times of {ino}");
    assert_eq!(inode.flags.intersection(InodeFlags::OF_USERS), node.flags, "flags of {ino}");
    assert_eq!(inode.parent, node.parent, "parent of {ino}");
}

/// Asserts that a read returns the bytes, or the error, of the reference.
pub fn read(volume: &Volume, reference: &Reference, ino: u64, offset: u64, len: usize) {
    let expected = reference.regular(ino).map(|node| node.content.read(offset, len));
    match (volume.read(ino, offset, len), expected) {
        (Ok(found), Ok(expected)) => same_bytes(found.as_bytes(), &expected, ino, offset),
        (Err(a), Err(b)) if same_kind(&a, &b) => {}
        (found, expected) => panic!("read of {ino}: {found:?}, expected {:?}", expected.err()),
    }
}

/// Asserts that the bytes `found`, read from `ino` at `offset`, are `expected`.
pub fn same_bytes(found: &[u8], expected: &[u8], ino: u64, offset: u64) {
    if found == expected {
        return;
    }
    assert_eq!(found.len(), expected.len(), "bytes read of {ino} at {offset}");
    let at = found.iter().zip(expected).position(|(a, b)| a != b).expect("a different byte");
    panic!(
        "{ino} differs at byte {}: {:?}, expected {:?}",
        offset + at as u64,
        &found[at..found.len().min(at + 8)],
        &expected[at..expected.len().min(at + 8)],
    );
}

/// Asserts that seeks for data and holes agree with the reference.
///
/// A seek may report zeros as data, but only zeros as a hole.
pub fn seek(volume: &Volume, reference: &Reference, ino: u64, offset: u64) {
    let Ok(node) = reference.regular(ino) else { return };
    let size = node.content.size;
    match volume.seek(ino, offset, Seek::Data) {
        Ok(found) => {
            assert!((offset..size).contains(&found), "data of {ino} from {offset} at {found}");
            assert!(node.content.is_zero(offset, found), "data of {ino} in {offset}..{found}");
        }
        Err(Error::OutOfRange) => assert!(node.content.is_zero(offset, size)),
        Err(error) => panic!("data of {ino} from {offset}: {error}"),
    }
    match volume.seek(ino, offset, Seek::Hole) {
        Ok(found) => {
            assert!((offset..=size).contains(&found), "hole of {ino} from {offset} at {found}");
            let block_end = (found / BLOCK + 1) * BLOCK;
            assert!(node.content.is_zero(found, block_end), "no hole of {ino} at {found}");
        }
        Err(Error::OutOfRange) => assert!(offset >= size, "no hole of {ino} from {offset}"),
        Err(error) => panic!("hole of {ino} from {offset}: {error}"),
    }
}

/// Reads a directory in several parts while other entries are created and deleted.
///
/// Asserts that every entry that exists throughout is listed exactly once.
pub fn listing(volume: &Volume, reference: &Reference, ino: u64, seed: u64, now: Timestamp) {
    let Ok(node) = reference.directory(ino) else { return };
    let mut random = SplitMix64::new(seed);
    let caller = Caller { uid: 0, gid: 0, now, umask: None };
    let mut found = BTreeMap::new();
    let (mut cookie, mut guests) = (0, 0);
    loop {
        let mut left = 1 + random.below(5);
        let mut more = false;
        let from = cookie;
        let mut each = |entry: &sfs_core::request::DirectoryEntry<'_>| {
            if left == 0 {
                more = true;
                return false;
            }
            left -= 1;
            cookie = entry.cookie;
            if !entry.name.starts_with(b"guest") {
                let before = found.insert(entry.name.to_vec(), entry.ino);
                assert_eq!(before, None, "an entry of {ino} is listed twice");
            }
            true
        };
        volume.read_directory(ino, from, false, &mut each).expect("a listing");
        if !more {
            break;
        }
        // Another file is created and deleted. The times of the directory are restored below.
        if node.links > 0 && guests < 4 && !node.is_fixed() {
            guests += 1;
            create_and_delete(volume, ino, &caller);
        }
    }
    assert_eq!(found.remove(&b"."[..]), Some(ino));
    assert_eq!(found.remove(&b".."[..]), Some(node.parent));
    assert_eq!(found, node.entries, "entries of {ino}");
    if guests > 0 {
        restore_times(volume, reference, ino, &caller);
    }
}

/// Creates a file and deletes it again.
fn create_and_delete(volume: &Volume, parent: u64, caller: &Caller) {
    let name = format!("guest-{}", caller.now.nanos);
    match volume.make_node(parent, name.as_bytes(), super::fixture::FILE, 0, caller) {
        Ok(entry) => volume.forget(entry.ino, 1),
        Err(Error::Exists) => {}
        Err(error) => panic!("creating a file: {error}"),
    }
    volume.unlink(parent, name.as_bytes(), caller).expect("the file is deleted");
}

fn restore_times(volume: &Volume, reference: &Reference, ino: u64, caller: &Caller) {
    let node = reference.node(ino).expect("the directory exists");
    let changes = sfs_core::request::AttributeChanges {
        mtime: Some(node.mtime),
        ctime: Some(node.ctime),
        ..Default::default()
    };
    volume.set_attributes(ino, &changes, caller).expect("the times are restored");
}

/// Asserts that the volume has exactly the files, attributes, entries and bytes of the reference.
pub fn everything(volume: &Volume, reference: &Reference) {
    for (ino, node) in &reference.nodes {
        let inode = volume.attributes(*ino).unwrap_or_else(|error| panic!("{ino}: {error}"));
        attributes(reference, *ino, &inode);
        xattrs(volume, reference, *ino);
        match node.kind() {
            FileKind::Directory => directory(volume, reference, *ino),
            FileKind::Symlink => assert_eq!(volume.read_link(*ino).expect("a link"), node.target),
            FileKind::Regular => content(volume, reference, *ino),
            _ => {}
        }
    }
    assert!(reference.nodes.contains_key(&ROOT_INO));
    assert_eq!(volume.label(), reference.label);
}

fn directory(volume: &Volume, reference: &Reference, ino: u64) {
    let mut found = BTreeMap::new();
    let mut each = |entry: &sfs_core::request::DirectoryEntry<'_>| {
        if let Some(inode) = &entry.inode {
            attributes(reference, entry.ino, inode);
            assert_eq!(entry.kind, inode.kind());
            volume.forget(entry.ino, 1);
            found.insert(entry.name.to_vec(), entry.ino);
        }
        true
    };
    volume.read_directory(ino, 0, true, &mut each).expect("a listing");
    let node = reference.node(ino).expect("the directory exists");
    assert_eq!(found, node.entries, "entries of {ino}");
}

fn xattrs(volume: &Volume, reference: &Reference, ino: u64) {
    let node = reference.node(ino).expect("the file exists");
    let names = volume.xattr_names(ino).expect("names");
    let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    assert_eq!(names.pop(), Some(&b""[..]), "names end with a NUL");
    names.sort_unstable();
    assert!(names.iter().eq(node.xattrs.keys().collect::<Vec<_>>().iter()), "xattrs of {ino}");
    for (name, value) in &node.xattrs {
        assert!(volume.xattr(ino, name).expect("a value") == **value, "xattr of {ino}");
    }
}

fn content(volume: &Volume, reference: &Reference, ino: u64) {
    let content = &reference.node(ino).expect("the file exists").content;
    if content.size <= WHOLE_LEN_MAX {
        return read(volume, reference, ino, 0, content.size as usize + 10);
    }
    read(volume, reference, ino, 0, 3 * BLOCK as usize);
    read(volume, reference, ino, content.size - 2 * BLOCK, 3 * BLOCK as usize);
    for block in content.blocks.keys() {
        let offset = (u64::from(*block) * BLOCK).saturating_sub(BLOCK);
        read(volume, reference, ino, offset, 3 * BLOCK as usize);
    }
}
