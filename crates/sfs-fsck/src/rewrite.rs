//! Writing what was repaired.
//!
//! Owns: which segments may be written to, which leaves stay as they are, and the superblocks' copies.
//! Promises: nothing that the old checkpoint or the repair needs is overwritten before the new checkpoint
//! is durable.
//! Never: changes what a view says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sfs_core::format::{
    CheckpointRecord, Corruption, CorruptionKind, FORMAT_VERSION, ItemKind, Key, LOCATOR_ADDRESS,
    SUPERBLOCK_ADDRESS, SegmentState, Structure, Superblock, UsageEntry,
};
use sfs_core::{Basis, Moved, Rebuild};
use sfs_device::{Block, Device, Stream};

use crate::findings::Copy;
use crate::progress::{Listener, Stage, tell};
use crate::remedy::Plan;
use crate::usage::Usage;
use crate::view::View;
use crate::volume::Volume;
use crate::walk::{Keys, Leaf, Part};
use crate::{Findings, FsckError, salvage};

/// Blocks that get a copy at once.
const COPIES_MAX: usize = 256;

/// Nodes between two reports of progress.
const REPORT_EVERY: u64 = 256;

/// What a repair is written with.
pub(crate) struct Draft<'d> {
    pub(crate) device: &'d Arc<dyn Device>,
    pub(crate) superblock: &'d Superblock,
    /// The last checkpoint, with where the log goes on.
    pub(crate) record: CheckpointRecord,
    /// It is so late at least, in ticks.
    pub(crate) time: u32,
    pub(crate) usage: &'d Usage,
    /// Segments in which something is that may be needed again.
    pub(crate) needed: BTreeSet<u32>,
    /// Those of them in which blocks are overwritten in place.
    pub(crate) placed: BTreeSet<u32>,
}

impl Draft<'_> {
    /// The copies that there is room for beside the tree; all of a segment before the next, those of
    /// which least is to be copied first, so that they make room for others.
    pub(crate) fn affordable(&self, view: &View<'_>, plan: &Plan) -> Vec<(u64, u32)> {
        let layout = &self.superblock.layout;
        let mut by_segment: BTreeMap<Option<u32>, Vec<(u64, u32)>> = BTreeMap::new();
        for (ino, block) in plan.copies.iter().copied() {
            let mapping = salvage::mapping(view, ino, block);
            let segment = mapping.and_then(|mapping| layout.segment_of(mapping.address));
            by_segment.entry(segment).or_default().push((ino, block));
        }
        let is_clean = |entry: &UsageEntry| entry.state == SegmentState::Clean;
        let clean = self.segments().iter().filter(|entry| is_clean(entry)).count();
        // The tree gets a fourth, and summaries a block in each chunk.
        let room = clean * 3 / 4 * (layout.segment_blocks as usize - 2);
        let room = room - room / COPIES_MAX;
        let mut segments: Vec<Vec<(u64, u32)>> = by_segment.into_values().collect();
        segments.sort_by_key(Vec::len);
        let mut copies = Vec::new();
        for segment in segments {
            if copies.len() + segment.len() <= room {
                copies.extend(segment);
            }
        }
        copies
    }

    /// Makes `view` the volume, with `copies` of blocks.
    pub(crate) fn write(
        &self,
        view: &mut View<'_>,
        plan: &Plan,
        copies: &[(u64, u32)],
        listener: Listener<'_>,
    ) -> Result<(), FsckError> {
        let basis = Basis { record: self.record.clone(), usage: self.segments(), time: self.time };
        let rebuild = Rebuild::begin(self.device.clone(), self.superblock, &basis)?;
        copy_blocks(&rebuild, view, copies)?;
        let mut done = 0;
        let mut ignored = Findings::default();
        match view.parts(Keys::ALL) {
            None => write_items(&rebuild, view, &Keys::ALL, &[])?,
            Some(mut walk) => {
                while let Some(part) = walk.next(&mut ignored) {
                    match part {
                        Part::Inner(_) => {}
                        Part::Leaf(leaf) => write_leaf(&rebuild, view, plan, &leaf)?,
                        Part::Lost(keys) => write_items(&rebuild, view, &keys, &[])?,
                    }
                    done += 1;
                    if done % REPORT_EVERY == 0 {
                        tell(listener, Stage::Writing, done, 0)?;
                    }
                }
            }
        }
        Ok(rebuild.commit(plan.next_ino)?)
    }

    /// The table to begin with: Clean is what nobody needs.
    fn segments(&self) -> Vec<UsageEntry> {
        let segment = |segment| {
            // What is not known is opened last.
            let unknown = UsageEntry { stamp: self.record.next_sequence, ..UsageEntry::NEW };
            let entry = self.usage.get(segment).copied().unwrap_or(unknown);
            let is_free = match entry.state {
                SegmentState::Clean | SegmentState::Drained => true,
                // Forged, but empty all the same.
                SegmentState::Sealed | SegmentState::InPlace => entry.live_blocks == 0,
                SegmentState::Open | SegmentState::Bad => false,
            };
            let state = match (entry.state, self.needed.contains(&segment)) {
                (SegmentState::Bad, false) => SegmentState::Bad,
                (_, false) if is_free => SegmentState::Clean,
                _ if self.placed.contains(&segment) => SegmentState::InPlace,
                _ => SegmentState::Sealed,
            };
            UsageEntry { state, ..entry }
        };
        (0..self.superblock.layout.segment_count).map(segment).collect()
    }
}

