//! Small volumes in memory.
//!
//! Every volume has the same UUID, hash key and time of creation, so that a test that repeats its calls
//! gets the same bytes on the device.

use std::sync::Arc;

use sfs_core::format::{DataLayout, Label, Layout, Superblock, Timestamp};
use sfs_core::request::{Caller, VolumeOptions};
use sfs_core::{Volume, make, root_directory};
use sfs_device::{Device, RamDevice};

/// Time of creation, and the time of every request of [`caller`].
pub const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// Mode of a regular file, `rw-r--r--`.
pub const FILE_MODE: u32 = 0o100_644;

/// Mode of a directory, `rwxr-xr-x`.
pub const DIRECTORY_MODE: u32 = 0o040_755;

/// Number of blocks of the smallest segment.
pub const SEGMENT_BLOCKS_MIN: u64 = 32;

/// Number of blocks before the first of the smallest segments: superblock and checkpoint slot,
/// rounded up to a segment.
const HEAD_BLOCKS: u64 = 32;

/// Number of blocks after the last segment: a checkpoint slot and the superblock's backup.
const TAIL_BLOCKS: u64 = 17;

/// Returns the user root as a caller at the time [`NOW`].
pub fn caller() -> Caller {
    Caller { uid: 0, gid: 0, now: NOW, umask: None }
}

/// Returns the time `millis` milliseconds after [`NOW`].
pub fn after(millis: u64) -> Timestamp {
    let nanos = u64::from(NOW.nanos) + millis % 1000 * 1_000_000;
    Timestamp { secs: NOW.secs + (millis / 1000) as i64, nanos: nanos as u32 }
}

/// Returns the size of a device with `segments` of the smallest segments, in blocks.
pub fn device_blocks(segments: u64) -> u64 {
    HEAD_BLOCKS + segments * SEGMENT_BLOCKS_MIN + TAIL_BLOCKS
}

/// Makes a volume with segments of `segment_blocks` blocks on the whole of `device`.
///
/// # Panics
///
/// If the device is too small, or fails.
pub fn format(device: Arc<dyn Device>, segment_blocks: u64, data_layout: DataLayout) {
    let block_count = device.geometry().block_count;
    let layout = Layout::new(block_count, segment_blocks, 0).expect("the device is large enough");
    let superblock = Superblock {
        uuid: *b"0123456789abcdef",
        label: Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout,
        created: NOW,
        ..Superblock::new(layout)
    };
    make(device, &superblock, &root_directory(0, 0, NOW)).expect("a volume is made");
}

/// Returns a device in memory with an empty volume of `segments` of the smallest segments.
pub fn formatted(segments: u64, data_layout: DataLayout) -> Arc<RamDevice> {
    let device = Arc::new(RamDevice::new(device_blocks(segments)));
    format(device.clone(), SEGMENT_BLOCKS_MIN, data_layout);
    device
}

/// Opens the volume on `device`.
///
/// # Panics
///
/// If the volume cannot be opened.
pub fn open(device: Arc<dyn Device>, options: VolumeOptions) -> Volume {
    Volume::open(device, options, NOW).expect("the volume opens")
}

#[cfg(test)]
mod tests {
    use sfs_core::format::ROOT_INO;

    use super::*;

    #[test]
    fn a_formatted_device_opens_as_an_empty_volume() {
        for data_layout in DataLayout::ALL {
            let volume = open(formatted(64, data_layout), VolumeOptions::default());
            assert_eq!(volume.attributes(ROOT_INO).expect("the root").links, 2);
        }
    }
}
