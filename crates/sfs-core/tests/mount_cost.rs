//! Cost of mounting: the number of reads must not grow with the volume, apart from the usage table.

use std::sync::Arc;

use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp, USAGE_PER_ITEM};
use sfs_core::request::{Caller, VolumeOptions, WriteMode};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{Keep, RamDevice, RecordingDevice};

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// Minimum number of items of the usage table in a leaf.
const ITEMS_PER_LEAF: u64 = 3;

/// Returns the number of reads of a mount of a used, cleanly unmounted volume of `bytes` bytes, and
/// the maximum number of leaves of its usage table.
fn mount_reads(bytes: u64) -> (u64, u64) {
    let device = Arc::new(RecordingDevice::new(RamDevice::new(bytes / 4096), Keep::Counts));
    let layout = Layout::new(bytes / 4096, 2048, 0).expect("the layout fits");
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: NOW,
        ..Superblock::new(layout)
    };
    make(device.clone(), &superblock, &root_directory(0, 0, NOW)).expect("the volume is made");
    let open =
        || Volume::open(device.clone(), VolumeOptions::default(), NOW).expect("the volume opens");
    let volume = open();
    let caller = Caller { uid: 0, gid: 0, now: NOW, umask: None };
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
    // Inner nodes above these leaves have at least a hundred children each.
    let table = leaves + leaves / 100 + 2;
    assert!(small < 20, "{small} reads for a gigabyte");
    assert!(large <= small + table, "{large} reads, {small} for a gigabyte, table {table}");
}
