//! Reading what a cache holds when it is opened.
//!
//! After a mount that has ended, the map of live blocks says which blocks of the segments are copies of the disk's blocks. After
//! a crash there is no such map, and no copy is taken: any may be old, and a user may have given an old block the checksum that
//! a later one of another user has.

use sfs_device::{Block, Device, DeviceError, ReadPart, ReadRun};

use crate::bitmap::LiveMap;
use crate::error::CacheError;
use crate::header::CacheHeader;
use crate::mutant::{Mutant, mutated};
use crate::state::State;
use crate::summary::{Summary, summary_blocks};

/// Number of summaries in a request to the device.
const SUMMARIES: usize = 64;

/// Calls `each` with the section, number and summary of every segment; `None` for one that is free or damaged.
pub(crate) fn for_each_summary(
    device: &dyn Device,
    header: &CacheHeader,
    mut each: impl FnMut(usize, u32, Option<Summary>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let blocks = summary_blocks(header.segment_blocks);
    let data_blocks = header.segment_blocks - blocks;
    for (no, section) in header.sections.iter().enumerate() {
        for first in (0..section.segment_count).step_by(SUMMARIES) {
            let count = (section.segment_count - first).min(SUMMARIES as u32);
            let mut memory = Block::zeroed((count * blocks) as usize);
            let parts = memory.chunks_mut(blocks as usize);
            let run = |(segment, part)| {
                let address = section.first + u64::from(segment) * u64::from(header.segment_blocks);
                ReadRun { address, parts: vec![ReadPart::Into(part)] }
            };
            let mut runs: Vec<ReadRun<'_>> = (first..).zip(parts).map(run).collect();
            device.read_many(&mut runs).into_iter().collect::<Result<(), _>>()?;
            for (segment, part) in (first..).zip(memory.chunks(blocks as usize)) {
                let is_kept = |summary: &Summary| summary.filling == header.filling;
                each(no, segment, Summary::decode(part, data_blocks).filter(is_kept))?;
            }
        }
    }
    Ok(())
}

/// Fills `state` with what the cache holds. Returns `false`, and takes nothing, without the map of a mount that has ended.
///
/// # Errors
///
/// [`CacheError::Dirty`], with a map and without, and errors of the device.
pub(crate) fn load(
    device: &dyn Device,
    header: &CacheHeader,
    state: &mut State,
) -> Result<bool, CacheError> {
    let map = match header.is_closed {
        true => LiveMap::read(device, header)?,
        false => None,
    };
    let first_bits: Vec<u64> = first_bits(header);
    let mut is_dirty = false;
    for_each_summary(device, header, |no, segment, summary| {
        let Some(summary) = summary else { return Ok(()) };
        is_dirty |= summary.has_dirty();
        state.sequence = state.sequence.max(summary.sequence);
        if map.is_none() && !mutated(Mutant::UncleanTaken) {
            return Ok(());
        }
        let is_live =
            |slot: u32| map.as_ref().is_none_or(|map| map.is_set(first_bits[no] + u64::from(slot)));
        state.sections[no].load(segment, &summary, is_live);
        Ok(())
    })?;
    state.sections.iter_mut().for_each(crate::section::Section::end_loading);
    match is_dirty {
        true => Err(CacheError::Dirty),
        false => Ok(map.is_some() || mutated(Mutant::UncleanTaken)),
    }
}

/// Returns the number of the first bit of each section in the map of live blocks.
pub(crate) fn first_bits(header: &CacheHeader) -> Vec<u64> {
    let mut next = 0;
    let bits = |segments: u32| u64::from(segments) * u64::from(header.segment_blocks);
    let first = |section: &crate::header::SectionPlan| {
        let first = next;
        next += bits(section.segment_count);
        first
    };
    header.sections.iter().map(first).collect()
}
