//! What mounting costs: it must not grow with the volume, but for its usage table.

use std::sync::Arc;

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp, USAGE_PER_ITEM};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{Keep, RamDevice, RecordingDevice};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// Items of the usage table in a leaf, at least.
const ITEMS_PER_LEAF: u64 = 3;

/// Reads that mounting a used, cleanly unmounted volume of `bytes` takes, and how many leaves its
/// usage table has at most.
fn mount_reads(bytes: u64) -> (u64, u64) {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(bytes / 4096), Keep::Counts));
    let layout = Layout::new(bytes / 4096, 2048, 0).expect("it fits");
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(layout)
    };
    make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("a volume is made");
    let open = || Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("it opens");
    let volume = open();
    let caller = Caller { uid: 0, gid: 0, now: NOW };
    for i in 0..100 {
        let name = format!("file{i}");
        let file = volume.make_node(ROOT_INO, name.as_bytes(), 0o100_644, 0, &caller).unwrap();
        let bytes = vec![7; 100_000];
        volume.write(file.ino, 0, &bytes, WriteMode::default(), &caller).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    device.reset();
    drop(open());
    let items = u64::from(layout.segment_count.div_ceil(USAGE_PER_ITEM));
    (device.counts().reads, items.div_ceil(ITEMS_PER_LEAF))
}

#[test]
fn mounting_a_terabyte_reads_no_more_than_a_gigabyte_and_the_usage_table() {
    let (small, _) = mount_reads(1 << 30);
    let (large, leaves) = mount_reads(1 << 40);
    // Inner nodes above the leaves of the table: a hundred children each, at least.
    let table = leaves + leaves / 100 + 2;
    assert!(small < 20, "{small} reads for a gigabyte");
    assert!(large <= small + table, "{large} reads, {small} for a gigabyte, table {table}");
}
