//! Small volumes for the unit tests of what is private here.

use std::sync::Arc;

use sfs_device::{Device, RamDevice};

use super::Volume;
use crate::Result;
use crate::format::{DataLayout, Label, Layout, ROOT_INO, Superblock, Timestamp};
use crate::request::{AttributeChanges, Caller, VolumeOptions};

pub(super) const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };
pub(super) const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW };

/// Blocks of a device for 64 segments of 32.
pub(super) const BLOCKS: u64 = 2100;

/// A volume is made on `device`, and opened.
pub(super) fn new_volume(device: Arc<dyn Device>) -> Volume {
    make(&device, DataLayout::Log);
    Volume::open(device, VolumeOptions::default(), NOW).expect("it opens")
}

/// The same on a device of its own, its data placed as `data_layout` says.
pub(super) fn new_placed(data_layout: DataLayout) -> (Arc<RamDevice>, Volume) {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let shared: Arc<dyn Device> = device.clone();
    make(&shared, data_layout);
    let volume = Volume::open(shared, VolumeOptions::default(), NOW).expect("it opens");
    (device, volume)
}

fn make(device: &Arc<dyn Device>, data_layout: DataLayout) {
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(BLOCKS, 32, 0).expect("it fits"),
        hash_key: [1, 2],
        data_layout,
        created: NOW,
        ..Superblock::new(Layout::new(BLOCKS, 32, 0).expect("it fits"))
    };
    let root = crate::root_directory(0, 0, NOW);
    crate::make(device.clone(), &superblock, &root).expect("a volume is made");
}

/// Fills blocks of a file with a byte.
pub(super) fn put(volume: &Volume, ino: u64, block: u64, count: usize, byte: u8) -> Result<()> {
    volume.write(ino, block * 4096, &vec![byte; count * 4096], Default::default(), &CALLER)
}

pub(super) fn resize(volume: &Volume, ino: u64, size: u64) -> Result<()> {
    let changes = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &CALLER).map(drop)
}

pub(super) fn set_size(volume: &Volume, ino: u64, size: u64) {
    resize(volume, ino, size).expect("a size");
}

pub(super) fn create(volume: &Volume, name: &str) -> u64 {
    let made = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &CALLER);
    made.expect("it is made").ino
}

pub(super) fn write(volume: &Volume, ino: u64, bytes: &[u8]) {
    volume.write(ino, 0, bytes, Default::default(), &CALLER).expect("it is written");
}
