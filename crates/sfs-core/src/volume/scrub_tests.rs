//! Tests of the scrub: what it reads is compared with the device's own counts, and what it finds with planted damage.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, RamDevice, Stream};

use super::Volume;
use crate::fixture::{BLOCKS, create, new_placed, new_volume_of, put, set_size};
use crate::format::{DataLayout, ErrorKind, Key, LOCATOR_ADDRESS};
use crate::lock_rank;
use crate::request::{SCRUB_STEP_BLOCKS, ScrubCounts, ScrubDamage, ScrubStep, VolumeOptions};

/// Number of blocks of the volumes here: 256 segments of 32 blocks.
const BLOCK_COUNT: u64 = BLOCKS * 4;

/// Device that notes which blocks are read, and checks that its reader holds no lock.
struct WatchedDevice {
    inner: RamDevice,
    read: Mutex<BTreeSet<u64>>,
    blocks: AtomicUsize,
    expects_no_lock: AtomicBool,
    /// Addresses whose next read returns wrong content.
    flips: Mutex<BTreeSet<u64>>,
}

impl Device for WatchedDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        if self.expects_no_lock.load(Ordering::Relaxed) {
            assert!(lock_rank::is_none_held(), "a lock is held while {address} is read");
        }
        self.read.lock().extend(address..address + buffer.len() as u64);
        self.blocks.fetch_add(buffer.len(), Ordering::Relaxed);
        self.inner.read(address, buffer)?;
        for (at, block) in (address..).zip(buffer) {
            block.0[60] ^= u8::from(self.flips.lock().remove(&at));
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.inner.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.inner.discard(address, count)
    }
}

fn watched() -> Arc<WatchedDevice> {
    let (inner, read, blocks) =
        (RamDevice::new(BLOCK_COUNT), Mutex::default(), AtomicUsize::new(0));
    let expects_no_lock = AtomicBool::new(false);
    let flips = Mutex::default();
    Arc::new(WatchedDevice { inner, read, blocks, expects_no_lock, flips })
}

/// Makes a volume with files of several sizes, parts of which were overwritten and cut off.
fn filled(device: Arc<dyn Device>) -> (Volume, Vec<u64>) {
    let volume = new_volume_of(device, BLOCK_COUNT, VolumeOptions::default());
    let files: Vec<u64> = (0..60).map(|n| create(&volume, &format!("file-{n}"))).collect();
    for round in 0..3 {
        for (n, file) in (0..).zip(&files) {
            let first = round * n % 7;
            put(&volume, *file, first, 5 + n as usize, (n + round) as u8).expect("there is room");
        }
        volume.sync_all().expect("a sync");
    }
    files.iter().step_by(3).for_each(|file| set_size(&volume, *file, 8192));
    volume.checkpoint().expect("a checkpoint");
    (volume, files)
}

/// Scrubs from `from` on, and returns the steps.
fn scrub(volume: &Volume, from: Key) -> Vec<ScrubStep> {
    let mut scrub = volume.begin_scrub(from).expect("memory");
    let mut steps = Vec::new();
    while !scrub.is_done() {
        steps.push(volume.scrub_step(&mut scrub));
        assert!(steps.len() < 100_000, "the scrub ends");
    }
    steps
}

fn damage(steps: &[ScrubStep]) -> Vec<ScrubDamage> {
    steps.iter().flat_map(|step| step.damage.clone()).collect()
}

fn counts(steps: &[ScrubStep]) -> ScrubCounts {
    let mut counts = ScrubCounts::default();
    steps.iter().for_each(|step| counts.add(&step.counts));
    counts
}

/// Returns the addresses of all mapped blocks of `files`.
fn mapped(volume: &Volume, files: &[u64]) -> Vec<(u64, u32, u64)> {
    let mut blocks = Vec::new();
    for file in files {
        let mut from = Some(0);
        while let Some(first) = from {
            let part = volume.file_blocks(*file, first, 0).expect("a map");
            from = part.next;
            for run in part.runs {
                let run_blocks = (run.block..).zip(run.address..).take(run.count as usize);
                blocks.extend(run_blocks.map(|(block, at)| (*file, block, at)));
            }
        }
    }
    blocks
}

fn flip(device: &RamDevice, address: u64) {
    let mut block = [Block([0; BLOCK_SIZE])];
    device.read(address, &mut block).expect("RAM");
    // Within the checksum of every structure.
    block[0].0[60] ^= 1;
    device.write(address, &[&block], Stream::default()).expect("RAM");
}

