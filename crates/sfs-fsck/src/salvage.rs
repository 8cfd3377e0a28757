//! Filling what is lost of a tree from what was found.
//!
//! Owns: which of several versions counts.
//! Promises: of two leaves that cover a key the newer one counts, also where it says that the key is gone;
//! a block is mapped only if it has the checksum that its summary says.
//! Never: invents anything.

use std::collections::{BTreeMap, BTreeSet};

use sfs_core::format::{Key, Mapping, MappingRun, run_key};
use sfs_device::{BLOCK_SIZE, Block};

use crate::deltas::{self, Said};
use crate::node::{self, Content};
use crate::scan::{FoundBlock, FoundLeaf, Scan, is_restorable};
use crate::view::View;
use crate::walk::{Keys, any_contains};
use crate::{FsckError, Loss};

/// What was filled in.
#[derive(Default)]
pub(crate) struct Salvaged {
    /// Files of which something was restored, or lost.
    pub(crate) losses: BTreeSet<Loss>,
    /// Leaves that something was taken from.
    pub(crate) sources: BTreeSet<u64>,
}

/// Ranges of keys that leaves have filled: end and sequence number, by start. They do not overlap.
#[derive(Default)]
struct Covered(BTreeMap<Key, (Key, u64)>);

impl Covered {
    /// The sequence number of the leaf that covers `key`.
    fn by(&self, key: &Key) -> Option<u64> {
        let (_, (end, sequence)) = self.0.range(..=*key).next_back()?;
        (key < end).then_some(*sequence)
    }

    /// Covers what is not covered yet from `start` up to `end`.
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

/// Fills the keys that `view` has lost from `scan`.
pub(crate) fn fill(view: &mut View<'_>, scan: &mut Scan<'_>) -> Result<Salvaged, FsckError> {
    let mut salvaged = Salvaged::default();
    let lost = view.lost().to_vec();
    let covered = fill_items(view, &lost, scan, &mut salvaged);
    fill_said(view, &covered, scan, &mut salvaged)?;
    fill_blocks(view, &covered, scan, &mut salvaged);
    Ok(salvaged)
}

/// Takes items from leaves, the newest first.
fn fill_items(
    view: &mut View<'_>,
    lost: &[Keys],
    scan: &Scan<'_>,
    salvaged: &mut Salvaged,
) -> Covered {
    let mut leaves = scan.leaves.clone();
    leaves.sort_unstable_by(|a, b| b.cmp(a));
    let mut covered = Covered::default();
    for leaf in leaves {
        if take_items(view, lost, &leaf, &covered, salvaged) {
            covered.add(leaf.first, leaf.last.next(), leaf.sequence);
        }
    }
    covered
}

/// Takes what is not covered yet from `leaf`; whether it could be read.
fn take_items(
    view: &mut View<'_>,
    lost: &[Keys],
    leaf: &FoundLeaf,
    covered: &Covered,
    salvaged: &mut Salvaged,
) -> bool {
    let volume = view.volume;
    let mut block = Block::zeroed(1);
    if volume.device.read(leaf.address, &mut block).is_err() {
        return false;
    }
    let header = sfs_core::format::NodeHeader::verify(&block[0].0, volume.id(), leaf.pointer());
    let content = header.and_then(|header| node::decode(&block[0].0, header, leaf.address));
    let Ok(Content::Leaf(items)) = content else { return false };
    for (key, value) in items {
        let is_lost = any_contains(lost, &key);
        if is_lost && is_restorable(&key) && covered.by(&key).is_none() {
            view.edits.put(key, value);
            salvaged.losses.insert(Loss::Restored { ino: key.ino });
            salvaged.sources.insert(leaf.address);
        }
    }
    true
}

/// Puts and deletes what deltas have said since.
fn fill_said(
    view: &mut View<'_>,
    covered: &Covered,
    scan: &mut Scan<'_>,
    salvaged: &mut Salvaged,
) -> Result<(), FsckError> {
    let volume = view.volume;
    deltas::replay(volume, scan, |said| {
        let Said { key, value, sequence } = said;
        if covered.by(&key) >= Some(sequence) {
            return;
        }
        salvaged.losses.insert(Loss::Restored { ino: key.ino });
        match value {
            Some(value) => view.edits.put(key, value),
            None => view.edits.delete(key),
        }
    })
}

/// Maps blocks that summaries know of, and that are newer than the leaf that should map them.
fn fill_blocks(view: &mut View<'_>, covered: &Covered, scan: &Scan<'_>, salvaged: &mut Salvaged) {
    let mut blocks: Vec<(&(u64, u32), &FoundBlock)> = scan.blocks.iter().collect();
    blocks.sort_unstable_by_key(|(place, _)| **place);
    for ((ino, block), found) in blocks {
        let known = covered.by(&run_key(*ino, *block));
        if known >= Some(found.sequence) {
            continue;
        }
        let mapped = mapping(view, *ino, *block);
        if mapped.is_some_and(|mapping| mapping.address == found.address) {
            continue;
        }
        salvaged.losses.insert(Loss::Restored { ino: *ino });
        let FoundBlock { address, checksum, history, .. } = *found;
        let new = Mapping { address, checksum: Some(checksum), history };
        let is_there = is_there(view, &new);
        if !is_there {
            let first = u64::from(*block) * BLOCK_SIZE as u64;
            let last = first + BLOCK_SIZE as u64 - 1;
            salvaged.losses.insert(Loss::Bytes { ino: *ino, first, last });
        }
        // A run that does not decode is found, and dropped, on its own.
        let _ = view.map(*ino, *block, is_there.then_some(new));
    }
}

fn is_there(view: &View<'_>, mapping: &Mapping) -> bool {
    let mut block = Block::zeroed(1);
    let is_read = view.volume.device.read(mapping.address, &mut block).is_ok();
    is_read && mapping.checksum.is_none_or(|checksum| crc32c::crc32c(&block[0].0) == checksum)
}

/// Where `block` of `ino` is.
pub(crate) fn mapping(view: &View<'_>, ino: u64, block: u32) -> Option<Mapping> {
    let key = run_key(ino, block);
    MappingRun::find(&view.get(&key)?, &key, block, view.volume.superblock.tolerance()).ok()?
}
