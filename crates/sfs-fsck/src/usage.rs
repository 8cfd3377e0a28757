//! The usage table of a checkpoint, recounted.
//!
//! Owns: the table, and what must agree with it.
//! Promises: memory only for segments that the tree names.
//! Never: looks at what happened after the checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{
    CheckpointRecord, ItemKind, Key, MappingRun, NodePointer, RUN_BLOCKS, SegmentState,
    USAGE_PER_ITEM, UsageEntry, usage_key,
};

use crate::items::Items;
use crate::volume::Volume;
use crate::{Finding, Findings};

/// Entries by segment; only sound ones.
pub(crate) struct Usage(BTreeMap<u32, UsageEntry>);

impl Usage {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &UsageEntry)> {
        self.0.iter().map(|(segment, entry)| (*segment, entry))
    }

    /// Decodes the table in `items`.
    pub(crate) fn read(volume: &Volume<'_>, items: &Items, findings: &mut Findings) -> Self {
        let segment_count = volume.layout().segment_count;
        let mut table = BTreeMap::new();
        for first in (0..segment_count).step_by(USAGE_PER_ITEM as usize) {
            let wanted = USAGE_PER_ITEM.min(segment_count - first);
            let entries = items
                .get(&usage_key(first))
                .and_then(|value| UsageEntry::decode_item(value, first).ok())
                .filter(|entries| entries.len() == wanted as usize);
            match entries {
                Some(entries) => table.extend((first..).zip(entries)),
                None => findings.push(Finding::UsageMissing { segment: first }),
            }
        }
        let behind = u64::from(segment_count.div_ceil(USAGE_PER_ITEM));
        for (key, _) in items.of(0, ItemKind::Usage) {
            if key.offset >= behind {
                let segment = key.offset.saturating_mul(USAGE_PER_ITEM.into());
                let segment = u32::try_from(segment).unwrap_or(u32::MAX);
                findings.push(Finding::UsageExcess { segment });
            }
        }
        Self(table)
    }
}

/// What the tree refers to in a segment.
#[derive(Default)]
struct Counted {
    live_blocks: u64,
    write_count_sum: u64,
    modified_sum: u64,
}

/// Compares the table with the tree whose items and nodes are given.
pub(crate) fn check(
    volume: &Volume<'_>,
    record: &CheckpointRecord,
    usage: &Usage,
    items: &Items,
    nodes: &[NodePointer],
    findings: &mut Findings,
) {
    let counted = count(volume, items, nodes);
    let heads: BTreeSet<u32> = record.heads.iter().map(|head| head.segment).collect();
    let none = Counted::default();
    for (segment, entry) in usage.iter() {
        let counted = counted.get(&segment).unwrap_or(&none);
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
            SegmentState::Open => heads.contains(&segment),
            SegmentState::Sealed | SegmentState::Bad => !heads.contains(&segment),
        };
        if !is_sound {
            findings.push(Finding::UsageState { segment, state: entry.state });
        }
    }
}

fn count(volume: &Volume<'_>, items: &Items, nodes: &[NodePointer]) -> BTreeMap<u32, Counted> {
    let mut table: BTreeMap<u32, Counted> = BTreeMap::new();
    let layout = volume.layout();
    for segment in nodes.iter().filter_map(|node| layout.segment_of(node.address)) {
        table.entry(segment).or_default().live_blocks += 1;
    }
    for (key, value) in items.iter().filter(|(key, _)| key.kind == ItemKind::Mapping as u8) {
        // Runs that do not decode are found elsewhere.
        let Some(run) = decode_run(key, value) else { continue };
        for (_, mapping) in run.iter(key.offset as u32 * RUN_BLOCKS) {
            let Some(segment) = layout.segment_of(mapping.address) else { continue };
            let counted = table.entry(segment).or_default();
            counted.live_blocks += 1;
            counted.write_count_sum += u64::from(mapping.history.write_count());
            counted.modified_sum += u64::from(mapping.history.modified);
        }
    }
    table
}

/// The run in an item, if it decodes and is one of a file that can be.
pub(crate) fn decode_run(key: &Key, value: &[u8]) -> Option<MappingRun> {
    (key.offset <= u64::from(u32::MAX / RUN_BLOCKS)).then_some(())?;
    MappingRun::decode(value, key).ok()
}
