//! Small volumes for unit tests.

use std::sync::Arc;

use sfs_device::{Device, RamDevice};

use crate::format::{DataLayout, Label, Layout, ROOT_INO, Superblock, Timestamp};
use crate::request::{AttributeChanges, Caller, VolumeOptions};
use crate::{Result, Volume};

pub(crate) const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };
pub(crate) const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };

/// Number of blocks of a device for 64 segments of 32 blocks.
pub(crate) const BLOCKS: u64 = 2100;

/// Makes a volume on `device`, and opens it.
pub(crate) fn new_volume(device: Arc<dyn Device>) -> Volume {
    make(&device, DataLayout::Log);
    Volume::open(device, VolumeOptions::default(), NOW).expect("the volume opens")
}

/// Makes a volume of `blocks` on `device`, and opens it with `options`.
pub(crate) fn new_volume_of(
    device: Arc<dyn Device>,
    blocks: u64,
    options: VolumeOptions,
) -> Volume {
    make_of(&device, blocks, DataLayout::Log);
    Volume::open(device, options, NOW).expect("the volume opens")
}

/// Number of blocks of a segment that takes more than one step of cleaning to read.
pub(crate) const LARGE_SEGMENT_BLOCKS: u64 = 512;

/// Returns a new volume with large segments, on a device with room for `segments` of them.
pub(crate) fn new_with_large_segments(segments: u64, options: VolumeOptions) -> Volume {
    large_segments_on(Arc::new(RamDevice::new(segments * LARGE_SEGMENT_BLOCKS)), options)
}

/// Makes a volume with large segments on `device`, and opens it with `options`.
pub(crate) fn large_segments_on(device: Arc<dyn Device>, options: VolumeOptions) -> Volume {
    let layout = Layout::new(device.geometry().block_count, LARGE_SEGMENT_BLOCKS, 0);
    let root = crate::root_directory(0, 0, NOW);
    let superblock = Superblock::new(layout.expect("the layout fits"));
    crate::make(device.clone(), &superblock, &root).expect("a volume is made");
    Volume::open(device, options, NOW).expect("the volume opens")
}

/// Makes and opens a volume of this data layout on a new device.
pub(crate) fn new_placed(data_layout: DataLayout) -> (Arc<RamDevice>, Volume) {
    let device = Arc::new(RamDevice::new(BLOCKS));
    let shared: Arc<dyn Device> = device.clone();
    make(&shared, data_layout);
    let volume = Volume::open(shared, VolumeOptions::default(), NOW).expect("the volume opens");
    (device, volume)
}

fn make(device: &Arc<dyn Device>, data_layout: DataLayout) {
    make_of(device, BLOCKS, data_layout);
}

fn make_of(device: &Arc<dyn Device>, blocks: u64, data_layout: DataLayout) {
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(blocks, 32, 0).expect("the layout fits"),
        hash_key: [1, 2],
        data_layout,
        created: NOW,
        ..Superblock::new(Layout::new(blocks, 32, 0).expect("the layout fits"))
    };
    let root = crate::root_directory(0, 0, NOW);
    crate::make(device.clone(), &superblock, &root).expect("a volume is made");
}

/// Fills `count` blocks of a file, from `block` on, with a byte.
pub(crate) fn put(volume: &Volume, ino: u64, block: u64, count: usize, byte: u8) -> Result<()> {
    volume.write(ino, block * 4096, &vec![byte; count * 4096], Default::default(), &CALLER)
}

pub(crate) fn resize(volume: &Volume, ino: u64, size: u64) -> Result<()> {
    let changes = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
    volume.set_attributes(ino, &changes, &CALLER).map(drop)
}

pub(crate) fn set_size(volume: &Volume, ino: u64, size: u64) {
    resize(volume, ino, size).expect("a size");
}

pub(crate) fn create(volume: &Volume, name: &str) -> u64 {
    let made = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &CALLER);
    made.expect("the file is made").ino
}

pub(crate) fn write(volume: &Volume, ino: u64, bytes: &[u8]) {
    volume.write(ino, 0, bytes, Default::default(), &CALLER).expect("the file is written");
}
