//! A snapshot of all visible properties of a tree.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{lgetxattr, llistxattr};

/// Properties of one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    ino: u64,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    rdev: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    accessed: (i64, i64),
    content: u64,
    target: Option<PathBuf>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Returns the properties of `root` and of all files below it, by path.
pub(crate) fn snapshot(root: &Path) -> BTreeMap<PathBuf, Facts> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let facts = facts(&path);
        if fs::symlink_metadata(&path).expect("the entry exists").is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            waiting.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        found.insert(path.strip_prefix(root).expect("a path below the root").to_owned(), facts);
    }
    found
}

fn facts(path: &Path) -> Facts {
    let seen = fs::symlink_metadata(path).expect("the entry exists");
    let kind = seen.file_type();
    let content = if kind.is_file() { read_quietly(path) } else { Vec::new() };
    assert!(!kind.is_file() || content.len() as u64 == seen.len(), "{}", path.display());
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let is_device = kind.is_block_device() || kind.is_char_device();
    Facts {
        ino: seen.ino(),
        mode: seen.mode(),
        owner: (seen.uid(), seen.gid()),
        links: seen.nlink(),
        size: seen.len(),
        rdev: if is_device { seen.rdev() } else { 0 },
        modified: (seen.mtime(), seen.mtime_nsec()),
        changed: (seen.ctime(), seen.ctime_nsec()),
        accessed: (seen.atime(), seen.atime_nsec()),
        content: hasher.finish(),
        target: kind.is_symlink().then(|| fs::read_link(path).expect("a target")),
        xattrs: xattrs(path),
    }
}

/// Reads a file without moving its time of access.
pub(crate) fn read_quietly(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let file = File::options().read(true).custom_flags(libc::O_NOATIME).open(path);
    file.and_then(|mut file| file.read_to_end(&mut content)).expect("the content");
    content
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 1 << 16];
    let len = llistxattr(path, &mut names).expect("the attributes' names");
    let named = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    named.map(|name| (name.to_vec(), xattr(path, name))).collect()
}

/// Returns the value of one extended attribute.
pub(crate) fn xattr(path: &Path, name: &[u8]) -> Vec<u8> {
    let mut value = vec![0; 1 << 16];
    let len = lgetxattr(path, name, &mut value).expect("the attribute");
    value.truncate(len);
    value
}
