//! Paths of files by their inode numbers, found by a walk through the directories from the root.
//!
//! The walk visits a bounded number of names, whose memory it needs; a file that it does not find is named by its number.
//! Paths are escaped, so that no name can control a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sfs_core::Volume;
use sfs_core::format::{FileKind, ROOT_INO};

/// Largest number of names that the walk visits, which takes about a second on flash.
const NAMES_MAX: usize = 200_000;

/// Largest length of a path that the system accepts, in bytes. Longer paths are not followed, so
/// that copying a path costs a bounded time for each name, even in a very deep or a damaged tree.
const PATH_LEN_MAX: usize = 4096;

/// Returns the paths of `inodes` of `volume`, which is mounted on `dir`.
pub(super) fn of(volume: &Volume, dir: &Path, inodes: &BTreeSet<u64>) -> Vec<String> {
    let mut found = find(volume, dir, inodes);
    let name = |ino: &u64| found.remove(ino).unwrap_or_else(|| format!("inode {ino}"));
    inodes.iter().map(name).collect()
}

/// Returns a path for the log and the terminal, with control characters and invalid UTF-8 escaped.
fn escaped(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        shown.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    shown
}

/// Returns the paths of those `inodes` of `volume` that the walk finds, below `dir`.
pub(crate) fn find(volume: &Volume, dir: &Path, inodes: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    if inodes.contains(&ROOT_INO) {
        found.insert(ROOT_INO, escaped(dir));
    }
    let mut left = NAMES_MAX;
    // Paths are put together only for the inodes that are looked for, so the memory of the walk is that of the names.
    let mut directories = vec![Directory {
        ino: ROOT_INO,
        parent: 0,
        name: Vec::new(),
        path_len: dir.as_os_str().len(),
    }];
    let mut next = 0;
    while next < directories.len() && found.len() < inodes.len() && left > 0 {
        let Directory { ino, path_len, .. } = directories[next];
        // The files of a directory that cannot be read stay without names.
        let _ = volume.read_directory(ino, 0, false, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            left = left.saturating_sub(1);
            let path_len = path_len + 1 + entry.name.len();
            if path_len >= PATH_LEN_MAX {
                return left > 0;
            }
            if inodes.contains(&entry.ino) {
                found.entry(entry.ino).or_insert_with(|| {
                    escaped(&path_of(dir, &directories, next).join(OsStr::from_bytes(entry.name)))
                });
            }
            if entry.kind == FileKind::Directory {
                let (parent, name) = (next, entry.name.to_vec());
                directories.push(Directory { ino: entry.ino, parent, name, path_len });
            }
            left > 0
        });
        next += 1;
    }
    found
}

/// A directory that the walk has found.
struct Directory {
    ino: u64,
    /// Index of the directory that holds it; 0 for the root.
    parent: usize,
    name: Vec<u8>,
    /// Length of the path in bytes.
    path_len: usize,
}

/// Returns the path of the directory with index `at`.
fn path_of(dir: &Path, directories: &[Directory], mut at: usize) -> PathBuf {
    let mut names = Vec::new();
    while at > 0 {
        names.push(OsStr::from_bytes(&directories[at].name));
        at = directories[at].parent;
    }
    names.iter().rev().fold(dir.to_owned(), |path, name| path.join(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_core::format::DataLayout;
    use sfs_core::request::VolumeOptions;
    use sfs_device::RamDevice;
    use sfs_testkit::ram_volume::{caller, format, open};

    use super::*;

    fn new_volume() -> Volume {
        let device = Arc::new(RamDevice::new(1 << 14));
        format(device.clone(), 256, DataLayout::Log);
        open(device, VolumeOptions::default())
    }

    fn make(volume: &Volume, parent: u64, name: &[u8], mode: u32) -> u64 {
        volume.make_node(parent, name, mode, 0, &caller()).expect("there is room").ino
    }

    fn name(volume: &Volume, ino: u64) -> String {
        of(volume, Path::new("/mnt"), &[ino].into()).remove(0)
    }

    /// Names come from any user who may make files, and go to the log and to the terminal of the user who unmounts.
    #[test]
    fn a_name_cannot_control_a_terminal() {
        let volume = new_volume();
        let hostile = make(&volume, ROOT_INO, b"a\x1b[2J\nb\xff", 0o100_600);
        assert_eq!(name(&volume, hostile), r"/mnt/a\u{1b}[2J\nb\xff");
        let plain = make(&volume, ROOT_INO, "Müller's \"x\" \\".as_bytes(), 0o100_600);
        assert_eq!(name(&volume, plain), "/mnt/Müller's \"x\" \\");
    }

    /// Regression: the time of each step of a walk down a deep tree grew with the length of the
    /// path.
    #[test]
    fn a_file_beyond_the_longest_path_is_named_by_its_number() {
        let volume = new_volume();
        let long = [b'd'; 255];
        let mut files = Vec::new();
        let mut directory = ROOT_INO;
        for _ in 0..20 {
            files.push(make(&volume, directory, b"f", 0o100_600));
            directory = make(&volume, directory, &long, 0o040_700);
        }
        assert_eq!(
            name(&volume, files[3]),
            format!("/mnt{}/f", format!("/{}", "d".repeat(255)).repeat(3))
        );
        assert_eq!(name(&volume, files[19]), format!("inode {}", files[19]));
    }
}
