//! Salvage of lost keys from a scan of the segments.
//!
//! Of two leaves that cover a key the newer one counts, even if it lacks the key. Deltas and blocks count if
//! they are newer than the leaf that covers them. A block is mapped only if it matches the checksum in its
//! summary.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use sfs_core::format::{Key, Mapping, NodeHeader, RUN_BLOCKS, run_key};
use sfs_device::{BLOCK_SIZE, Block};

use crate::error::FsckError;
use crate::read::key_range::{KeyRange, any_contains};
use crate::read::node::{self, NodeContent};
use crate::read::overlay_tree::OverlayTree;
use crate::read::segment_scan::{FoundBlock, FoundLeaf, SegmentScan, is_restorable};
use crate::repair::loss::Loss;
use crate::repair::old_deltas::{self, OldChange};

/// Result of a salvage.
#[derive(Default)]
pub(crate) struct Salvaged {
    /// Files that are restored in part, and lost bytes.
    pub(crate) losses: BTreeSet<Loss>,
    /// Addresses of the leaves with restored items.
    pub(crate) sources: BTreeSet<u64>,
}

/// Ranges of keys that leaves cover: end and sequence number of the leaf by start. Ranges do not overlap.
#[derive(Default)]
struct CoveredKeys(BTreeMap<Key, (Key, u64)>);

impl CoveredKeys {
    /// Returns the sequence number of the leaf that covers `key`.
    fn sequence_of(&self, key: &Key) -> Option<u64> {
        let (_, (end, sequence)) = self.0.range(..=*key).next_back()?;
        (key < end).then_some(*sequence)
    }

    /// Covers the keys from `start` up to `end` that are not covered yet.
    fn add(&mut self, start: Key, end: Key, sequence: u64) {
        let mut at = self.0.range(..=start).next_back().map_or(start, |(_, (e, _))| start.max(*e));
        let later: Vec<(Key, Key)> =
            self.0.range(start..end).map(|(start, (end, _))| (*start, *end)).collect();
        for (start, end) in later {
            if at < start {
                self.0.insert(at, (start, sequence));
            }
            at = at.max(end);
        }
        if at < end {
            self.0.insert(at, (end, sequence));
        }
    }
}

/// Fills the lost keys of `tree` from `scan`.
pub(crate) fn salvage(
    tree: &mut OverlayTree<'_>,
    scan: &mut SegmentScan<'_>,
) -> Result<Salvaged, FsckError> {
    let mut salvaged = Salvaged::default();
    let lost = tree.lost().to_vec();
    let covered = fill_items(tree, &lost, scan, &mut salvaged);
    fill_from_deltas(tree, &covered, scan, &mut salvaged)?;
    fill_blocks(tree, &covered, scan, &mut salvaged);
    Ok(salvaged)
}

/// Takes items from leaves, the newest first.
fn fill_items(
    tree: &mut OverlayTree<'_>,
    lost: &[KeyRange],
    scan: &SegmentScan<'_>,
    salvaged: &mut Salvaged,
) -> CoveredKeys {
    let mut leaves = scan.leaves.clone();
    leaves.sort_unstable_by(|a, b| b.cmp(a));
    let mut covered = CoveredKeys::default();
    for leaf in leaves {
        if take_items(tree, lost, &leaf, &covered, salvaged) {
            covered.add(leaf.first, leaf.last.next(), leaf.sequence);
        }
    }
    covered
}

/// Takes the items of `leaf` that are lost and not covered yet. Returns whether the leaf is sound.
fn take_items(
    tree: &mut OverlayTree<'_>,
    lost: &[KeyRange],
    leaf: &FoundLeaf,
    covered: &CoveredKeys,
    salvaged: &mut Salvaged,
) -> bool {
    let volume = tree.volume;
    let mut block = Block::zeroed(1);
    if volume.device.read(leaf.address, &mut block).is_err() {
        return false;
    }
    let header = NodeHeader::verify(&block[0].0, volume.id(), leaf.pointer());
    let content = header.and_then(|header| node::decode(&block[0].0, header, leaf.address));
    let Ok(NodeContent::Leaf(items)) = content else { return false };
    for (key, value) in items {
        let is_lost = any_contains(lost, &key);
        if is_lost && is_restorable(&key) && covered.sequence_of(&key).is_none() {
            tree.edits.put(key, value);
            salvaged.losses.insert(Loss::Restored { ino: key.ino });
            salvaged.sources.insert(leaf.address);
        }
    }
    true
}