#[test]
fn a_scrub_reads_every_live_block_and_counts_as_the_usage_table() {
    let device = watched();
    let (volume, files) = filled(device.clone());
    device.read.lock().clear();
    let steps = scrub(&volume, Key::MIN);
    assert_eq!(damage(&steps), []);
    let counts = counts(&steps);
    let blocks = mapped(&volume, &files);
    assert_eq!(counts.data_blocks, blocks.len() as u64);
    assert_eq!(counts.live(), volume.live_blocks(), "the volume rests");
    assert_eq!(counts.fixed_blocks, 3 + 32);
    let read = std::mem::take(&mut *device.read.lock());
    for (file, block, at) in blocks {
        assert!(read.contains(&at), "block {block} of file {file} at {at}");
    }
    let nodes = volume.metadata.inspect(|metadata| Ok(metadata.tree.addresses()?));
    assert!(nodes.expect("the tree is in memory").iter().all(|at| read.contains(at)));
    let layout = volume.layout();
    for at in [4, LOCATOR_ADDRESS, layout.backup, layout.slots[0], layout.slots[1] + 15] {
        assert!(read.contains(&at), "{at}");
    }
    assert_eq!(read.len() as u64, counts.all(), "each block is read once");
}

/// The bound on how long a request of a user may wait behind the scrub.
#[test]
fn a_step_reads_a_bounded_number_of_blocks_without_a_lock() {
    let device = watched();
    let (volume, _) = filled(device.clone());
    let cached = volume.metadata.read().tree.node_count();
    device.expects_no_lock.store(true, Ordering::Relaxed);
    let mut scrub = volume.begin_scrub(Key::MIN).expect("memory");
    let mut steps = 0;
    while !scrub.is_done() {
        let before = device.blocks.load(Ordering::Relaxed);
        volume.scrub_step(&mut scrub);
        let read = device.blocks.load(Ordering::Relaxed) - before;
        assert!(read <= SCRUB_STEP_BLOCKS, "{read} blocks in a step");
        steps += 1;
    }
    assert!(steps > 100, "{steps}");
    assert_eq!(volume.metadata.read().tree.node_count(), cached, "no node has entered the cache");
}

#[test]
fn leaves_do_not_enter_the_cache() {
    let device = watched();
    let (volume, _) = filled(device.clone());
    volume.close().expect("the volume closes");
    drop(volume);
    let volume = Volume::open(device.clone(), VolumeOptions::default(), crate::fixture::NOW)
        .expect("the volume opens");
    let cached = volume.metadata.read().tree.node_count();
    let counts = counts(&scrub(&volume, Key::MIN));
    let loaded = volume.metadata.read().tree.node_count() - cached;
    assert!(counts.node_blocks > 10 && loaded <= 2, "{loaded} of {}", counts.node_blocks);
}

#[test]
fn every_planted_damage_is_found_counted_and_named() {
    let device = watched();
    let (volume, files) = filled(device.clone());
    let blocks = mapped(&volume, &files);
    let layout = volume.layout();
    let data = [blocks[0], blocks[blocks.len() / 2], blocks[blocks.len() - 1]];
    let root = volume.metadata.read().tree.scan_path(&Key::MIN).expect("in memory").inner[0];
    // The first summary of the segment of a live block.
    let segment = layout.segment_of(blocks[blocks.len() / 3].2).expect("a segment");
    let summary = layout.segment_address(segment);
    let places = [layout.backup, layout.slots[1], summary, root.pointer.address];
    data.iter().map(|(_, _, at)| *at).chain(places).for_each(|at| flip(&device.inner, at));
    let mut found: Vec<_> = damage(&scrub(&volume, Key::MIN));
    found.sort_by_key(|damage| (damage.kind.code(), damage.owner));
    let expected_data = data.iter().map(|&(file, block, at)| ScrubDamage {
        kind: ErrorKind::Data,
        at,
        owner: Some((file, block)),
    });
    let of = |kind, at| ScrubDamage { kind, at, owner: None };
    let mut expected: Vec<_> = expected_data.collect();
    expected.push(of(ErrorKind::Tree, root.pointer.address));
    expected.push(of(ErrorKind::Log, summary));
    expected.extend([layout.backup, layout.slots[1]].map(|at| of(ErrorKind::Volume, at)));
    assert_eq!(found, expected);
    let remembered = volume.remembered();
    for (kind, count) in
        [(ErrorKind::Data, 3), (ErrorKind::Tree, 1), (ErrorKind::Log, 1), (ErrorKind::Volume, 2)]
    {
        assert_eq!(remembered.errors.count(kind), count, "{kind:?}");
    }
    // A second pass finds the same: nothing was repaired.
    assert_eq!(damage(&scrub(&volume, Key::MIN)).len(), expected.len());
}

