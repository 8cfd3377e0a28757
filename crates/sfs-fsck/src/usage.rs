//! The usage table of a checkpoint, recounted.
//!
//! Owns: the table, and what must agree with it.
//! Promises: memory only for segments that the tree names.
//! Never: looks at what happened after the checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{
    CheckpointRecord, Corruption, CorruptionKind, DataLayout, DecodeError, Head, ItemKind, Key,
    MappingRun, SegmentState, Tolerance, USAGE_PER_ITEM, UsageEntry, usage_key,
};

use crate::view::View;
use crate::volume::Volume;
use crate::{Finding, Findings};

/// Entries by segment; only sound ones.
#[derive(Default)]
pub(crate) struct Usage(BTreeMap<u32, UsageEntry>);

impl Usage {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &UsageEntry)> {
        self.0.iter().map(|(segment, entry)| (*segment, entry))
    }

    /// The entry of `segment`, if there is a sound one.
    pub(crate) fn get(&self, segment: u32) -> Option<&UsageEntry> {
        self.0.get(&segment)
    }

    /// Tree nodes that live, by this table.
    pub(crate) fn node_count(&self) -> u64 {
        let nodes = self.0.values().filter(|entry| entry.head == Head::METADATA);
        nodes.map(|entry| u64::from(entry.live_blocks)).sum()
    }

    /// Decodes the table in `view`.
    pub(crate) fn read(view: &View<'_>, findings: &mut Findings) -> Self {
        let segment_count = view.volume.layout().segment_count;
        let mut table = BTreeMap::new();
        for first in (0..segment_count).step_by(USAGE_PER_ITEM as usize) {
            let wanted = USAGE_PER_ITEM.min(segment_count - first);
            let entries = view
                .get(&usage_key(first))
                .and_then(|value| UsageEntry::decode_item(&value, first).ok())
                .filter(|entries| entries.len() == wanted as usize);
            match entries {
                Some(entries) => table.extend((first..).zip(entries)),
                None => findings.push(Finding::UsageMissing { segment: first }),
            }
        }
        Self(table)
    }
}

/// What the tree refers to in a segment.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) live_blocks: u64,
    /// Those that are overwritten in place.
    placed_blocks: u64,
    write_count_sum: u64,
    modified_sum: u64,
    /// Behind the last of them.
    end: u64,
}

/// What a tree refers to, by segment.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<u32, Counted>);

impl Counts {
    /// A node is at `address`.
    pub(crate) fn add_node(&mut self, volume: &Volume<'_>, address: u64) {
        self.count(volume, address);
    }

    /// The block at `address` lives; gives what is counted of its segment.
    fn count(&mut self, volume: &Volume<'_>, address: u64) -> Option<&mut Counted> {
        let segment = volume.layout().segment_of(address)?;
        let counted = self.0.entry(segment).or_default();
        counted.live_blocks += 1;
        counted.end = counted.end.max(address - volume.layout().segment_address(segment) + 1);
        Some(counted)
    }

    /// The tree has this item. What does not decode is found elsewhere.
    pub(crate) fn add_item(&mut self, volume: &Volume<'_>, key: &Key, value: &[u8]) {
        if key.kind != ItemKind::Mapping as u8 {
            return;
        }
        let Ok(run) = decode_run(key, value, volume.superblock.tolerance()) else { return };
        for (_, mapping) in run.iter(0) {
            let Some(counted) = self.count(volume, mapping.address) else { continue };
            counted.placed_blocks += u64::from(mapping.checksum.is_none());
            counted.write_count_sum += u64::from(mapping.history.write_count());
            counted.modified_sum += u64::from(mapping.history.modified);
        }
    }

    /// Compares the table with what was counted of the same tree.
    pub(crate) fn check(
        &self,
        data_layout: DataLayout,
        record: &CheckpointRecord,
        usage: &Usage,
        findings: &mut Findings,
    ) {
        let heads: BTreeSet<u32> = record.heads.iter().map(|head| head.segment).collect();
        for head in &record.heads {
            let end = self.0.get(&head.segment).map_or(0, |counted| counted.end);
            if end > u64::from(head.next_block) {
                findings.push(Finding::HeadInvalid { head: head.head });
            }
        }
        for (segment, entry) in usage.iter() {
            let counted = self.0.get(&segment).copied().unwrap_or_default();
            let recorded = entry.live_blocks;
            if u64::from(recorded) != counted.live_blocks {
                let counted = counted.live_blocks;
                findings.push(Finding::UsageLive { segment, recorded, counted });
            }
            if (entry.write_count_sum, entry.modified_sum)
                != (counted.write_count_sum, counted.modified_sum)
            {
                findings.push(Finding::UsageSums { segment });
            }
            let is_sound = match entry.state {
                SegmentState::Clean | SegmentState::Drained => {
                    counted.live_blocks == 0 && !heads.contains(&segment)
                }
                SegmentState::Open => heads.contains(&segment) && counted.placed_blocks == 0,
                // Nobody ever finds that it is empty: what is emptied becomes Drained at once.
                SegmentState::Sealed => {
                    counted.live_blocks > 0
                        && !heads.contains(&segment)
                        && counted.placed_blocks == 0
                }
                SegmentState::Bad => counted.live_blocks == 0 && !heads.contains(&segment),
                SegmentState::InPlace => {
                    data_layout != DataLayout::Log
                        && !heads.contains(&segment)
                        && counted.placed_blocks == counted.live_blocks
                }
            };
            if !is_sound {
                findings.push(Finding::UsageState { segment, state: entry.state });
            }
        }
    }
}

/// The run in an item, if it decodes and is one of a file that can be.
pub(crate) fn decode_run(
    key: &Key,
    value: &[u8],
    tolerance: Tolerance,
) -> Result<MappingRun, DecodeError> {
    let offset_max = u64::from(u32::MAX / sfs_core::format::RUN_BLOCKS);
    if key.offset > offset_max {
        return Err(Corruption::in_item(key.ino, CorruptionKind::Value).into());
    }
    MappingRun::decode(value, key, tolerance)
}