/// Applies the changes of deltas that are newer than the leaves.
fn fill_from_deltas(
    tree: &mut OverlayTree<'_>,
    covered: &CoveredKeys,
    scan: &mut SegmentScan<'_>,
    salvaged: &mut Salvaged,
) -> Result<(), FsckError> {
    let volume = tree.volume;
    old_deltas::replay(volume, scan, |change, sequence| match change {
        OldChange::Unmap(ino, blocks) => unmap(tree, covered, ino, &blocks, sequence),
        OldChange::Item(key, _) if covered.sequence_of(&key) >= Some(sequence) => {}
        OldChange::Item(key, value) => {
            salvaged.losses.insert(Loss::Restored { ino: key.ino });
            match value {
                Some(value) => tree.edits.put(key, value),
                None => tree.edits.delete(key),
            }
        }
    })
}

/// Unmaps `blocks` of `ino` in the runs that were taken from leaves before chunk number `sequence`.
/// Otherwise the blocks of a deleted file would seem to be a file without attributes.
fn unmap(
    tree: &mut OverlayTree<'_>,
    covered: &CoveredKeys,
    ino: u64,
    blocks: &RangeInclusive<u32>,
    sequence: u64,
) {
    let (low, last) = (run_key(ino, *blocks.start()), run_key(ino, *blocks.end()));
    let range = KeyRange { low, high: Some(last.next()) };
    let runs = tree.edits.in_range(&range).map(|(key, _)| *key);
    let runs: Vec<Key> = runs.filter(|key| covered.sequence_of(key) < Some(sequence)).collect();
    for key in runs {
        let first = key.offset as u32 * RUN_BLOCKS;
        let part = first.max(*blocks.start())..=(first + (RUN_BLOCKS - 1)).min(*blocks.end());
        // A run that does not decode has its own finding, and is dropped.
        let _ = tree.unmap(ino, part);
    }
}

/// Maps blocks whose summary is newer than the leaf that covers their mapping run.
fn fill_blocks(
    tree: &mut OverlayTree<'_>,
    covered: &CoveredKeys,
    scan: &SegmentScan<'_>,
    salvaged: &mut Salvaged,
) {
    let mut blocks: Vec<(&(u64, u32), &FoundBlock)> = scan.blocks.iter().collect();
    blocks.sort_unstable_by_key(|(position, _)| **position);
    for ((ino, block), found) in blocks {
        let known = covered.sequence_of(&run_key(*ino, *block));
        if known >= Some(found.sequence) {
            continue;
        }
        let mapped = tree.mapping(*ino, *block);
        if mapped.is_some_and(|mapping| mapping.address == found.address) {
            continue;
        }
        salvaged.losses.insert(Loss::Restored { ino: *ino });
        let FoundBlock { address, checksum, history, .. } = *found;
        let new = Mapping { address, checksum: Some(checksum), history };
        let is_sound = has_content(tree, &new);
        if !is_sound {
            let first = u64::from(*block) * BLOCK_SIZE as u64;
            let last = first + BLOCK_SIZE as u64 - 1;
            salvaged.losses.insert(Loss::Bytes { ino: *ino, first, last });
        }
        // A run that does not decode has its own finding, and is dropped.
        let _ = tree.map(*ino, *block, is_sound.then_some(new));
    }
}

/// Returns whether the block of `mapping` is readable and matches its checksum.
fn has_content(tree: &OverlayTree<'_>, mapping: &Mapping) -> bool {
    let mut block = Block::zeroed(1);
    let is_read = tree.volume.device.read(mapping.address, &mut block).is_ok();
    is_read && mapping.checksum.is_none_or(|checksum| crc32c::crc32c(&block[0].0) == checksum)
}
