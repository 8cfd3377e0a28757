//! Recount of the usage table of a checkpoint.
//!
//! The sums come from the tree on the device, before the log past the checkpoint is applied. Memory grows
//! with the segments that the tree refers to.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{CheckpointRecord, DataLayout, ItemKind, Key, SegmentState, UsageEntry};

use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::mapping::decode_run;
use crate::read::usage::UsageEntries;
use crate::read::volume::VolumeReader;

/// Live blocks of a segment, counted from the tree.
#[derive(Clone, Copy, Default)]
struct RecountedSegment {
    live_blocks: u64,
    /// Live blocks that are overwritten in place.
    placed_blocks: u64,
    write_count_sum: u64,
    modified_sum: u64,
    /// Number of blocks up to the last live one.
    end_blocks: u64,
}

/// Sums of live blocks by segment.
#[derive(Default)]
pub(crate) struct UsageRecount(BTreeMap<u32, RecountedSegment>);

impl UsageRecount {
    /// Counts the node at `address`.
    pub(crate) fn add_node(&mut self, volume: &VolumeReader<'_>, address: u64) {
        self.add_block(volume, address);
    }

    /// Counts the live block at `address`. Returns the sums of its segment, if the block is in a
    /// segment.
    fn add_block(
        &mut self,
        volume: &VolumeReader<'_>,
        address: u64,
    ) -> Option<&mut RecountedSegment> {
        let segment = volume.layout().segment_of(address)?;
        let sum = self.0.entry(segment).or_default();
        sum.live_blocks += 1;
        let end_blocks = address - volume.layout().segment_address(segment) + 1;
        sum.end_blocks = sum.end_blocks.max(end_blocks);
        Some(sum)
    }

    /// Counts the blocks of a mapping run. A run that does not decode has a finding elsewhere.
    pub(crate) fn add_item(&mut self, volume: &VolumeReader<'_>, key: &Key, value: &[u8]) {
        if key.kind != ItemKind::Mapping as u8 {
            return;
        }
        let Ok(run) = decode_run(key, value, volume.superblock.tolerance()) else { return };
        for (_, mapping) in run.iter(0) {
            let Some(sum) = self.add_block(volume, mapping.address) else { continue };
            sum.placed_blocks += u64::from(mapping.checksum.is_none());
            sum.write_count_sum += u64::from(mapping.history.write_count());
            sum.modified_sum += u64::from(mapping.history.modified);
        }
    }

    /// Compares the table `usage`, and the heads of the checkpoint, with the sums of the same tree.
    pub(crate) fn check(
        &self,
        data_layout: DataLayout,
        record: &CheckpointRecord,
        usage: &UsageEntries,
        findings: &mut Findings,
    ) {
        let heads: BTreeSet<u32> = record.heads.iter().map(|head| head.segment).collect();
        for head in &record.heads {
            let end_blocks = self.0.get(&head.segment).map_or(0, |sum| sum.end_blocks);
            if end_blocks > u64::from(head.next_block) {
                findings.push(Finding::HeadInvalid { head: head.head });
            }
        }
        for (segment, entry) in usage.iter() {
            let sum = self.0.get(&segment).copied().unwrap_or_default();
            let (recorded, counted) = (entry.live_blocks, sum.live_blocks);
            if u64::from(recorded) != counted {
                findings.push(Finding::UsageLive { segment, recorded, counted });
            }
            if (entry.write_count_sum, entry.modified_sum)
                != (sum.write_count_sum, sum.modified_sum)
            {
                findings.push(Finding::UsageSums { segment });
            }
            if !is_state_sound(entry, &sum, heads.contains(&segment), data_layout) {
                findings.push(Finding::UsageState { segment, state: entry.state });
            }
        }
    }
}

/// Returns whether a segment with these sums can have the state of `entry`.
fn is_state_sound(
    entry: &UsageEntry,
    sum: &RecountedSegment,
    is_head: bool,
    data_layout: DataLayout,
) -> bool {
    match entry.state {
        SegmentState::Clean | SegmentState::Drained | SegmentState::Bad => {
            sum.live_blocks == 0 && !is_head
        }
        SegmentState::Open => is_head && sum.placed_blocks == 0,
        // A Sealed segment becomes Drained with its last live block, so an empty one would never be Clean.
        SegmentState::Sealed => sum.live_blocks > 0 && !is_head && sum.placed_blocks == 0,
        SegmentState::InPlace => {
            data_layout != DataLayout::Log && !is_head && sum.placed_blocks == sum.live_blocks
        }
    }
}
