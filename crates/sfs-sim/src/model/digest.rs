//! The digest of a namespace: the part of a state that a crash must not mix with other states.
//!
//! The digest has everything except the content, length and times of regular files, which become durable
//! together with the data, or later.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{FileKind, Inode, InodeFlags, ROOT_INO};

use super::reference::{Reference, ReferenceNode};

/// File with the attributes that belong to the namespace, without length and times of regular files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    ino: u64,
    node: ReferenceNode,
}

/// All paths, with the files that they refer to.
pub type Digest = BTreeMap<Vec<u8>, NamedFile>;

fn reduced(ino: u64, node: &ReferenceNode) -> NamedFile {
    let mut node = node.clone();
    if node.kind() == FileKind::Regular {
        node.mtime = node.btime;
        node.ctime = node.btime;
        node.atime = node.btime;
        node.content = Default::default();
    }
    node.entries = BTreeMap::new();
    node.replaces = false;
    NamedFile { ino, node }
}

/// Returns the digest of `reference`.
pub fn of_reference(reference: &Reference) -> Digest {
    let mut digest = Digest::new();
    let mut todo = vec![(b"/".to_vec(), ROOT_INO)];
    while let Some((path, ino)) = todo.pop() {
        let node = &reference.nodes[&ino];
        for (name, child) in &node.entries {
            todo.push(([&path[..], name, b"/"].concat(), *child));
        }
        digest.insert(path, reduced(ino, node));
    }
    digest
}

/// Reads a volume into a new reference, the content of files only if `with_content` is set.
pub fn capture(volume: &Volume, with_content: bool) -> Reference {
    let mut reference =
        Reference { nodes: BTreeMap::new(), references: BTreeMap::new(), label: volume.label() };
    let mut todo = vec![ROOT_INO];
    while let Some(ino) = todo.pop() {
        let inode = volume.attributes(ino).expect("attributes");
        let mut node = node_of(volume, ino, &inode);
        if node.is_directory() {
            let mut each = |entry: &sfs_core::request::DirectoryEntry<'_>| {
                if entry.cookie > 2 {
                    node.entries.insert(entry.name.to_vec(), entry.ino);
                }
                true
            };
            volume.read_directory(ino, 0, false, &mut each).expect("a listing");
            todo.extend(node.entries.values());
        } else if with_content && node.kind() == FileKind::Regular {
            capture_content(volume, ino, &inode, &mut node);
        }
        reference.nodes.insert(ino, node.into());
    }
    reference
}

fn node_of(volume: &Volume, ino: u64, inode: &Inode) -> ReferenceNode {
    let caller =
        sfs_core::request::Caller { uid: inode.uid, gid: inode.gid, now: inode.btime, umask: None };
    let mut node = ReferenceNode::new(inode.mode, &caller);
    (node.links, node.rdev, node.parent) = (inode.links, inode.rdev, inode.parent);
    (node.atime, node.mtime, node.ctime) = (inode.atime, inode.mtime, inode.ctime);
    node.flags = inode.flags.intersection(InodeFlags::OF_USERS);
    let names = volume.xattr_names(ino).expect("names");
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let value = volume.xattr(ino, name).expect("a value");
        node.xattrs.insert(name.to_vec(), Arc::new(value));
    }
    if node.kind() == FileKind::Symlink {
        node.target = volume.read_link(ino).expect("a target");
    }
    node
}

fn capture_content(volume: &Volume, ino: u64, inode: &Inode, node: &mut ReferenceNode) {
    node.content.size = inode.size;
    for run in data_blocks(volume, ino).chunk_by(|a, b| a + 1 == *b) {
        let bytes = volume
            .read(ino, u64::from(run[0]) * 4096, run.len() * 4096)
            .expect("the blocks are read");
        for (block, bytes) in run.iter().zip(bytes.as_bytes().chunks(4096)) {
            let mut bytes = bytes.to_vec();
            bytes.resize(4096, 0);
            node.content.blocks.insert(*block, Arc::new(bytes));
        }
    }
}

/// Returns the numbers of the blocks of a file that are not holes.
pub fn data_blocks(volume: &Volume, ino: u64) -> Vec<u32> {
    let mut blocks = Vec::new();
    let mut offset = 0;
    while let Ok(found) = volume.seek(ino, offset, sfs_core::request::Seek::Data) {
        blocks.push((found / 4096) as u32);
        offset = (found / 4096 + 1) * 4096;
    }
    blocks
}
