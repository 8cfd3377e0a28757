//! What files are called whose numbers alone are known.
//!
//! Owns: a walk through the directories of a volume, from the root.
//! Promises: looks at a bounded number of names; a file that was not found is called by its number.
//! Never: takes a reference, or asks the kernel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sfs_core::Volume;
use sfs_core::format::{FileKind, ROOT_INO};

/// Names that are looked at: a second's worth, from flash.
const NAMES_MAX: usize = 200_000;

/// The paths of `inodes` of `volume`, which is mounted on `dir`.
pub(super) fn of(volume: &Volume, dir: &Path, inodes: &BTreeSet<u64>) -> Vec<String> {
    let found = find(volume, dir, inodes);
    let name = |ino: &u64| match found.get(ino) {
        Some(path) => path.display().to_string(),
        None => format!("inode {ino}"),
    };
    inodes.iter().map(name).collect()
}

fn find(volume: &Volume, dir: &Path, inodes: &BTreeSet<u64>) -> BTreeMap<u64, PathBuf> {
    let mut found = BTreeMap::new();
    let mut left = NAMES_MAX;
    let mut directories = VecDeque::from([(ROOT_INO, dir.to_owned())]);
    while let Some((ino, path)) = directories.pop_front()
        && found.len() < inodes.len()
        && left > 0
    {
        // What cannot be read leaves its files without a name here.
        let _ = volume.read_directory(ino, 0, false, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            let path = path.join(OsStr::from_bytes(entry.name));
            if inodes.contains(&entry.ino) {
                found.entry(entry.ino).or_insert(path);
            } else if entry.kind == FileKind::Directory {
                directories.push_back((entry.ino, path));
            }
            left = left.saturating_sub(1);
            left > 0
        });
    }
    found
}
