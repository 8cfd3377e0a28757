//! Usage table of a checkpoint, as the tree holds it.

use std::collections::BTreeMap;

use sfs_core::format::{
    CheckpointRecord, Head, TableSegments, USAGE_PER_ITEM, UsageEntry, usage_key,
};

use crate::finding::Finding;
use crate::findings::Findings;
use crate::read::overlay_tree::OverlayTree;

/// Sound entries of the usage table by segment.
#[derive(Default)]
pub(crate) struct UsageEntries(BTreeMap<u32, UsageEntry>);

impl UsageEntries {
    /// Reads the table of checkpoint `record` from `tree`. An item that is missing or does not decode is a finding, as is
    /// a malformed number of segments, with which the table counts as whole. Segments that a resize has added since the
    /// checkpoint are Clean.
    pub(crate) fn read(
        tree: &OverlayTree<'_>,
        record: &CheckpointRecord,
        findings: &mut Findings,
    ) -> Self {
        let segment_count = tree.volume.layout().segment_count;
        let stated = TableSegments::of(&record.extensions, segment_count);
        if stated.is_none() {
            findings.push(Finding::UsageMissing { segment: 0 });
        }
        let count = stated.map_or(segment_count, |stated| stated.0);
        let mut table: BTreeMap<u32, UsageEntry> =
            (count..segment_count).map(|segment| (segment, UsageEntry::NEW)).collect();
        for first in (0..count).step_by(USAGE_PER_ITEM as usize) {
            let wanted = USAGE_PER_ITEM.min(count - first);
            let entries = tree
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

    /// Reads the entries that `tree` has, however many an item should have.
    pub(crate) fn stored(tree: &OverlayTree<'_>) -> Self {
        let firsts = (0..tree.volume.layout().segment_count).step_by(USAGE_PER_ITEM as usize);
        let item = |first| {
            let entries = UsageEntry::decode_item(&tree.get(&usage_key(first))?, first).ok()?;
            Some((first..).zip(entries))
        };
        Self(firsts.filter_map(item).flatten().collect())
    }

    /// Returns segments and their entries, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &UsageEntry)> {
        self.0.iter().map(|(segment, entry)| (*segment, entry))
    }

    /// Returns the entry of `segment`, if it is sound.
    pub(crate) fn get(&self, segment: u32) -> Option<&UsageEntry> {
        self.0.get(&segment)
    }

    /// Returns the number of live tree nodes by this table.
    pub(crate) fn node_count(&self) -> u64 {
        let nodes = self.0.values().filter(|entry| entry.head == Head::METADATA);
        nodes.map(|entry| u64::from(entry.live_blocks)).sum()
    }
}
