//! Reservations: their space is there whatever other writers, crashes and mounts do.

use std::collections::BTreeMap;
use std::sync::Arc;

use sfs_core::format::{DataLayout, ROOT_INO};
use sfs_core::request::{
    AllocateMode, Allocation, AttributeChanges, Seek, VolumeOptions, WriteMode,
};
use sfs_core::{Error, Volume};
use sfs_device::RamDevice;

use crate::fixture::{FILE, SEGMENT_BLOCKS, after, caller, open, ram_as, settle, tight};
use crate::random::{ReplayHint, SplitMix64, number};

const BLOCK: u64 = 4096;

fn make(volume: &Volume, name: &str) -> Result<u64, Error> {
    volume.make_node(ROOT_INO, name.as_bytes(), FILE, 0, &caller()).map(|entry| entry.ino)
}

fn write(volume: &Volume, ino: u64, block: u64, blocks: u64, byte: u8) -> Result<(), Error> {
    let bytes = vec![byte; (blocks * BLOCK) as usize];
    volume.write(ino, block * BLOCK, &bytes, WriteMode::default(), &caller())
}

fn allocate(
    volume: &Volume,
    ino: u64,
    mode: AllocateMode,
    (offset, len): (u64, u64),
    keep_size: bool,
) -> Result<(), Error> {
    let allocation = Allocation { mode, keep_size, keep_times: false, kill_privileges: false };
    volume.allocate(ino, (offset, len), &allocation, &caller())
}

fn reserve(volume: &Volume, ino: u64, block: u64, blocks: u64) -> Result<(), Error> {
    allocate(volume, ino, AllocateMode::Reserve, (block * BLOCK, blocks * BLOCK), false)
}

fn truncate(volume: &Volume, ino: u64, size: u64) {
    let changes = AttributeChanges { size: Some(size), ..Default::default() };
    volume.set_attributes(ino, &changes, &caller()).map(drop).expect("a size");
}

fn read(volume: &Volume, ino: u64, block: u64, blocks: u64) -> Vec<u8> {
    let len = (blocks * BLOCK) as usize;
    volume.read(ino, block * BLOCK, len).expect("the read succeeds").as_bytes().to_vec()
}

