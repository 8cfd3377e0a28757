//! A device that is late with its flushes, as one whose content is in an object store: syncs fail, and nothing ends or is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sfs_device::{Block, Device, DeviceError, Geometry, Late, Operation, RamDevice, Stream};

use crate::fixture::{BLOCKS, NOW, create, new_volume_of, put, write};
use crate::format::ROOT_INO;
use crate::request::{VolumeOptions, Work};
use crate::volume::Volume;

/// A device whose flushes, and reads, are late while it is told to be, and whose order is never durable.
struct LateDevice {
    device: Arc<RamDevice>,
    flushes_late: AtomicBool,
    reads_late: AtomicBool,
    flushes: AtomicU64,
    late_reads: AtomicU64,
}

impl LateDevice {
    fn new(device: Arc<RamDevice>) -> Arc<Self> {
        let (flushes_late, reads_late, flushes, late_reads) = Default::default();
        Arc::new(Self { device, flushes_late, reads_late, flushes, late_reads })
    }

    fn late(operation: Operation) -> DeviceError {
        let source = io::Error::other(Late("late".into()));
        DeviceError::of_blocks(operation, 0, 0, source)
    }
}

impl Device for LateDevice {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        match self.reads_late.load(Ordering::Relaxed) {
            true => {
                self.late_reads.fetch_add(1, Ordering::Relaxed);
                Err(Self::late(Operation::Read))
            }
            false => self.device.read(address, buffer),
        }
    }

    fn write(&self, address: u64, parts: &[&[Block]], stream: Stream) -> Result<(), DeviceError> {
        self.device.write(address, parts, stream)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        match self.flushes_late.load(Ordering::Relaxed) {
            true => Err(Self::late(Operation::Flush)),
            false => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
                self.device.flush()
            }
        }
    }

    fn order(&self) -> Result<bool, DeviceError> {
        self.device.flush().map(|()| false)
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.device.discard(address, count)
    }
}

fn volume() -> (Arc<LateDevice>, Volume) {
    volume_of(BLOCKS)
}

fn volume_of(blocks: u64) -> (Arc<LateDevice>, Volume) {
    let device = Arc::new(RamDevice::new(blocks));
    let volume = new_volume_of(device.clone(), blocks, VolumeOptions::default());
    volume.close().expect("RAM does not fail");
    let late = LateDevice::new(device);
    let volume = Volume::open(late.clone(), VolumeOptions::default(), NOW);
    (late, volume.expect("the volume opens"))
}

#[test]
fn a_sync_of_a_late_device_fails_and_a_later_one_flushes() {
    let (device, volume) = volume();
    let ino = create(&volume, "file");
    write(&volume, ino, &[7; 100_000]);
    device.flushes_late.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        volume.sync_file(ino).expect_err("the device is late");
        volume.sync_data(ino).expect_err("the device is late");
        volume.sync_all().expect_err("the device is late");
    }
    assert!(!volume.has_failed() && volume.remembered().is_empty());
    // Changes, commits for nobody, and checkpoints go on.
    let other = create(&volume, "other");
    write(&volume, other, &[8; 5000]);
    volume.checkpoint().expect_err("an administrator waits for what is durable");
    while volume.work(NOW).expect("nobody waits until it is durable") == Work::More {}
    volume.sync_file(other).expect_err("the device is late");

    let before = device.flushes.load(Ordering::Relaxed);
    device.flushes_late.store(false, Ordering::Relaxed);
    volume.sync_file(ino).expect("the device is not late any more");
    assert!(
        device.flushes.load(Ordering::Relaxed) > before,
        "it is not durable by the order alone"
    );
    let after = device.flushes.load(Ordering::Relaxed);
    volume.sync_data(ino).expect("nothing is to be flushed");
    assert_eq!(device.flushes.load(Ordering::Relaxed), after);
    // The end needs the order alone: whoever has made the device ends its use.
    device.flushes_late.store(true, Ordering::Relaxed);
    volume.close().expect("no sync waits");
    assert!(!volume.has_failed());
}

#[test]
fn a_late_read_is_no_damage_however_often_it_is_repeated() {
    let (device, volume) = volume();
    let files = (0..50).map(|no| create(&volume, &format!("file-{no}"))).collect::<Vec<_>>();
    files.iter().for_each(|ino| write(&volume, *ino, &[9; 5000]));
    volume.close().expect("the order");
    let volume = Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
    device.reads_late.store(true, Ordering::Relaxed);
    for _ in 0..100 {
        volume.read(files[0], 0, 5000).map(drop).expect_err("the device is late");
    }
    assert!(!volume.has_failed() && volume.remembered().is_empty());
    device.reads_late.store(false, Ordering::Relaxed);
    for ino in &files {
        let found = volume.read(*ino, 0, 5000).expect("the device is not late any more");
        assert_eq!(found.as_bytes(), [9; 5000]);
    }
}

/// At the end a device is late that cannot be waited for: what needs a read is lost, and nothing else, and it is no damage.
#[test]
fn a_close_on_a_late_device_ends_and_loses_only_what_needs_a_read() {
    let (device, volume) = volume_of(8 * BLOCKS);
    let scattered = create(&volume, "scattered");
    for block in (0..1200).rev() {
        put(&volume, scattered, block * 2, 1, 1).expect("the device has space");
    }
    let names = (0..12_000).map(|no| format!("file-{no}")).collect::<Vec<_>>();
    for name in &names {
        create(&volume, name);
    }
    let warm = create(&volume, "warm");
    volume.close().expect("the order");
    let options = VolumeOptions { cache: 0, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, NOW).expect("it opens");
    for block in [0, 1000, 2000] {
        put(&volume, scattered, block, 1, 2).expect("an overwrite needs no space");
    }
    // The nodes of these blocks are not in memory any more.
    for name in &names {
        volume.lookup(ROOT_INO, name.as_bytes()).expect("the device is not late");
    }
    write(&volume, warm, &[3; 5000]);
    device.reads_late.store(true, Ordering::Relaxed);
    let closed = volume.close();
    let reads = device.late_reads.load(Ordering::Relaxed);
    println!("{closed:?}, {reads} reads");
    assert!(volume.is_closed() && reads > 0 && reads < 50, "{closed:?}, {reads} reads");
    device.reads_late.store(false, Ordering::Relaxed);
    let volume = Volume::open(device, VolumeOptions::default(), NOW).expect("it opens");
    assert!(volume.remembered().is_empty(), "{:?}", volume.remembered());
    let found = volume.read(warm, 0, 5000).expect("it was written");
    assert_eq!(found.as_bytes(), [3; 5000]);
    let old = volume.read(scattered, 1000 * 4096, 4096).expect("nothing is damaged");
    assert!(old.as_bytes() == [1; 4096] || old.as_bytes() == [2; 4096]);
}
