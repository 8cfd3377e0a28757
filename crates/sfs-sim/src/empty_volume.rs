//! Empty volumes on the smallest device that their segments fit on.

use std::sync::Arc;

use sfs_core::format::DataLayout;

use crate::image::CowImage;
use crate::model::fixture::{SEGMENT_BLOCKS, format_blocks};

/// Number of segments that the device has room for behind a volume that may grow.
const ROOM_SEGMENTS: u64 = 8;

/// Content of the blocks behind a volume that may grow, left over from another use of the device.
const LEFTOVER: u8 = 0xa5;

/// Makes an empty volume of `segments` segments.
pub fn empty_volume(data_layout: DataLayout, segments: u64) -> CowImage {
    empty_volume_on(block_count(segments), data_layout, segments)
}

/// Makes an empty volume of `segments` segments on a larger device.
pub fn empty_volume_with_room(data_layout: DataLayout, segments: u64) -> CowImage {
    let device = empty_volume_on(block_count(segments + ROOM_SEGMENTS), data_layout, segments);
    for at in block_count(segments)..block_count(segments + ROOM_SEGMENTS) {
        device.edit(at, |bytes| bytes.fill(LEFTOVER));
    }
    device
}

fn empty_volume_on(device_blocks: u64, data_layout: DataLayout, segments: u64) -> CowImage {
    let device = Arc::new(CowImage::new(device_blocks));
    format_blocks(device.clone(), block_count(segments), SEGMENT_BLOCKS, data_layout);
    Arc::into_inner(device).expect("formatting drops its reference to the device")
}

/// Returns the number of blocks of the smallest device for `segments` segments: superblock,
/// checkpoint slots and backup included.
fn block_count(segments: u64) -> u64 {
    32 + segments * SEGMENT_BLOCKS + 16 + 1
}