/// Gives blocks a place of their own.
fn copy_blocks(
    rebuild: &Rebuild,
    view: &mut View<'_>,
    copies: &[(u64, u32)],
) -> Result<(), FsckError> {
    for some in copies.chunks(COPIES_MAX) {
        let mut moved = Vec::with_capacity(some.len());
        for (ino, block) in some.iter().copied() {
            let Some(mapping) = salvage::mapping(view, ino, block) else { continue };
            let mut content = Block::zeroed(1);
            view.volume.device.read(mapping.address, &mut content)?;
            let content = content[0].clone();
            moved.push(Moved { ino, block, history: mapping.history, content });
        }
        let places: Vec<(u64, u32)> = moved.iter().map(|moved| (moved.ino, moved.block)).collect();
        for ((ino, block), mapping) in places.into_iter().zip(rebuild.move_blocks(moved)?) {
            let mapped = view.map(ino, block, Some(mapping));
            mapped.map_err(|error| FsckError::from(sfs_core::Error::from(error)))?;
        }
    }
    Ok(())
}

/// Keeps `leaf` if nothing in it changes, or writes what becomes of its items.
fn write_leaf(
    rebuild: &Rebuild,
    view: &View<'_>,
    plan: &Plan,
    leaf: &Leaf,
) -> Result<(), FsckError> {
    let items = leaf.items();
    let is_kept = view.edits.of(&leaf.keys).next().is_none()
        && !plan.rewrites.contains(&leaf.pointer.address)
        && items.first().is_some_and(|(key, _)| key.ino != 0);
    if !is_kept {
        return write_items(rebuild, view, &leaf.keys, &items);
    }
    Ok(rebuild.keep(leaf.pointer, &leaf.block)?)
}

/// Writes `items` with the edits of `keys`.
fn write_items(
    rebuild: &Rebuild,
    view: &View<'_>,
    keys: &Keys,
    items: &[(Key, &[u8])],
) -> Result<(), FsckError> {
    let mut outcome = Ok(());
    view.edits.merge(keys, items, |key, value| {
        let is_usage = key.ino == 0 && key.kind == ItemKind::Usage as u8;
        if outcome.is_ok() && !is_usage {
            outcome = rebuild.put(key, value);
        }
    });
    Ok(outcome?)
}

/// Makes checkpoint slot `slot` hold none, durably.
pub(crate) fn clear_slot(
    device: &dyn Device,
    superblock: &Superblock,
    slot: u8,
) -> Result<(), FsckError> {
    let at = superblock.layout.slots[usize::from(slot)];
    device.write(at, &[&[Block::ZERO]], Stream::default())?;
    Ok(device.flush()?)
}

/// Writes the superblock of `volume` to both its places, durably and in the format of this program.
pub(crate) fn write_superblocks(volume: &Volume<'_>) -> Result<(), FsckError> {
    match volume.superblock.version {
        FORMAT_VERSION => write_copies(volume, &volume.superblock),
        _ => change_superblock(volume, |_| ()),
    }
}

/// Makes `change` to the superblock of `volume`, durably in both its places.
pub(crate) fn change_superblock(
    volume: &Volume<'_>,
    change: impl FnOnce(&mut Superblock),
) -> Result<(), FsckError> {
    let unreadable =
        Corruption::in_block(Structure::Superblock, SUPERBLOCK_ADDRESS, CorruptionKind::Value);
    let next = volume.superblock.next_generation();
    let mut next = next.ok_or(FsckError::Write(unreadable.into()))?;
    change(&mut next);
    write_copies(volume, &next)
}

/// Writes both copies of the superblock, the worse one first: one is whole at every moment.
fn write_copies(volume: &Volume<'_>, superblock: &Superblock) -> Result<(), FsckError> {
    let block = [Block(superblock.encode())];
    let backup = superblock.layout.backup;
    let (first, second) = match volume.worse {
        Copy::First => (SUPERBLOCK_ADDRESS, backup),
        Copy::Backup => (backup, SUPERBLOCK_ADDRESS),
    };
    let locator = (!leads_to_backup(volume)?).then_some(LOCATOR_ADDRESS);
    for at in locator.into_iter().chain([first, second]) {
        volume.device.write(at, &[&block], Stream::default())?;
        volume.device.flush()?;
    }
    Ok(())
}

/// Whether the locator is of `volume`.
fn leads_to_backup(volume: &Volume<'_>) -> Result<bool, FsckError> {
    let mut block = Block::zeroed(1);
    volume.device.read(LOCATOR_ADDRESS, &mut block)?;
    let locator = Superblock::decode(&block[0].0, LOCATOR_ADDRESS);
    let superblock = &volume.superblock;
    let is_of_volume = |locator: Superblock| {
        locator.uuid == superblock.uuid && locator.layout.backup == superblock.layout.backup
    };
    Ok(locator.is_ok_and(is_of_volume))
}
