//! Making a cache on a device, and emptying one.

use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Stream};

use crate::bitmap;
use crate::error::CacheError;
use crate::header::{CacheHeader, MAP_FIRST, SEGMENT_BLOCKS, SectionPlan};
use crate::policy::PolicyName;

pub use crate::header::SECTIONS_MAX;

/// Bytes of a segment, if the device reports no larger erase block. Smaller on small devices.
const SEGMENT_SIZE: u64 = 2 << 20;

/// Segments that a cache has at least, if the size of a segment allows it.
const SEGMENTS_WANTED: u64 = 64;

/// Smallest number of segments of a section.
const SEGMENTS_MIN: u64 = 4;

/// Blocks of a cache for each block of an extent by default: 4 blocks up to 16 GiB, more on larger devices, so that the index of a full
/// cache has room in [`IndexMemory::of`](crate::IndexMemory::of) it.
const BLOCKS_FOR_EXTENT_BLOCK: u64 = 1 << 20;

/// A section that the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionWish {
    /// Blocks; `None` for all that are left.
    pub blocks: Option<u64>,
    /// Blocks of an extent: a power of two, at most 64; `None` for a size that fits the device.
    pub extent_blocks: Option<u32>,
}

/// Options of a new cache.
#[derive(Clone, Debug)]
pub struct MakeOptions {
    /// UUID of the volume.
    pub volume_uuid: [u8; 16],
    /// UUID of the cache.
    pub cache_uuid: [u8; 16],
    /// Sections, in their order on the device; none for one over the whole device.
    pub sections: Vec<SectionWish>,
    /// Eviction policy.
    pub policy: PolicyName,
}

/// Returns the header of the cache that [`make`] would write. Writes nothing.
///
/// # Errors
///
/// [`CacheError::TooSmall`] if the sections do not fit.
pub fn plan(device: &dyn Device, options: &MakeOptions) -> Result<CacheHeader, CacheError> {
    let geometry = device.geometry();
    let block_count = geometry.block_count;
    let segment_blocks = segment_blocks(device);
    let whole = [SectionWish { blocks: None, extent_blocks: None }];
    let wishes = if options.sections.is_empty() { &whole[..] } else { &options.sections };
    let size = u64::from(segment_blocks);
    let map_end = MAP_FIRST + bitmap::block_count(block_count);
    // Segments are aligned on the medium.
    let shift = geometry.partition_start.div_ceil(BLOCK_SIZE as u64) % size;
    let mut next = (map_end + shift).next_multiple_of(size) - shift;
    let least = next + SEGMENTS_MIN * size * wishes.len() as u64;
    let too_small = CacheError::TooSmall(block_count, least);
    let mut sections = Vec::new();
    for wish in wishes {
        let left = block_count.saturating_sub(next);
        let blocks = wish.blocks.unwrap_or(left).min(left);
        let segment_count = (blocks / size).min(u64::from(u32::MAX) / size - 1);
        if segment_count < SEGMENTS_MIN || wish.blocks.is_some_and(|wanted| wanted > left) {
            return Err(too_small);
        }
        let fitting = (blocks / BLOCKS_FOR_EXTENT_BLOCK).next_power_of_two().clamp(4, 64) as u32;
        sections.push(SectionPlan {
            first: next,
            segment_count: segment_count as u32,
            extent_blocks: wish.extent_blocks.unwrap_or(fitting).min(segment_blocks / 2),
        });
        next += segment_count * size;
    }
    Ok(CacheHeader {
        generation: 0,
        cache_uuid: options.cache_uuid,
        volume_uuid: options.volume_uuid,
        epoch: [0; 16],
        is_closed: false,
        filling: 0,
        policy: options.policy,
        block_count,
        segment_blocks,
        bytes_written: 0,
        sections,
    })
}

/// Returns the number of blocks of a segment: an erase block that the device reports, from 2 to 4 MiB, and less on small devices.
fn segment_blocks(device: &dyn Device) -> u32 {
    let geometry = device.geometry();
    let [least, most] = SEGMENT_BLOCKS.map(u64::from);
    let erase = geometry.preferred_erase_size.max(geometry.discard_granularity);
    let erase_blocks = (erase / BLOCK_SIZE as u64).clamp(1, most).next_power_of_two();
    let wanted = (SEGMENT_SIZE / BLOCK_SIZE as u64).max(erase_blocks);
    let fitting = (geometry.block_count / SEGMENTS_WANTED).max(1);
    let fitting = if fitting.is_power_of_two() { fitting } else { fitting.next_power_of_two() / 2 };
    wanted.min(fitting).clamp(least, most) as u32
}

/// Makes an empty cache on `device`, durably. What the device held is not recognized any more as anything else.
///
/// # Errors
///
/// [`CacheError::TooSmall`], and errors of the device.
pub fn make(device: &dyn Device, options: &MakeOptions) -> Result<CacheHeader, CacheError> {
    let mut header = plan(device, options)?;
    zero(device, 0..MAP_FIRST)?;
    zero(device, header.block_count - 1..header.block_count)?;
    device.flush()?;
    // Twice, so that both blocks of the header are those of this cache.
    header.write(device)?;
    header.write(device)?;
    Ok(header)
}

/// Empties the cache on `device`: its next mount trusts none of its blocks. `filling` is a random number.
///
/// # Errors
///
/// Errors of the device.
pub fn empty(device: &dyn Device, header: &CacheHeader, filling: u64) -> Result<(), DeviceError> {
    let mut header = CacheHeader { epoch: [0; 16], is_closed: false, filling, ..header.clone() };
    header.write(device)?;
    header.write(device)
}

fn zero(device: &dyn Device, range: std::ops::Range<u64>) -> Result<(), DeviceError> {
    let blocks = Block::zeroed((range.end - range.start) as usize);
    device.write(range.start, &[&blocks], Stream::default())
}
