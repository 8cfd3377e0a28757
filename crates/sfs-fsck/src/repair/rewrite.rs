//! Writing the repaired tree beside the old one.
//!
//! [`sfs_core::Rebuild`] writes to Clean segments and ends with a checkpoint. Blocks that the old checkpoint
//! or the repair needs are not overwritten before that checkpoint is durable. Leaves of files without a
//! change stay in place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sfs_core::format::{
    CheckpointRecord, ItemKind, Key, SegmentState, Superblock, Timestamp, UsageEntry,
};
use sfs_core::{Basis, Moved, Rebuild};
use sfs_device::{Block, Device};

use crate::error::FsckError;
use crate::findings::Findings;
use crate::progress::{self, ProgressListener, Stage};
use crate::read::key_range::KeyRange;
use crate::read::overlay_tree::OverlayTree;
use crate::read::usage::UsageEntries;
use crate::read::walk::{Leaf, TreePart};
use crate::repair::plan::RepairPlan;

/// Number of blocks that are copied at once.
const COPY_BATCH_BLOCKS: usize = 256;

/// Number of nodes between two reports of progress.
const REPORT_INTERVAL_NODES: u64 = 256;

/// Inputs for writing a repaired tree.
pub(crate) struct Rewrite<'d> {
    pub(crate) device: &'d Arc<dyn Device>,
    pub(crate) superblock: &'d Superblock,
    /// Last checkpoint, with the end of the log.
    pub(crate) record: CheckpointRecord,
    /// Lower bound of the present time, in ticks.
    pub(crate) time: u32,
    pub(crate) usage: &'d UsageEntries,
    /// Segments that were taken into use past the checkpoint, once for each time.
    pub(crate) opened: &'d [u32],
    /// Present time, for the wear ledger.
    pub(crate) now: Timestamp,
    /// Segments whose content this repair, or a repetition of the repair, needs.
    pub(crate) needed: BTreeSet<u32>,
    /// Segments with blocks that are overwritten in place.
    pub(crate) placed: BTreeSet<u32>,
}

impl Rewrite<'_> {
    /// Returns the planned copies that fit into the Clean segments beside the tree. All planned
    /// copies of a segment are made or none. The segments with the fewest copies come first, as
    /// each of them becomes free for later copies.
    pub(crate) fn affordable_copies(
        &self,
        tree: &OverlayTree<'_>,
        plan: &RepairPlan,
    ) -> Vec<(u64, u32)> {
        let layout = &self.superblock.layout;
        let mut by_segment: BTreeMap<Option<u32>, Vec<(u64, u32)>> = BTreeMap::new();
        for (ino, block) in plan.copies.iter().copied() {
            let mapping = tree.mapping(ino, block);
            let segment = mapping.and_then(|mapping| layout.segment_of(mapping.address));
            by_segment.entry(segment).or_default().push((ino, block));
        }
        let is_clean = |entry: &UsageEntry| entry.state == SegmentState::Clean;
        let clean = self.segments().iter().filter(|entry| is_clean(entry)).count();
        // A quarter of the Clean segments is for the tree, and each chunk has a summary.
        let blocks = clean * 3 / 4 * (layout.segment_blocks as usize - 2);
        let copies_max = blocks - blocks / COPY_BATCH_BLOCKS;
        let mut segments: Vec<Vec<(u64, u32)>> = by_segment.into_values().collect();
        segments.sort_by_key(Vec::len);
        let mut copies = Vec::new();
        for segment in segments {
            if copies.len() + segment.len() <= copies_max {
                copies.extend(segment);
            }
        }
        copies
    }

    /// Writes `tree` as the new state of the volume, with `copies` of blocks.
    ///
    /// # Errors
    ///
    /// `NoSpace` if the Clean segments do not suffice; errors of the device; `Cancelled`. The old state is
    /// still there.
    pub(crate) fn write(
        &self,
        tree: &mut OverlayTree<'_>,
        plan: &RepairPlan,
        copies: &[(u64, u32)],
        listener: ProgressListener<'_>,
    ) -> Result<(), FsckError> {
        let basis = Basis { record: self.record.clone(), usage: self.segments(), time: self.time };
        let rebuild = Rebuild::begin(self.device.clone(), self.superblock, &basis)?;
        rebuild.set_time(self.now);
        copy_blocks(&rebuild, tree, copies)?;
        let mut done = 0;
        let mut ignored = Findings::default();
        match tree.walk(KeyRange::ALL) {
            None => write_items(&rebuild, tree, &KeyRange::ALL, &[])?,
            Some(mut walk) => {
                while let Some(part) = walk.next(&mut ignored) {
                    match part {
                        TreePart::Inner(_) => {}
                        TreePart::Leaf(leaf) => write_leaf(&rebuild, tree, plan, &leaf)?,
                        TreePart::Lost(range) => write_items(&rebuild, tree, &range, &[])?,
                    }
                    done += 1;
                    if done % REPORT_INTERVAL_NODES == 0 {
                        progress::report(listener, Stage::Writing, done, 0)?;
                    }
                }
            }
        }
        Ok(rebuild.commit(plan.next_ino)?)
    }

    /// Returns the usage table to begin with, in which a segment is Clean if nothing needs it.
    fn segments(&self) -> Vec<UsageEntry> {
        let mut opened: BTreeMap<u32, u16> = BTreeMap::new();
        for segment in self.opened {
            let count = opened.entry(*segment).or_default();
            *count = count.saturating_add(1);
        }
        let segment = |segment| {
            // The stamp makes a segment without a usage entry the last one to be opened.
            let unknown = UsageEntry { stamp: self.record.next_sequence, ..UsageEntry::NEW };
            let entry = self.usage.get(segment).copied().unwrap_or(unknown);
            let is_free = match entry.state {
                SegmentState::Clean | SegmentState::Drained => true,
                // A forged table may have such a segment without live blocks.
                SegmentState::Sealed | SegmentState::InPlace => entry.live_blocks == 0,
                SegmentState::Open | SegmentState::Bad => false,
            };
            let state = match (entry.state, self.needed.contains(&segment)) {
                (SegmentState::Bad, false) => SegmentState::Bad,
                (_, false) if is_free => SegmentState::Clean,
                _ if self.placed.contains(&segment) => SegmentState::InPlace,
                _ => SegmentState::Sealed,
            };
            let erases = entry.erases.saturating_add(opened.get(&segment).copied().unwrap_or(0));
            UsageEntry { state, erases, ..entry }
        };
        (0..self.superblock.layout.segment_count).map(segment).collect()
    }
}

