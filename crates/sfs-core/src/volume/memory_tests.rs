//! Tests of the memory that a volume keeps: the node cache and the inode table stay within their bounds.

use std::sync::Arc;

use sfs_device::RamDevice;

use crate::fixture::{CALLER, NOW, create, new_volume_of, put, write};
use crate::format::ROOT_INO;
use crate::memory::DirtyBuf;
use crate::request::VolumeOptions;
use crate::{Error, Volume};

/// Number of blocks of a device with room for the files.
const BLOCKS: u64 = 32 << 8;

/// Number of files of 1000 bytes, which fill about 2000 nodes.
const FILES: usize = 6000;

/// Maximum number of nodes in memory: half of the smallest cache and 256 more nodes may be dirty
/// before a change writes a checkpoint, and at least 128 nodes may be clean. A commit adds some
/// nodes.
const NODES_MAX: usize = 128 + 256 + 128 + 64;

/// Number of dirty nodes, with the smallest cache, at which changes wait for a checkpoint.
const DIRTY_NODES_MAX: usize = 3 * 64 + 256;

fn make_files(volume: &Volume) -> usize {
    let made = (0..FILES).map(|no| {
        let ino = create(volume, &no.to_string());
        write(volume, ino, &[7; 1000]);
        volume.forget(ino, 1);
        if no % 100 == 0 {
            volume.sync_all().expect("RAM");
        }
        volume.metadata.read().tree.node_count()
    });
    made.max().expect("counts of nodes")
}

/// Regression: a write for whose data the system had no memory ended the program.
#[test]
fn a_write_without_memory_waits_for_its_own_write_back_and_then_fails() {
    let options = VolumeOptions { write_buffer: 64 << 20, ..VolumeOptions::default() };
    let volume = new_volume_of(Arc::new(RamDevice::new(BLOCKS)), BLOCKS, options);
    let (pool, file) = (volume.dirty.pool().clone(), create(&volume, "f"));
    put(&volume, file, 0, 256, 1).expect("there is memory");
    pool.map_nothing(true);
    put(&volume, file, 256, 256, 2).expect("the first write is written back and leaves its memory");
    // Another user of the pool holds the memory that the next write needs.
    volume.sync_all().expect("RAM");
    let held: Vec<_> = std::iter::from_fn(|| DirtyBuf::new(1, &pool)).collect();
    assert!(matches!(put(&volume, file, 0, 1, 3), Err(Error::NoMemory)));
    assert!(matches!(volume.read(file, 0, 4096), Err(Error::NoMemory)));
    drop(held);
    let read = |block: u64| volume.read(file, block * 4096, 1).expect("memory").as_bytes()[0];
    assert_eq!((read(0), read(511)), (1, 2), "a write that failed changed nothing");
    put(&volume, file, 0, 1, 3).expect("there is memory again");
    assert_eq!(read(0), 3);
}

/// Regression: nodes that checkpoints wrote out stayed in the cache for ever, unless other nodes
/// were read.
#[test]
fn the_node_cache_stays_within_its_budget_while_files_are_made() {
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = new_volume_of(Arc::new(RamDevice::new(BLOCKS)), BLOCKS, options);
    let most = make_files(&volume);
    assert!(most <= NODES_MAX, "{most} nodes");
    let removed =
        (0..FILES).try_for_each(|no| volume.unlink(ROOT_INO, no.to_string().as_bytes(), &CALLER));
    removed.expect("the files are removed");
    volume.work(NOW).expect("the work succeeds");
    assert!(volume.metadata.read().tree.node_count() <= NODES_MAX);
}

/// Regression: while the log was held, as by a checkpoint on a slow device, changes made any number of nodes dirty.
#[test]
fn changes_wait_for_the_log_while_dirty_nodes_take_most_of_the_cache() {
    let options = VolumeOptions { cache: 1 << 20, ..VolumeOptions::default() };
    let volume = new_volume_of(Arc::new(RamDevice::new(BLOCKS)), BLOCKS, options);
    let dirty_nodes = || volume.metadata.read().tree.dirty_count();
    std::thread::scope(|scope| {
        let log = volume.log.lock();
        let make = || {
            (0..4 * FILES).for_each(|no| {
                create(&volume, &no.to_string());
            })
        };
        let files = scope.spawn(make);
        while !files.is_finished() && dirty_nodes() <= DIRTY_NODES_MAX {
            std::thread::yield_now();
        }
        let most = dirty_nodes();
        drop(log);
        files.join().expect("the files are made");
        assert!(most <= DIRTY_NODES_MAX + 8, "{most} dirty nodes");
    });
    assert!(dirty_nodes() <= DIRTY_NODES_MAX + 8);
}

/// Regression: the copies of the nodes of a checkpoint came on top of a full cache.
#[test]
fn the_node_cache_leaves_room_for_a_checkpoint_in_flight() {
    let options = VolumeOptions { cache: 4 << 20, ..VolumeOptions::default() };
    let volume = new_volume_of(Arc::new(RamDevice::new(BLOCKS)), BLOCKS, options);
    make_files(&volume);
    let nodes = || {
        volume.lookup(ROOT_INO, b"0").expect("a file");
        volume.metadata.read().tree.node_count()
    };
    assert!((900..=1024).contains(&nodes()), "the cache is full");
    volume.metadata.note_copied_nodes(400);
    let least = volume.metadata.read().tree.dirty_count() + 128;
    assert!(nodes() <= least.max(1024 - 400), "{} nodes", nodes());
}
