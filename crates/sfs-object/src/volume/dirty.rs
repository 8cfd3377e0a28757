//! Blocks that were written and are not in the store, by region, and regions that are frozen while they are uploaded.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use fixedbitset::FixedBitSet;
use sfs_device::Block;

use super::shape::Shape;

/// Blocks that were written, by region; bits count from the begin of the region.
pub(crate) type DirtyRegions = BTreeMap<u64, FixedBitSet>;

/// Adds a range of blocks.
pub(crate) fn add(dirty: &mut DirtyRegions, shape: Shape, blocks: Range<u64>) {
    for region in shape.regions_of(blocks.start, blocks.end - blocks.start) {
        let of = shape.blocks(region);
        let range = blocks.start.max(of.start) - of.start..blocks.end.min(of.end) - of.start;
        let bits = dirty
            .entry(region)
            .or_insert_with(|| FixedBitSet::with_capacity((of.end - of.start) as usize));
        bits.insert_range(range.start as usize..range.end as usize);
    }
}

/// Returns the runs of bits that are set.
pub(crate) fn runs(bits: &FixedBitSet) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for bit in bits.ones().map(|bit| bit as u64) {
        match runs.last_mut() {
            Some(run) if run.end == bit => run.end += 1,
            _ => runs.push(bit..bit + 1),
        }
    }
    runs
}

/// Content of regions at one moment, which is being uploaded.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    /// Regions whose content was not read yet.
    pub(crate) unread: BTreeSet<u64>,
    /// Blocks of such regions as they were before a later write.
    pub(crate) saved: HashMap<u64, Box<Block>>,
}