/// A damaged summary in the middle of a segment hides the chunks behind it from a walk.
#[test]
fn a_damaged_summary_of_an_open_segment_is_found_by_its_head() {
    let device = watched();
    let (volume, _) = filled(device.clone());
    let file = create(&volume, "last");
    for block in 0..3 {
        put(&volume, file, block, 1, 7).expect("there is room");
        volume.sync_all().expect("a sync");
    }
    let at = mapped(&volume, &[file])[1].2;
    flip(&device.inner, at - 1);
    let found = damage(&scrub(&volume, Key::MIN));
    assert_eq!(found, [ScrubDamage { kind: ErrorKind::Log, at: at - 1, owner: None }]);
}

#[test]
fn a_scrub_is_resumed_at_its_position_and_tolerates_changes() {
    let device = watched();
    let (volume, files) = filled(device.clone());
    let whole = counts(&scrub(&volume, Key::MIN));
    let mut first = volume.begin_scrub(Key::MIN).expect("memory");
    let mut done = ScrubCounts::default();
    while done.data_blocks < whole.data_blocks / 2 {
        done.add(&volume.scrub_step(&mut first).counts);
    }
    let position = first.position();
    let rest = counts(&scrub(&volume, position));
    assert_eq!(rest.data_blocks + done.data_blocks, whole.data_blocks);
    // Everything is written anew and cleaned between the steps.
    let mut moving = volume.begin_scrub(Key::MIN).expect("memory");
    let mut steps = 0;
    while !moving.is_done() {
        steps += 1;
        assert_eq!(volume.scrub_step(&mut moving).damage, []);
        if steps % 20 == 0 {
            let file = files[steps / 20 % files.len()];
            put(&volume, file, 0, 9, steps as u8).expect("there is room");
            volume.clean_round(2, &mut || true).expect("a round");
            volume.checkpoint().expect("a checkpoint");
        }
    }
    assert_eq!(volume.remembered().errors.iter().count(), 0);
}

/// Data in place has no checksum: that it can be read is all that can be verified.
#[test]
fn data_in_place_is_read_and_its_unreadable_blocks_are_named() {
    let (device, volume) = new_placed(DataLayout::GreedySpace);
    let file = create(&volume, "file");
    put(&volume, file, 0, 20, 3).expect("there is room");
    volume.sync_all().expect("a sync");
    drop(volume);
    let device = Arc::new(sfs_device::FaultyDevice::new(device.snapshot()));
    let volume = Volume::open(device.clone(), VolumeOptions::default(), crate::fixture::NOW)
        .expect("the volume opens");
    let blocks = mapped(&volume, &[file]);
    let steps = scrub(&volume, Key::MIN);
    assert_eq!((counts(&steps).unverified_blocks, counts(&steps).data_blocks), (20, 0));
    let changed = device.inner();
    flip(changed, blocks[4].2);
    assert_eq!(damage(&scrub(&volume, Key::MIN)), [], "no checksum tells");
    device.fail_reads(blocks[7].2..blocks[7].2 + 1);
    let expected = ScrubDamage { kind: ErrorKind::Read, at: blocks[7].2, owner: Some((file, 7)) };
    assert_eq!(damage(&scrub(&volume, Key::MIN)), [expected]);
}

/// Damage that is gone when a block is read again is counted as a retry, and is no damage.
#[test]
fn what_is_right_at_the_second_read_counts_as_a_retry() {
    let device = watched();
    let (volume, files) = filled(device.clone());
    let blocks = mapped(&volume, &files);
    let layout = volume.layout();
    let segment = layout.segment_of(blocks[9].2).expect("a segment");
    let places = [blocks[20].2, layout.segment_address(segment), layout.slots[0]];
    device.flips.lock().extend(places);
    assert_eq!(damage(&scrub(&volume, Key::MIN)), []);
    let remembered = volume.remembered();
    assert_eq!(remembered.errors.count(ErrorKind::Retry), 3);
    assert_eq!(remembered.errors.iter().count(), 1, "no other kind");
}

/// A block of data in whose place the device shows a summary: the card has less capacity than it states.
#[test]
fn what_was_written_to_another_address_is_recognized() {
    let device = watched();
    let (volume, files) = filled(device.clone());
    let blocks = mapped(&volume, &files);
    let (file, block, at) = blocks[20];
    let layout = volume.layout();
    let segment = layout.segment_of(at).expect("a segment");
    let mut summary = [Block([0; BLOCK_SIZE])];
    device.inner.read(layout.segment_address(segment), &mut summary).expect("RAM");
    device.inner.write(at, &[&summary], Stream::default()).expect("RAM");
    let expected = ScrubDamage { kind: ErrorKind::Data, at, owner: Some((file, block)) };
    assert_eq!(damage(&scrub(&volume, Key::MIN)), [expected]);
    let errors = volume.remembered().errors;
    assert_eq!([ErrorKind::Misplaced, ErrorKind::Data].map(|kind| errors.count(kind)), [1, 1]);
}
