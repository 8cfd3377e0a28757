//! Checking a cache that nobody uses.

use sfs_device::{Block, Device};

use crate::bitmap::LiveMap;
use crate::cache::Identity;
use crate::error::CacheError;
use crate::header::CacheHeader;
use crate::loading::{first_bits, for_each_summary};
use crate::summary::{Summary, summary_blocks};

/// Result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// `true` if the next mount takes the blocks of the cache: no other program has written to the volume since.
    pub is_current: bool,
    /// `true` if the last mount that used the cache has ended, and has written which blocks are live.
    pub is_closed: bool,
    /// Segments with blocks.
    pub segments: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Live blocks that do not have their checksum. After a mount that was cut off the last segment may have some.
    pub damaged_blocks: u64,
    /// Blocks that are live according to the map, in segments without a sound summary.
    pub lost_blocks: u64,
    /// `true` if the map of live blocks of a mount that has ended is damaged.
    pub is_map_damaged: bool,
}

impl CacheReport {
    /// Returns whether the cache has to be emptied. After a crash, torn blocks are no damage.
    pub fn is_damaged(&self) -> bool {
        let is_torn = self.is_closed && self.damaged_blocks > 0;
        self.is_map_damaged || self.lost_blocks > 0 || is_torn
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
    let is_confirmed = |no: usize, first_slot: u64| {
        map.as_ref().is_some_and(|map| map.is_set(first_bits[no] + first_slot))
    };
    let mut segments: Vec<(u64, Summary, Vec<usize>)> = Vec::new();
    let mut lost = 0;
    let mut is_dirty = false;
    for_each_summary(device, &header, |no, segment, summary| {
        let first_slot = u64::from(segment) * u64::from(header.segment_blocks);
        let is_live = |at: u64| {
            let bit = first_bits[no] + first_slot + u64::from(summary_blocks) + at;
            map.as_ref().is_none_or(|map| map.is_set(bit))
        };
        let Some(summary) = summary else {
            let data_blocks = u64::from(header.segment_blocks - summary_blocks);
            lost +=
                if map.is_some() { (0..data_blocks).filter(|at| is_live(*at)).count() } else { 0 };
            return;
        };
        is_dirty |= summary.entries.iter().any(|entry| entry.is_dirty);
        let live: Vec<usize> =
            (0..summary.entries.len()).filter(|at| is_live(*at as u64)).collect();
        report.blocks += live.len() as u64;
        let address = header.sections[no].first + first_slot + u64::from(summary_blocks);
        // After a crash an unconfirmed segment may have torn blocks.
        let is_confirmed = map.is_none() || is_confirmed(no, first_slot);
        segments.push((address, summary, if is_confirmed { live } else { Vec::new() }));
    })?;
    if is_dirty {
        return Err(CacheError::Dirty);
    }
    report.lost_blocks = lost as u64;
    for (address, summary, live) in segments {
        report.segments += 1;
        if !data || live.is_empty() {
            continue;
        }
        let mut blocks = Block::zeroed(summary.entries.len());
        device.read(address, &mut blocks)?;
        let is_wrong =
            |at: &&usize| crc32c::crc32c(&blocks[**at].0) != summary.entries[**at].checksum;
        report.damaged_blocks += live.iter().filter(is_wrong).count() as u64;
    }
    Ok((header, report))
}
