//! Volume that the filesystem has used, and its content.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{FileKind, Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, VolumeOptions, WriteMode, XattrMode};
use sfs_device::RamDevice;

pub(crate) const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };
const CALLER: Caller = Caller { uid: 1, gid: 2, now: NOW, umask: None };
pub(crate) const BLOCKS: u64 = 24_576;

/// Random number generator (splitmix64).
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }
}

/// Inode number, mode and content of files by path.
pub(crate) type FileTree = BTreeMap<Vec<u8>, (u64, u32, Vec<u8>)>;

/// Returns the number in the environment variable `name`, or `default`.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the layout of the volume.
pub(crate) fn layout() -> Layout {
    Layout::new(BLOCKS, 128, 0).expect("a layout")
}

/// Returns a volume with files of all kinds from several mounts, some of them deleted or overwritten, and the
/// device as it was at the last checkpoint.
pub(crate) fn used(is_closed: bool) -> (RamDevice, RamDevice) {
    used_for(4, is_closed)
}

/// Returns the same as [`used`] after `rounds` mounts.
pub(crate) fn used_for(rounds: u64, is_closed: bool) -> (RamDevice, RamDevice) {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: layout(),
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(layout())
    };
    let root = sfs_core::root_directory(0, 0, NOW);
    sfs_core::make(device.clone(), &superblock, &root).expect("a volume is made");
    let mut checkpoint = device.snapshot();
    for round in 0..rounds {
        let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("a mount");
        checkpoint = device.snapshot();
        use_volume(&volume, round).expect("the operations");
        if round + 1 < rounds || is_closed {
            volume.close().expect("an unmount");
        } else {
            volume.sync_all().expect("a sync");
        }
    }
    (device.snapshot(), if is_closed { device.snapshot() } else { checkpoint })
}

fn use_volume(volume: &Volume, round: u64) -> sfs_core::Result<()> {
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    let directory = FileKind::Directory.mode_bits() | 0o755;
    let regular = FileKind::Regular.mode_bits() | 0o644;
    for at in 0..6u64 {
        let name = format!("directory {at}");
        let sub = match volume.lookup(ROOT_INO, name.as_bytes()) {
            Ok(entry) => entry.ino,
            Err(_) => volume.make_node(ROOT_INO, name.as_bytes(), directory, 0, &CALLER)?.ino,
        };
        for number in 0..60u64 {
            let name = format!("file {round} {number}");
            let ino = volume.make_node(sub, name.as_bytes(), regular, 0, &CALLER)?.ino;
            let len = (number * number * 31 + at * 1000) % 120_000;
            let byte = (number + round * 7 + at) as u8;
            volume.write(ino, (number % 3) * 5000, &vec![byte; len as usize], mode, &CALLER)?;
            if number % 9 == 0 {
                volume.set_xattr(ino, b"user.test", &vec![7; 3000], XattrMode::Any, &CALLER)?;
            }
            if number % 10 == 3 {
                let name = format!("link {round} {number}");
                volume.symlink(sub, name.as_bytes(), &vec![b'x'; 900 + at as usize], &CALLER)?;
            }
            if round > 0 && number % 4 == 1 {
                let old = format!("file {} {number}", round - 1);
                volume.unlink(sub, old.as_bytes(), &CALLER)?;
            }
            if round > 0 && number % 4 == 2 {
                let old = format!("file {} {number}", round - 1);
                let ino = volume.lookup(sub, old.as_bytes())?.ino;
                volume.write(ino, 4096, &[byte; 6000], mode, &CALLER)?;
            }
        }
    }
    Ok(())
}

/// Writes files to a volume, and syncs.
pub(crate) fn write_more(volume: &Volume) -> sfs_core::Result<()> {
    let mode = WriteMode { keep_times: false, kill_privileges: false };
    for number in 0..100u64 {
        let name = format!("after {number}");
        let regular = FileKind::Regular.mode_bits() | 0o644;
        let ino = volume.make_node(ROOT_INO, name.as_bytes(), regular, 0, &CALLER)?.ino;
        volume.write(ino, 0, &vec![number as u8; 30_000], mode, &CALLER)?;
    }
    volume.sync_all()
}

/// Returns all files of the volume on `device`. Panics if a file is unreadable.
pub(crate) fn tree(device: Arc<RamDevice>) -> FileTree {
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let volume = Volume::open(device, options, NOW).expect("a mount");
    let mut tree = FileTree::new();
    let mut rest = vec![(ROOT_INO, Vec::new())];
    while let Some((ino, path)) = rest.pop() {
        let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
        let listed = volume.read_directory(ino, 0, false, &mut |entry| {
            entries.push((entry.ino, entry.name.to_vec()));
            true
        });
        listed.expect("a directory");
        for (ino, name) in entries {
            if name == b"." || name == b".." {
                continue;
            }
            let path = [&path[..], b"/", &name].concat();
            let inode = volume.attributes(ino).expect("attributes");
            let content = match inode.kind() {
                FileKind::Directory => {
                    rest.push((ino, path.clone()));
                    Vec::new()
                }
                FileKind::Symlink => volume.read_link(ino).expect("a target"),
                _ => {
                    let read = volume.read(ino, 0, inode.size as usize);
                    read.expect("the content of the file").as_bytes().to_vec()
                }
            };
            tree.insert(path, (ino, inode.mode, content));
        }
    }
    tree
}