/// Copies blocks, and maps their files to the copies.
fn copy_blocks(
    rebuild: &Rebuild,
    tree: &mut OverlayTree<'_>,
    copies: &[(u64, u32)],
) -> Result<(), FsckError> {
    for batch in copies.chunks(COPY_BATCH_BLOCKS) {
        let mut moved = Vec::with_capacity(batch.len());
        for (ino, block) in batch.iter().copied() {
            let Some(mapping) = tree.mapping(ino, block) else { continue };
            let mut content = Block::zeroed(1);
            tree.volume.device.read(mapping.address, &mut content)?;
            let content = content[0].clone();
            moved.push(Moved { ino, block, history: mapping.history, content });
        }
        let owners: Vec<(u64, u32)> = moved.iter().map(|moved| (moved.ino, moved.block)).collect();
        for ((ino, block), mapping) in owners.into_iter().zip(rebuild.move_blocks(moved)?) {
            let mapped = tree.map(ino, block, Some(mapping));
            mapped.map_err(|error| FsckError::from(sfs_core::Error::from(error)))?;
        }
    }
    Ok(())
}

/// Keeps `leaf` in its place if none of its items changes, the plan does not rewrite the leaf, and
/// no item is of the volume itself. Otherwise writes the items of the leaf with the edits.
fn write_leaf(
    rebuild: &Rebuild,
    tree: &OverlayTree<'_>,
    plan: &RepairPlan,
    leaf: &Leaf,
) -> Result<(), FsckError> {
    let items = leaf.items();
    let is_kept = tree.edits.in_range(&leaf.range).next().is_none()
        && !plan.rewrites.contains(&leaf.pointer.address)
        && items.first().is_some_and(|(key, _)| key.ino != 0);
    if !is_kept {
        return write_items(rebuild, tree, &leaf.range, &items);
    }
    Ok(rebuild.keep(leaf.pointer, &leaf.block)?)
}

/// Writes `items` with the edits of `range`, without the usage table.
fn write_items(
    rebuild: &Rebuild,
    tree: &OverlayTree<'_>,
    range: &KeyRange,
    items: &[(Key, &[u8])],
) -> Result<(), FsckError> {
    let mut written = Ok(());
    tree.edits.merge(range, items, |key, value| {
        let is_usage = key.ino == 0 && key.kind == ItemKind::Usage as u8;
        if written.is_ok() && !is_usage {
            written = rebuild.put(key, value);
        }
    });
    Ok(written?)
}
