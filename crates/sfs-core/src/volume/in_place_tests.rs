//! Regression tests of data in place that need access to private items.

use std::sync::Arc;

use sfs_device::Device;

use super::Volume;
use crate::fixture::{CALLER, NOW, create, new_placed, put, set_size, write};
use crate::format::Head;
use crate::format::{Change, DataLayout, Key, run_key};
use crate::log::Batch;
use crate::recovery::{Basis, Moved, Rebuild, read_checkpoints};
use crate::request::{OpenProgress, VolumeOptions};
use crate::writeback::CommitRequest;
use crate::{Error, Result};

fn open(device: Arc<dyn Device>) -> Result<Volume> {
    Volume::open(device, VolumeOptions::default(), NOW)
}

fn byte(volume: &Volume, ino: u64, at: u64) -> u8 {
    volume.read(ino, at, 1).expect("the block is read").as_bytes()[0]
}

/// A checkpoint that lacks a node builds the batch before it once more; both batches overwrite one
/// block in place. When the first batch has been written, the second still waits.
#[test]
fn a_block_built_twice_is_read_as_it_is() {
    let (_, volume) = new_placed(DataLayout::GreedySpace);
    let file = create(&volume, "f");
    write(&volume, file, &[1; 4096]);
    volume.sync_all().expect("RAM");
    let build = |byte: u8| {
        // Data that replaces a cut-off block goes with the next delta.
        set_size(&volume, file, 4095);
        write(&volume, file, &[byte; 4096]);
        let mut log = volume.log.lock();
        match volume.space.builder().build(
            &mut log,
            &mut volume.metadata.write(),
            &CommitRequest::before_checkpoint(),
        ) {
            Ok(built) => built,
            Err(_) => panic!("everything is in memory"),
        }
    };
    let (first, second) = (build(2), build(3));
    volume.log.write_batch(&mut volume.log.lock(), &first.chunks, &first.in_place).expect("RAM");
    assert_eq!(byte(&volume, file, 0), 3, "the device has the older content");
    volume.write(file, 4000, &[4; 4], Default::default(), &CALLER).expect("a write of a part");
    volume.log.write_batch(&mut volume.log.lock(), &second.chunks, &second.in_place).expect("RAM");
    volume.sync_all().expect("RAM");
    assert_eq!(
        byte(&volume, file, 0),
        3,
        "the last write of block 0, after a write of another part"
    );
}

/// Regression: the walk that marks taken blocks did not visit mappings of inode numbers below the
/// first file's.
#[test]
fn a_block_with_a_hidden_owner_is_refused() {
    let (device, volume) = new_placed(DataLayout::GreedySpace);
    let a = create(&volume, "a");
    put(&volume, a, 0, 40, 1).expect("there is room");
    volume.sync_all().expect("RAM");
    {
        let mut metadata = volume.metadata.write();
        let inode = metadata
            .tree
            .get(&Key::inode(a))
            .ok()
            .flatten()
            .expect("the inode is in the tree")
            .to_vec();
        let run = metadata
            .tree
            .get(&run_key(a, 32))
            .ok()
            .flatten()
            .expect("the run is in the tree")
            .to_vec();
        for (key, value) in [(Key::inode(5), inode), (run_key(5, 32), run)] {
            metadata.tree.prepare(&key).expect("in memory");
            metadata.tree.put(&key, &value).expect("in memory");
        }
    }
    volume.close().expect("RAM");
    drop(volume);
    let refused = open(device).err();
    assert!(matches!(refused, Some(Error::Corrupt(_))), "{refused:?}");
}

/// A forged delta maps the only block of a segment to its own address, and releases the segment.
#[test]
fn a_forged_map_of_what_is_mapped_causes_no_panic() {
    let (device, volume) = new_placed(DataLayout::GreedySpace);
    let f = create(&volume, "f");
    put(&volume, f, 0, 1, 1).expect("there is room");
    volume.sync_all().expect("RAM");
    {
        let mut log = volume.log.lock();
        let mut metadata = volume.metadata.write();
        let metadata = &mut *metadata;
        let mapping = metadata.mapping(f, 0).ok().flatten().expect("mapped");
        let address = mapping.address;
        let segment = metadata.usage.segment_of(address).expect("a segment");
        let map = |block: u32| Change::Map {
            ino: f,
            block,
            count: 1,
            address: address + u64::from(block),
        };
        for (maps, released) in [(vec![map(0)], vec![segment]), (vec![map(1)], vec![])] {
            let delta = metadata.delta(&maps, &released);
            let mut batch = Batch::default();
            let layout = &volume.superblock.layout();
            batch.reserve(&mut log, layout, &mut metadata.usage, Head::METADATA, 0, &delta);
            batch.fill(Vec::new());
            let id = volume.superblock.volume();
            let chunks = batch.finish(&mut log, id, metadata.usage.clock.now());
            volume.log.write_chunks(&mut log, &chunks).expect("RAM");
        }
    }
    drop(volume);
    let refused = open(device).err();
    assert!(matches!(refused, Some(Error::Corrupt(_))), "{refused:?}");
}

/// A repair that moves one block of each of many files leaves room for the tree.
#[test]
fn blocks_moved_by_a_repair_leave_room_for_the_tree() {
    for data_layout in DataLayout::ALL {
        let (device, volume) = new_placed(data_layout);
        volume.close().expect("RAM");
        let superblock = volume.superblock().clone();
        let record = read_checkpoints(&*device, &superblock).expect("RAM").record;
        let usage = volume.metadata.read().usage.entries().to_vec();
        drop(volume);
        let basis = Basis { record, usage, time: 0 };
        let rebuild = Rebuild::begin(device, &superblock, &basis).expect("the rebuild begins");
        let files = u64::from(superblock.layout.segment_count);
        let moved = (1..=files).map(|no| Moved {
            ino: no * 16,
            block: 0,
            history: crate::format::History::default(),
            content: sfs_device::Block([1; 4096]),
        });
        rebuild.move_blocks(moved.collect()).expect("there is room");
        let committed = rebuild.commit(files * 16 + 1);
        assert!(committed.is_ok(), "{data_layout:?}: {committed:?}");
    }
}

/// A mount for writing reads every mapping, and reports the number of blocks found.
#[test]
fn an_open_reports_the_blocks_that_it_finds() {
    let (device, volume) = new_placed(DataLayout::GreedySpace);
    for name in 0..300 {
        let file = create(&volume, &name.to_string());
        put(&volume, file, 0, 4, 1).expect("there is room");
    }
    volume.close().expect("the volume closes");
    let mut reports = Vec::new();
    let options = VolumeOptions::default();
    let progress = &mut |at: OpenProgress| reports.push(at);
    let opened = Volume::open_with_progress(device.clone(), options, NOW, progress);
    drop(opened.expect("the volume opens"));
    assert!(reports.len() > 2, "{reports:?}");
    assert!(reports.is_sorted_by_key(|at| at.found_blocks), "{reports:?}");
    assert!(reports.iter().all(|at| at.total_blocks == 1200), "{reports:?}");
    assert_eq!(reports.last().map(|at| at.found_blocks), Some(1200));

    let (options, mut count) = (VolumeOptions { read_only: true, ..Default::default() }, 0);
    let opened = Volume::open_with_progress(device, options, NOW, &mut |_| count += 1);
    drop(opened.expect("the volume opens"));
    assert_eq!(count, 0, "a read-only mount needs no free blocks");
}
