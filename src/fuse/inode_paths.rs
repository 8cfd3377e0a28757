//! Paths of files by their inode numbers, found by a walk through the directories from the root.
//!
//! The walk visits a bounded number of names; a file that it does not find is named by its number. Paths are
//! escaped, so that no name can control a terminal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    let found = find(volume, dir, inodes);
    let name = |ino: &u64| match found.get(ino) {
        Some(path) => escaped(path),
        None => format!("inode {ino}"),
    };
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

fn find(volume: &Volume, dir: &Path, inodes: &BTreeSet<u64>) -> BTreeMap<u64, PathBuf> {
    let mut found = BTreeMap::new();
    let mut left = NAMES_MAX;
    let mut directories = VecDeque::from([(ROOT_INO, dir.to_owned())]);
    while let Some((ino, path)) = directories.pop_front()
        && found.len() < inodes.len()
        && left > 0
    {
        // The files of a directory that cannot be read stay without names.
        let _ = volume.read_directory(ino, 0, false, &mut |entry| {
            if matches!(entry.name, b"." | b"..") {
                return true;
            }
            left = left.saturating_sub(1);
            if path.as_os_str().len() + 1 + entry.name.len() >= PATH_LEN_MAX {
                return left > 0;
            }
            let path = path.join(OsStr::from_bytes(entry.name));
            if inodes.contains(&entry.ino) {
                found.entry(entry.ino).or_insert(path);
            } else if entry.kind == FileKind::Directory {
                directories.push_back((entry.ino, path));
            }
            left > 0
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sfs_core::format::{Label, Layout, Superblock, Timestamp};
    use sfs_core::request::{Caller, VolumeOptions};
    use sfs_device::RamDevice;

    use super::*;

    const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };
    const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };

    fn new_volume() -> Volume {
        let layout = Layout::new(1 << 14, 256, 0).expect("the layout fits");
        let (label, hash_key) = (Label::NONE, [1, 2]);
        let superblock =
            Superblock { uuid: [7; 16], label, hash_key, created: NOW, ..Superblock::new(layout) };
        let device = Arc::new(RamDevice::new(1 << 14));
        let root = sfs_core::root_directory(0, 0, NOW);
        sfs_core::make(device.clone(), &superblock, &root).expect("a volume");
        Volume::open(device, VolumeOptions::default(), NOW).expect("the volume opens")
    }

    fn make(volume: &Volume, parent: u64, name: &[u8], mode: u32) -> u64 {
        volume.make_node(parent, name, mode, 0, &CALLER).expect("there is room").ino
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
