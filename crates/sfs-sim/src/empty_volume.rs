//! Empty volumes on the smallest device that their segments fit on.

use std::sync::Arc;

use sfs_core::format::DataLayout;

use crate::image::CowImage;
use crate::model::fixture::{SEGMENT_BLOCKS, format_as};

/// Makes an empty volume of `segments` segments.
pub fn empty_volume(data_layout: DataLayout, segments: u64) -> CowImage {
    let device = Arc::new(CowImage::new(block_count(segments)));
    format_as(device.clone(), SEGMENT_BLOCKS, data_layout);
    Arc::into_inner(device).expect("formatting drops its reference to the device")
}

/// Returns the number of blocks of the smallest device for `segments` segments: superblock,
/// checkpoint slots and backup included.
fn block_count(segments: u64) -> u64 {
    32 + segments * SEGMENT_BLOCKS + 16 + 1
}
