//! Small volumes for the unit tests of what is private here.

use std::sync::Arc;

use sfs_device::Device;

use super::Volume;
use crate::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use crate::request::{Caller, Options};

pub(super) const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };
pub(super) const CALLER: Caller = Caller { uid: 0, gid: 0, now: NOW };

/// Blocks of a device for 64 segments of 32.
pub(super) const BLOCKS: u64 = 2100;

/// A volume is made on `device`, and opened.
pub(super) fn new_volume(device: Arc<dyn Device>) -> Volume {
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout: Layout::new(BLOCKS, 32, 0).expect("it fits"),
        hash_key: [1, 2],
        placement: Default::default(),
        created: NOW,
    };
    let root = crate::root_directory(0, 0, NOW);
    crate::make(device.clone(), &superblock, &root).expect("a volume is made");
    Volume::open(device, Options::default(), NOW).expect("it opens")
}

pub(super) fn create(volume: &Volume, name: &str) -> u64 {
    let made = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &CALLER);
    made.expect("it is made").ino
}

pub(super) fn write(volume: &Volume, ino: u64, bytes: &[u8]) {
    volume.write(ino, 0, bytes, Default::default(), &CALLER).expect("it is written");
}
