//! Writing of segments under the grouping policies that a user can choose.

use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::{
    CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, PolicyRecord, SUPERBLOCK_ADDRESS, Superblock,
};
use sfs_core::request::VolumeOptions;
use sfs_device::{Block, Device, RamDevice, Stream};

use crate::fixture::{NOW, blocks_for, create, format, write};

/// The last block of a file and the blocks appended to it belong to different groups.
#[test]
fn appending_keeps_the_write_buffer_within_its_budget() {
    for grouping in ["dac", "sfs", "sfs-fast12", "sepbit"] {
        let device = Arc::new(RamDevice::new(blocks_for(4000)));
        format(&device, 32);
        let options = VolumeOptions {
            grouping: grouping.into(),
            write_buffer: 4 << 20,
            ..VolumeOptions::default()
        };
        let volume = Volume::open(device.clone(), options, NOW).unwrap();
        let file = create(&volume, "f");
        write(&volume, file, 0, &[1; 5 * 4096 + 100]).unwrap();
        volume.sync_all().unwrap();
        let mut at = 5 * 4096 + 100;
        for _ in 0..4000 {
            volume
                .write(file, at, &[2; 4096], Default::default(), &crate::fixture::caller())
                .unwrap();
            at += 4096;
        }
        let waiting = 4000 - volume.counters().data_bytes / 4096;
        assert!(waiting < 2048, "{grouping}: {waiting} blocks wait in a buffer of 1024");
    }
}

/// A checkpoint may hold the state of an earlier policy of the same name, or of a policy under an earlier name.
#[test]
fn states_of_earlier_policies_do_not_prevent_a_mount() {
    for (name, len) in [("sfs", 32), ("sfs", 0), ("lifetime", 32), ("index", 7)] {
        let device = Arc::new(RamDevice::new(blocks_for(200)));
        format(&device, 32);
        let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).unwrap();
        let file = create(&volume, "f");
        write(&volume, file, 0, &[1; 5 * 4096]).unwrap();
        volume.close().unwrap();
        replace_policies(&device, PolicyRecord { name: name.into(), state: vec![63; len] });
        for grouping in ["sfs", "lifetime", "sfs-fast12"] {
            let options = VolumeOptions { grouping: grouping.into(), ..VolumeOptions::default() };
            let volume = Volume::open(device.clone(), options, NOW).unwrap();
            write(&volume, file, 0, &[2; 5 * 4096]).unwrap();
            volume.close().unwrap();
        }
    }
}

/// Replaces the states of policies in the newest checkpoint.
fn replace_policies(device: &Arc<RamDevice>, record: PolicyRecord) {
    let mut block = Block::zeroed(1);
    device.read(SUPERBLOCK_ADDRESS, &mut block).unwrap();
    let bytes: &[u8; 4096] = Block::bytes_of(&block).try_into().unwrap();
    let superblock = Superblock::decode(bytes, SUPERBLOCK_ADDRESS).unwrap();
    let volume = superblock.volume();
    let newest = superblock.layout.slots.into_iter().filter_map(|at| {
        let mut slot = Block::zeroed(CHECKPOINT_SLOT_BLOCKS as usize);
        device.read(at, &mut slot).unwrap();
        CheckpointRecord::decode(Block::bytes_of(&slot), volume, at).ok().map(|found| (at, found))
    });
    let (at, found) = newest.max_by_key(|(_, found)| found.number).expect("a checkpoint");
    let bytes = CheckpointRecord { policies: vec![record], ..found }.encode(volume, at);
    let mut blocks = Block::zeroed(bytes.len() / 4096);
    Block::bytes_of_mut(&mut blocks).copy_from_slice(&bytes);
    device.write(at, &[&blocks], Stream::default()).unwrap();
}
