//! Checking a cache that nobody uses.

use sfs_device::{Block, Device, DeviceError};

use crate::bitmap::LiveMap;
use crate::cache::Identity;
use crate::error::CacheError;
use crate::header::CacheHeader;
use crate::loading::{first_bits, for_each_summary};
use crate::summary::{Summary, summary_blocks};

/// Result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// `true` if no other program has written to the volume since. The next mount takes the blocks if the cache is closed as well.
    pub is_current: bool,
    /// `true` if the last mount that used the cache has ended, and has written which blocks are live.
    pub is_closed: bool,
    /// Segments with blocks; none of this and the following after a mount that was cut off, whose blocks are not taken.
    pub segments: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Live blocks that do not have their checksum.
    pub damaged_blocks: u64,
    /// Blocks that are live according to the map, without an entry in a sound summary.
    pub lost_blocks: u64,
    /// `true` if the map of live blocks of a mount that has ended is damaged.
    pub is_map_damaged: bool,
}

impl CacheReport {
    /// Returns whether the cache has to be emptied.
    pub fn is_damaged(&self) -> bool {
        self.is_map_damaged || self.lost_blocks > 0 || self.damaged_blocks > 0
    }
}

/// Checks the cache of the volume with this identity; with `data`, also the content of all live blocks. Writes nothing.
///
/// # Errors
///
/// Those of [`Cache::open`](crate::Cache::open).
pub fn check(
    device: &dyn Device,
    of: &Identity,
    data: bool,
) -> Result<(CacheHeader, CacheReport), CacheError> {
    let header = CacheHeader::read(device)?;
    if header.volume_uuid != of.volume_uuid || header.cache_uuid != of.cache_uuid {
        return Err(CacheError::OtherVolume);
    }
    let mut report = CacheReport {
        is_current: header.epoch == of.epoch && of.epoch != [0; 16],
        is_closed: header.is_closed,
        ..CacheReport::default()
    };
    let map = if header.is_closed { LiveMap::read(device, &header)? } else { None };
    report.is_map_damaged = header.is_closed && map.is_none();
    let (first_bits, summary_blocks) = (first_bits(&header), summary_blocks(header.segment_blocks));
    let data_blocks = u64::from(header.segment_blocks - summary_blocks);
    let mut is_dirty = false;
    for_each_summary(device, &header, |no, segment, summary| {
        is_dirty |= summary.as_ref().is_some_and(Summary::has_dirty);
        let Some(map) = &map else { return Ok(()) };
        let first =
            u64::from(segment) * u64::from(header.segment_blocks) + u64::from(summary_blocks);
        let is_live = |at: &u64| map.is_set(first_bits[no] + first + at);
        let live = (0..data_blocks).filter(is_live);
        let Some(summary) = summary else {
            report.lost_blocks += live.count() as u64;
            return Ok(());
        };
        let count = summary.entries.len() as u64;
        let (live, lost): (Vec<u64>, Vec<u64>) = live.partition(|at| *at < count);
        report.segments += 1;
        report.blocks += live.len() as u64;
        report.lost_blocks += lost.len() as u64;
        if data && !live.is_empty() {
            let address = header.sections[no].first + first;
            report.damaged_blocks += wrong_blocks(device, address, &summary, &live)?;
        }
        Ok(())
    })?;
    if is_dirty { Err(CacheError::Dirty) } else { Ok((header, report)) }
}

/// Returns the number of `live` blocks of the segment with `summary`, whose blocks begin at `address`, without their checksum.
fn wrong_blocks(
    device: &dyn Device,
    address: u64,
    summary: &Summary,
    live: &[u64],
) -> Result<u64, DeviceError> {
    let mut blocks = Block::zeroed(summary.entries.len());
    device.read(address, &mut blocks)?;
    let is_wrong = |at: &&u64| {
        crc32c::crc32c(&blocks[**at as usize].0) != summary.entries[**at as usize].checksum
    };
    Ok(live.iter().filter(is_wrong).count() as u64)
}
