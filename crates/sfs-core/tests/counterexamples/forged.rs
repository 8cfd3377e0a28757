//! Forged volumes: trees that no program of SFS writes, and the damage that a mount of such a tree must not
//! cause.

use std::hash::Hasher;
use std::sync::Arc;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, Corruption, CorruptionKind, FIRST_INO, FileKind,
    Inode, InodeFlags, ItemKind, Key, ROOT_INO, SUPERBLOCK_ADDRESS, SegmentState, Superblock,
    UsageEntry,
};
use sfs_core::request::{RenameMode, VolumeOptions, Work};
use sfs_core::{Basis, Error, Rebuild, Volume, root_directory};
use sfs_device::{Block, Device, RamDevice};

use crate::fixture::{NOW, caller, format};

/// Number of items that belong to no attribute: enough for many leaves.
const STRAYS: u64 = 60_000;

/// Returns a volume whose tree has the root directory and the items that `forge` puts, from [`FIRST_INO`] up to
/// inode number `ino_end`.
fn forged(ino_end: u64, forge: impl FnOnce(&Rebuild, &Superblock)) -> Volume {
    let device = Arc::new(RamDevice::new(1 << 14));
    format(&device, 64);
    let mut block = Block::zeroed(1);
    device.read(SUPERBLOCK_ADDRESS, &mut block).unwrap();
    let bytes: &[u8; 4096] = Block::bytes_of(&block).try_into().unwrap();
    let superblock = Superblock::decode(bytes, SUPERBLOCK_ADDRESS).unwrap();
    let mut slot = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
    let at = superblock.layout.slots[0];
    device.read(at, &mut slot).unwrap();
    let record = CheckpointRecord::decode(Block::bytes_of(&slot), superblock.volume(), at).unwrap();
    let mut usage = vec![UsageEntry::NEW; superblock.layout.segment_count as usize];
    usage[0].state = SegmentState::Open;
    let basis = Basis { record, usage, time: 0 };

    let rebuild = Rebuild::begin(device.clone(), &superblock, &basis).unwrap();
    let root = root_directory(0, 0, NOW);
    rebuild.put(&Key::inode(ROOT_INO), &root.encode()).unwrap();
    forge(&rebuild, &superblock);
    rebuild.commit(ino_end).unwrap();
    Volume::open(device, VolumeOptions::default(), NOW).unwrap()
}

/// Returns the hash of `name` on the volume of `superblock`.
fn hash(superblock: &Superblock, name: &[u8]) -> u64 {
    let [k0, k1] = superblock.hash_key;
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(k0, k1);
    hasher.write(name);
    hasher.finish()
}

/// Returns a volume whose file [`FIRST_INO`], with `links` names, has many parts of attributes without a first
/// part, under the hash of `name`.
fn strays(links: u32, name: &[u8]) -> Volume {
    forged(FIRST_INO + 1, |rebuild, superblock| {
        if links == 0 {
            rebuild.put(&Key::new(0, ItemKind::Orphan, FIRST_INO), &0_u64.to_le_bytes()).unwrap();
        }
        let flags = InodeFlags::XATTRS;
        let mode = FileKind::Regular.mode_bits() | 0o600;
        let file = Inode { mode, links, flags, parent: 0, size: 0, ..root_directory(0, 0, NOW) };
        rebuild.put(&Key::inode(FIRST_INO), &file.encode()).unwrap();
        let first = hash(superblock, name) >> 32 << 32;
        for no in 1..=STRAYS {
            rebuild.put(&Key::new(FIRST_INO, ItemKind::Xattr, first + no), b"").unwrap();
        }
    })
}

/// A deletion of all parts in one transaction starts anew for each leaf that is not in memory: 800,000 parts took
/// two minutes.
#[test]
fn stray_attribute_parts_are_deleted_in_bounded_steps() {
    let volume = strays(0, b"user.x");
    let mut steps = 0;
    while let Work::More = volume.work(NOW).unwrap() {
        steps += 1;
    }
    assert!(steps > STRAYS / 3000, "{steps} steps");
    assert!(matches!(volume.attributes(FIRST_INO), Err(Error::NotFound)), "the file still exists");
}

/// Every write searches for the attribute of the capabilities, so the search must skip stray parts of its hash.
#[test]
fn an_attribute_search_skips_stray_parts() {
    let volume = strays(1, b"security.capability");
    let before = volume.counters().nodes_read;
    let found = volume.xattr(FIRST_INO, b"security.capability");
    assert!(matches!(found, Err(Error::NoAttribute)), "{found:?}");
    let nodes = volume.counters().nodes_read - before;
    // Some of them are read along.
    assert!(nodes < 50, "{nodes} nodes were read");
}

/// Asserts that a rename into directory `first`, whose parent is `parent_of_first`, finds damage in item `wrong`.
/// Directory `first + 1` has `first` as its parent.
fn assert_rename_reports_damage(parent_of_first: u64, wrong: u64) {
    let [first, second, moved] = [FIRST_INO, FIRST_INO + 1, FIRST_INO + 2];
    let volume = forged(FIRST_INO + 3, |rebuild, superblock| {
        let root = Inode { size: 1, links: 3, ..root_directory(0, 0, NOW) };
        rebuild.put(&Key::inode(ROOT_INO), &root.encode()).unwrap();
        for (ino, parent) in [(first, parent_of_first), (second, first), (moved, ROOT_INO)] {
            let directory = Inode { parent, ..root_directory(0, 0, NOW) };
            rebuild.put(&Key::inode(ino), &directory.encode()).unwrap();
        }
        let cookie = (hash(superblock, b"moved") >> 9).max(1) << 8;
        let mut entry = moved.to_le_bytes().to_vec();
        entry.push(FileKind::Directory as u8);
        entry.extend_from_slice(b"moved");
        rebuild.put(&Key::new(ROOT_INO, ItemKind::Dirent, cookie), &entry).unwrap();
    });
    let renamed =
        volume.rename(ROOT_INO, b"moved", first, b"moved", RenameMode::Replace, &caller());
    let expected = Corruption::in_item(wrong, CorruptionKind::Value);
    assert!(matches!(renamed, Err(Error::Corrupt(found)) if found == expected), "{renamed:?}");
    assert_eq!(volume.lookup(ROOT_INO, b"moved").expect("the entry is unchanged").ino, moved);
}

/// `rename` walks from the new parent to the root, to refuse a directory below itself. Two directories that are each
/// other's parent would keep it walking for ever.
#[test]
fn a_rename_into_a_cycle_of_directories_reports_corruption() {
    assert_rename_reports_damage(FIRST_INO + 1, FIRST_INO + 1);
}

/// The root alone is its own parent. Another such directory was taken for the root.
#[test]
fn a_rename_into_a_directory_that_is_its_own_parent_reports_corruption() {
    assert_rename_reports_damage(FIRST_INO, FIRST_INO);
}

/// A parent that is no inode was taken for a name that does not exist, and was not counted as damage.
#[test]
fn a_rename_into_a_directory_without_a_parent_reports_corruption() {
    assert_rename_reports_damage(0, FIRST_INO);
    assert_rename_reports_damage(FIRST_INO + 1000, FIRST_INO);
}