/// Fills the volume with data and metadata until nothing more is admitted.
fn fill(volume: &Volume, prefix: &str) {
    for (no, blocks) in [256, 16, 1].into_iter().enumerate() {
        for count in 0.. {
            let Ok(ino) = make(volume, &format!("{prefix}-{no}-{count}")) else { break };
            let written = write(volume, ino, 0, blocks, 9);
            volume.forget(ino, 1);
            if written.is_err() {
                assert!(matches!(written, Err(Error::NoSpace)), "{written:?}");
                break;
            }
        }
    }
    // Names and attributes take what data does not get.
    for count in 0.. {
        match make(volume, &format!("{prefix}-empty-{count}")) {
            Ok(ino) => volume.forget(ino, 1),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Makes, fills with a reservation, and opens a volume of this layout.
fn reserved(
    data_layout: DataLayout,
    options: VolumeOptions,
    blocks: u64,
) -> (Arc<RamDevice>, Volume, u64) {
    let device = Arc::new(ram_as(16 << 20, SEGMENT_BLOCKS, data_layout));
    let volume = open(device.clone(), options);
    let file = make(&volume, "reserved").expect("a file");
    reserve(&volume, file, 0, blocks).expect("there is space");
    (device, volume, file)
}

#[test]
fn reserved_blocks_are_holes_that_read_as_zeros() {
    for data_layout in DataLayout::ALL {
        let (device, volume, file) = reserved(data_layout, VolumeOptions::default(), 100);
        let attributes = volume.attributes(file).expect("a file");
        assert_eq!((attributes.size, attributes.blocks), (100 * BLOCK, 100));
        write(&volume, file, 10, 2, 7).expect("a write");
        volume.sync_all().expect("a sync");
        assert_eq!(volume.attributes(file).expect("a file").blocks, 100);
        drop(volume);
        let volume = open(device, VolumeOptions::default());
        let mut expected = vec![0; 100 * BLOCK as usize];
        expected[10 * BLOCK as usize..12 * BLOCK as usize].fill(7);
        assert!(read(&volume, file, 0, 101) == expected, "{data_layout:?}");
        assert_eq!(volume.seek(file, 0, Seek::Data).expect("data"), 10 * BLOCK);
        assert_eq!(volume.seek(file, 10 * BLOCK, Seek::Hole).expect("a hole"), 12 * BLOCK);
        assert_eq!(volume.audit().expect("an audit"), []);
    }
}

/// The promise: another writer fills the volume, the volume crashes and mounts, and every reserved block can be
/// written, one by one in random order, each with a sync.
#[test]
fn what_was_reserved_can_be_written_on_a_full_volume() {
    for data_layout in DataLayout::ALL {
        for (no, options) in [tight(), VolumeOptions::default()].into_iter().enumerate() {
            let blocks = 600;
            let (device, volume, file) = reserved(data_layout, options.clone(), blocks);
            // Data may take less space than admission counts until it is committed.
            for round in 0..4 {
                fill(&volume, &format!("a{round}"));
                volume.sync_all().expect("admitted writes can be synced");
            }
            assert!(matches!(write(&volume, file, blocks, 1, 1), Err(Error::NoSpace)));
            drop(volume);
            let volume = open(device.clone(), options.clone());
            fill(&volume, "b");
            let mut random = SplitMix64::new(no as u64);
            let mut order: Vec<u64> = (0..blocks).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            for (count, block) in order.iter().enumerate() {
                let written = write(&volume, file, *block, 1, *block as u8 | 1);
                assert!(written.is_ok(), "{data_layout:?}, block {block}: {written:?}");
                let synced = if count % 7 == 0 { volume.sync_file(file) } else { Ok(()) };
                assert!(synced.is_ok(), "{data_layout:?}, block {block}: {synced:?}");
                assert!(volume.space().free_blocks <= volume.space().total_blocks);
            }
            volume.sync_all().expect("reserved blocks can be synced");
            assert_eq!(volume.audit().expect("an audit"), [], "{data_layout:?}");
            drop(volume);
            let volume = open(device, options);
            for block in 0..blocks {
                assert_eq!(read(&volume, file, block, 1), vec![block as u8 | 1; BLOCK as usize]);
            }
        }
    }
}

/// Truncating, deleting, punching and replacing give a reservation back exactly.
#[test]
fn space_of_reservations_comes_back() {
    for data_layout in DataLayout::ALL {
        let (device, volume, file) = reserved(data_layout, VolumeOptions::default(), 4);
        let free = |volume: &Volume| volume.space().available_blocks;
        let before = free(&volume);
        reserve(&volume, file, 4, 512).expect("there is space");
        // In place, leaves take space by whole segments.
        let is_log = data_layout == DataLayout::Log;
        assert_eq!(free(&volume), before - 512 - if is_log { 512 / 64 } else { 0 });
        allocate(&volume, file, AllocateMode::PunchHole, (4 * BLOCK, 512 * BLOCK), true)
            .expect("a hole");
        assert_eq!(free(&volume), before, "punched");
        let kept = (516 * BLOCK, 512 * BLOCK);
        allocate(&volume, file, AllocateMode::Reserve, kept, true).expect("there is space");
        assert!(free(&volume) <= before - 512, "behind the end");
        assert_eq!(volume.attributes(file).expect("a file").size, 516 * BLOCK);
        truncate(&volume, file, 516 * BLOCK);
        assert_eq!(free(&volume), before, "truncated to the same size");
        reserve(&volume, file, 4, 512).expect("there is space");
        truncate(&volume, file, 4 * BLOCK);
        assert_eq!(free(&volume), before, "truncated");
        let other = make(&volume, "other").expect("a file");
        reserve(&volume, other, 0, 512).expect("there is space");
        volume.forget(other, 1);
        volume.unlink(ROOT_INO, b"other", &caller()).expect("the name is removed");
        settle(&volume, after(1000)).expect("background work succeeds");
        assert_eq!(free(&volume), before, "deleted");
        // A file that a crash left without a name.
        let other = make(&volume, "other").expect("a file");
        reserve(&volume, other, 0, 512).expect("there is space");
        volume.unlink(ROOT_INO, b"other", &caller()).expect("the name is removed");
        volume.sync_all().expect("a sync");
        drop(volume);
        let volume = open(device, VolumeOptions::default());
        settle(&volume, after(2000)).expect("background work succeeds");
        assert!(free(&volume) + 8 >= before, "deleted after a crash");
        assert_eq!(volume.audit().expect("an audit"), []);
    }
}

/// One item for a range: a file of 1 TB is preallocated at once, and refused at once where it does not fit.
#[test]
fn a_long_range_is_quick() {
    let device = Arc::new(ram_as(4 << 40, 1 << 18, DataLayout::Log));
    let volume = open(device, VolumeOptions::default());
    let file = make(&volume, "file").expect("a file");
    let since = std::time::Instant::now();
    reserve(&volume, file, 0, (1 << 40) / BLOCK).expect("there is space");
    volume.sync_file(file).expect("a sync");
    assert_eq!(volume.attributes(file).expect("a file").blocks, (1 << 40) / BLOCK);
    let more = reserve(&volume, file, 0, (8 << 40) / BLOCK);
    assert!(matches!(more, Err(Error::NoSpace)), "{more:?}");
    assert_eq!(volume.attributes(file).expect("a file").size, 1 << 40);
    assert!(since.elapsed().as_secs() < 2);
}

/// Model of the promise: blocks that must be writable.
#[derive(Default)]
struct Promised {
    /// Blocks of each file that are reserved or written, with their byte.
    blocks: BTreeMap<(u64, u64), u8>,
}

#[test]
fn random_calls_keep_every_promise() {
    let first = number("SFS_SEED", 1);
    for seed in first..first + number("SFS_CASES", 6) {
        let test = "-p sfs-core --test model reservations::random_calls";
        let _hint = ReplayHint { test, seed, steps: 0 };
        for data_layout in DataLayout::ALL {
            random_calls(data_layout, seed);
        }
    }
}

fn random_calls(data_layout: DataLayout, seed: u64) {
    let mut random = SplitMix64::new(seed);
    let device = Arc::new(ram_as(8 << 20, SEGMENT_BLOCKS, data_layout));
    let options = || if seed.is_multiple_of(2) { tight() } else { VolumeOptions::default() };
    let mut volume = open(device.clone(), options());
    let files: Vec<u64> =
        (0..4).map(|no| make(&volume, &format!("{no}")).expect("a file")).collect();
    let mut promised = Promised::default();
    for step in 0..150 {
        let ino = random.pick(&files);
        let (block, blocks) = (random.below(200), 1 + random.below(60));
        let range = (ino, block)..(ino, block + blocks);
        let byte = 1 + random.below(255) as u8;
        match random.below(12) {
            0..=2 => {
                let keep_size = random.one_in(2);
                let bytes = (block * BLOCK, blocks * BLOCK);
                match allocate(&volume, ino, AllocateMode::Reserve, bytes, keep_size) {
                    Ok(()) => (block..block + blocks).for_each(|block| {
                        promised.blocks.entry((ino, block)).or_insert(0);
                    }),
                    Err(error) => assert!(matches!(error, Error::NoSpace), "{error:?}"),
                }
            }
            3 => {
                let bytes = (block * BLOCK, blocks * BLOCK);
                allocate(&volume, ino, AllocateMode::PunchHole, bytes, true).expect("a hole");
                promised.blocks.retain(|at, _| !range.contains(at));
            }
            4 => {
                let bytes = (block * BLOCK, blocks * BLOCK);
                match allocate(&volume, ino, AllocateMode::ZeroRange, bytes, random.one_in(2)) {
                    Ok(()) => (block..block + blocks).for_each(|block| {
                        promised.blocks.insert((ino, block), 0);
                    }),
                    Err(error) => assert!(matches!(error, Error::NoSpace), "{error:?}"),
                }
            }
            5..=7 => {
                let is_promised = (block..block + blocks)
                    .all(|block| promised.blocks.contains_key(&(ino, block)));
                match write(&volume, ino, block, blocks, byte) {
                    Ok(()) => (block..block + blocks).for_each(|block| {
                        promised.blocks.insert((ino, block), byte);
                    }),
                    Err(error) => {
                        assert!(matches!(error, Error::NoSpace), "step {step}: {error:?}");
                        assert!(!is_promised, "step {step}: a promised write was refused");
                    }
                }
            }
            8 => {
                let size = random.below(200 * BLOCK);
                truncate(&volume, ino, size);
                promised.blocks.retain(|at, _| at.0 != ino || at.1 < size.div_ceil(BLOCK));
                if let Some(byte) = promised.blocks.get_mut(&(ino, size / BLOCK)) {
                    // The tail of the last block may be exposed as zeros; it is not compared.
                    *byte = 0;
                    if !size.is_multiple_of(BLOCK) {
                        let _ = write(&volume, ino, size / BLOCK, 1, 0);
                    }
                }
            }
            9 => volume.sync_file(ino).expect("a sync"),
            10 => {
                volume.sync_all().expect("a sync");
                if random.one_in(2) {
                    drop(volume);
                    volume = open(device.clone(), options());
                }
            }
            _ => settle(&volume, after(1000 * step)).expect("background work succeeds"),
        }
        let space = volume.space();
        assert!(space.available_blocks <= space.free_blocks);
        assert!(space.free_blocks <= space.total_blocks);
    }
    assert_eq!(volume.audit().expect("an audit"), []);
    fill(&volume, "fill");
    volume.sync_all().expect("a sync");
    if random.one_in(2) {
        drop(volume);
        volume = open(device.clone(), options());
    }
    // Everything that was promised is written, in an order of its own.
    let mut order: Vec<(u64, u64)> = promised.blocks.keys().copied().collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    for (ino, block) in &order {
        let size = volume.attributes(*ino).expect("a file").size;
        if *block * BLOCK + BLOCK <= size {
            let expected = vec![promised.blocks[&(*ino, *block)]; BLOCK as usize];
            assert!(read(&volume, *ino, *block, 1) == expected, "{data_layout:?} {ino} {block}");
        }
        let written = write(&volume, *ino, *block, 1, 3);
        assert!(written.is_ok(), "{data_layout:?}: {ino} block {block}: {written:?}");
        promised.blocks.insert((*ino, *block), 3);
        if random.one_in(9) {
            volume.sync_file(*ino).expect("a promised block can be synced");
        }
    }
    volume.sync_all().expect("promised blocks can be synced");
    assert_eq!(volume.audit().expect("an audit"), []);
}
