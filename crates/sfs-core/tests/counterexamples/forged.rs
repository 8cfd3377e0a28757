//! What forged volumes did to those who mount them.

use std::hash::Hasher;
use std::sync::Arc;

use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, FIRST_INO, FileKind, Inode, InodeFlags, ItemKind,
    Key, ROOT_INO, SegmentState, Superblock, UsageEntry,
};
use sfs_core::request::{VolumeOptions, Work};
use sfs_core::{Basis, Error, Rebuild, Volume, root_directory};
use sfs_device::{Block, Device, RamDevice};

use crate::rig::{NOW, format};

/// Items that belong to no attribute: enough for many leaves.
const STRAYS: u64 = 60_000;

/// A volume whose file [`FIRST_INO`], with `links` names, has parts of attributes that never begin, with
/// the hash of `name`.
fn strays(links: u32, name: &[u8]) -> Volume {
    let device = Arc::new(RamDevice::new(1 << 14));
    format(&device, 64);
    let mut block = Block::zeroed(1);
    device.read(sfs_core::format::SUPERBLOCK_ADDRESS, &mut block).unwrap();
    let bytes: &[u8; 4096] = Block::bytes_of(&block).try_into().unwrap();
    let superblock = Superblock::decode(bytes, sfs_core::format::SUPERBLOCK_ADDRESS).unwrap();
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
    if links == 0 {
        rebuild.put(&Key::new(0, ItemKind::Orphan, FIRST_INO), &0_u64.to_le_bytes()).unwrap();
    }
    let flags = InodeFlags::XATTRS;
    let mode = FileKind::Regular.mode_bits() | 0o600;
    let file = Inode { mode, links, flags, parent: 0, size: 0, ..root };
    rebuild.put(&Key::inode(FIRST_INO), &file.encode()).unwrap();
    let [k0, k1] = superblock.hash_key;
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(k0, k1);
    hasher.write(name);
    let first = hasher.finish() >> 32 << 32;
    for no in 1..=STRAYS {
        rebuild.put(&Key::new(FIRST_INO, ItemKind::Xattr, first + no), b"").unwrap();
    }
    rebuild.commit(FIRST_INO + 1).unwrap();
    Volume::open(device, VolumeOptions::default(), NOW).unwrap()
}

/// All of them went in one transaction, which began anew for each leaf that was not in memory: 800,000
/// took two minutes.
#[test]
fn parts_of_no_attribute_are_deleted_in_steps() {
    let volume = strays(0, b"user.x");
    let mut steps = 0;
    while let Work::More = volume.work(NOW).unwrap() {
        steps += 1;
    }
    assert!(steps > STRAYS / 3000, "{steps} steps");
    assert!(matches!(volume.attributes(FIRST_INO), Err(Error::NotFound)), "it is gone");
}

/// Likewise for each who looked for an attribute of this hash, as every write does.
#[test]
fn parts_of_no_attribute_are_not_looked_at() {
    let volume = strays(1, b"security.capability");
    let before = volume.counters().nodes_read;
    let found = volume.xattr(FIRST_INO, b"security.capability");
    assert!(matches!(found, Err(Error::NoAttribute)), "{found:?}");
    let nodes = volume.counters().nodes_read - before;
    assert!(nodes < 10, "{nodes} nodes were read");
}
