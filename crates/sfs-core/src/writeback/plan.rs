//! Plans: the blocks of each file that a commit takes, their groups, and the inode afterwards.
//!
//! A file is planned with its data locked. The inode of a plan is correct once exactly the planned blocks are
//! written. A plan changes nothing, and gives no block an address.

use std::sync::Arc;

use sfs_device::BLOCK_SIZE;

use super::commit_request::Progress;
use super::step_error::BuildError;
use crate::files::{DataGuard, DirtyBlocks, InodeState, Pending};
use crate::format::{
    Group, History, INLINE_LEN_MAX, Inode, InodeFlags, ItemKind, Key, Mapping, MappingRun,
    Reservation, run_key,
};
use crate::metadata::{Metadata, MetadataError, reservation_of, without};
use crate::mutant::{Mutant, mutated};
use crate::policy::{Candidate, GROUPS_MAX};

/// Number of reservations that half a leaf certainly holds.
const RESERVATIONS_PER_LEAF: usize = 64;

/// A dirty block of a plan.
pub(super) struct PlannedBlock {
    pub(super) block: u32,
    pub(super) checksum: u32,
    /// Mapping before this commit.
    pub(super) old: Option<Mapping>,
    /// `true` if the block is reserved before this commit.
    is_covered: bool,
    pub(super) group: Group,
}

/// Changes of a commit to one file.
///
/// The data of the file stays locked from planning until the plan takes effect. A write in between would be lost: its
/// blocks would count as clean.
pub(super) struct FilePlan<'a> {
    pub(super) ino: u64,
    pub(super) data: DataGuard<'a>,
    /// Inode in the tree; after [`FilePlan::finish`] the inode that replaces it.
    pub(super) inode: Inode,
    /// Bytes that a newer program has appended to the inode.
    pub(super) rest_len: usize,
    /// Inode as users see it.
    shown: Inode,
    /// Blocks that this commit writes, ascending.
    pub(super) blocks: Vec<PlannedBlock>,
    /// Reserved ranges that contain planned blocks, ascending. Their items are prepared, and so is each item that may
    /// begin behind a planned block.
    reserved: Vec<Reservation>,
    /// Content, if it is stored in the tree from now on.
    pub(super) inline: Option<Vec<u8>>,
    /// `true` if the content outgrows its inline item, which is removed.
    pub(super) outgrown: bool,
    /// `true` if the file grows over its size in the tree.
    pub(super) lengthens: bool,
    /// `true` if the data has to go with the next delta.
    pub(super) is_ordered: bool,
}

impl FilePlan<'_> {
    /// Returns whether the plan takes nothing of the file, although the file has dirty blocks.
    fn is_empty(&self) -> bool {
        self.inline.is_none() && self.blocks.is_empty() && !self.data.dirty.is_empty()
    }

    /// Sets the inode to its state once the planned blocks are written, at time `now`.
    pub(super) fn finish(&mut self, now: u32) {
        let mut inode = self.shown;
        if self.inline.is_some() {
            inode.flags.set(InodeFlags::INLINE, true);
            count_write(&mut inode, 1, now);
            self.inode = inode;
            return;
        }
        // The size in the tree may cover only blocks that are written, and ends before the first dirty block left.
        if let Some(left) = self.first_unplanned() {
            self.blocks.retain(|planned| planned.block < left);
            let end = u64::from(left) * BLOCK_SIZE as u64;
            let end = if mutated(Mutant::LengthAhead) { u64::MAX } else { end };
            inode.size = self.inode.size.max(self.shown.size.min(end));
        }
        self.lengthens = inode.size > self.inode.size;
        // A reserved block is one of the file's blocks already.
        let is_new = |planned: &&PlannedBlock| planned.old.is_none() && !planned.is_covered;
        let new_blocks = self.blocks.iter().filter(is_new).count() as u64;
        inode.blocks = self.inode.blocks.saturating_add(new_blocks);
        if self.inode.flags.contains(InodeFlags::INLINE) && self.data.dirty.contains(0) {
            self.outgrown = self.blocks.first().is_some_and(|planned| planned.block == 0);
            inode.flags.set(InodeFlags::INLINE, !self.outgrown);
        }
        count_write(&mut inode, self.blocks.len() as u64, now);
        self.inode = inode;
    }

    /// Returns the reserved ranges that the commit changes, each with the ranges that are left of it.
    pub(super) fn changed_ranges(&self) -> Vec<(Reservation, Vec<Reservation>)> {
        let covered = || self.blocks.iter().filter(|planned| planned.is_covered);
        let taken = |range: Reservation| {
            let from = covered().map(|planned| planned.block);
            from.skip_while(move |block| *block < range.first)
                .take_while(move |block| *block <= range.last)
        };
        let changed = self.reserved.iter().filter(|range| taken(**range).next().is_some());
        changed.map(|range| (*range, without(*range, taken(*range)))).collect()
    }

    /// Returns the maximum number of leaves in which reservations change.
    pub(super) fn reservation_leaves(&self) -> usize {
        self.reserved.len() + self.covered_count() / RESERVATIONS_PER_LEAF
    }

    /// Returns the number of planned blocks that are reserved.
    pub(super) fn covered_count(&self) -> usize {
        self.blocks.iter().filter(|planned| planned.is_covered).count()
    }

    /// Returns the first dirty block, at or beyond the end in the tree, that is not planned.
    fn first_unplanned(&self) -> Option<u32> {
        let end = u32::try_from(self.inode.size / BLOCK_SIZE as u64).unwrap_or(u32::MAX);
        let planned = |block: u32| self.blocks.binary_search_by_key(&block, |p| p.block).is_ok();
        self.data.dirty.range_from(end).map(|(block, _)| block).find(|block| !planned(*block))
    }
}

/// Returns the number of blocks in each group.
pub(super) fn count_groups(groups: impl Iterator<Item = Group>) -> [usize; GROUPS_MAX as usize] {
    let mut counts = [0; GROUPS_MAX as usize];
    groups.for_each(|group| counts[group.index()] += 1);
    counts
}

/// Keeps `count` blocks of the largest groups in the plan. Blocks of small groups stay dirty so
/// that their groups can grow (SFS, section 3.3). Blocks ordered with this delta are kept in any
/// case.
pub(super) fn keep_largest(files: &mut Vec<FilePlan<'_>>, mut count: usize) {
    let blocks = files.iter().filter(|file| !file.is_ordered).flat_map(|file| &file.blocks);
    let counts = count_groups(blocks.map(|planned| planned.group));
    let mut order: Vec<Group> = Group::first(GROUPS_MAX).collect();
    order.sort_by_key(|group| std::cmp::Reverse(counts[group.index()]));
    let mut quota = [0; GROUPS_MAX as usize];
    for group in order {
        let group = group.index();
        quota[group] = counts[group].min(count);
        count -= quota[group];
    }
    for file in files.iter_mut().filter(|file| !file.is_ordered) {
        file.blocks.retain(|planned| {
            let left = &mut quota[planned.group.index()];
            let keeps = *left > 0;
            *left -= usize::from(keeps);
            keeps
        });
    }
    files.retain(|file| !file.is_empty());
}

/// Plans up to a number of blocks of the files in `ordered`, and up to another number of blocks in
/// total of `ordered` and `others`.
pub(super) fn plan_files<'a>(
    metadata: &Metadata,
    ordered: (&'a [Arc<InodeState>], usize),
    others: (&'a [Arc<InodeState>], usize),
) -> std::result::Result<(Vec<FilePlan<'a>>, Progress), BuildError> {
    let mut progress = Progress::Done;
    let mut plans = Vec::with_capacity(ordered.0.len() + others.0.len());
    let mut planned = 0;
    let limited = |(files, limit): (&'a [Arc<InodeState>], usize), is_ordered: bool| {
        files.iter().map(move |file| (file, limit, is_ordered))
    };
    for (file, limit, is_ordered) in limited(ordered, true).chain(limited(others, false)) {
        let left = limit.saturating_sub(planned);
        if left == 0 {
            progress = Progress::More;
            break;
        }
        let data = file.data();
        // The inode may be in a leaf of its own.
        let left = left - 1;
        let fits = data.dirty.len() <= left;
        if !fits {
            progress = Progress::More;
        }
        let of_file =
            |error: MetadataError| BuildError { reason: error.into(), ino: Some(file.ino) };
        if (fits || left > 0)
            && let Some(plan) = plan_file(metadata, file.ino, data, left).map_err(of_file)?
        {
            planned += plan.blocks.len() + 1;
            plans.push(FilePlan { is_ordered, ..plan });
        }
    }
    Ok((plans, progress))
}

/// Plans up to `limit` blocks of a file; returns `None` if the file is deleted.
fn plan_file<'a>(
    metadata: &Metadata,
    ino: u64,
    data: DataGuard<'a>,
    limit: usize,
) -> std::result::Result<Option<FilePlan<'a>>, MetadataError> {
    metadata.tree.prepare(&Key::inode(ino))?;
    let Some(value) = metadata.tree.get(&Key::inode(ino))? else { return Ok(None) };
    let mut inode = Inode::decode(value, ino, metadata.tolerance)?;
    inode.atime = metadata.access_times.get(ino).unwrap_or(inode.atime);
    let rest_len = value.len() - Inode::LEN;
    metadata.tree.prepare(&Key::new(ino, ItemKind::Inline, 0))?;
    let mut shown = inode;
    data.pending.unwrap_or(Pending { size: inode.size, times: None }).overlay(&mut shown);

    let fits = shown.size <= INLINE_LEN_MAX as u64 && shown.size > 0 && inode.blocks == 0;
    let only = data.dirty.get(0).filter(|_| fits && data.dirty.len() == 1);
    let inline = only.map(|first| first.memory.block().0[..shown.size as usize].to_vec());
    let mut blocks = match inline {
        Some(_) => Vec::new(),
        None => plan_blocks(metadata, ino, &inode, &data.dirty, limit)?,
    };
    let reserved = find_covered(metadata, ino, &inode, &mut blocks)?;
    Ok(Some(FilePlan {
        ino,
        data,
        inode,
        rest_len,
        shown,
        blocks,
        reserved,
        inline,
        outgrown: false,
        lengthens: false,
        is_ordered: false,
    }))
}

/// Plans the first `limit` blocks of `dirty` of file `ino`, with the present mapping and the group of each. The
/// mapping runs are cached afterwards.
fn plan_blocks(
    metadata: &Metadata,
    ino: u64,
    inode: &Inode,
    dirty: &DirtyBlocks,
    limit: usize,
) -> std::result::Result<Vec<PlannedBlock>, MetadataError> {
    let now = metadata.usage.clock.now();
    let mut run: Option<(Key, MappingRun)> = None;
    let mut planned = Vec::with_capacity(dirty.len().min(limit));
    // Appended blocks have to be written in order: see `finish`. All of them go to the group of the
    // last block.
    let end = inode.size / BLOCK_SIZE as u64;
    let (mut appended, mut last) = (0, None);
    for (block, dirty) in dirty.iter().take(limit) {
        let key = run_key(ino, block);
        if run.as_ref().is_none_or(|(at, _)| *at != key) {
            run = Some((key, metadata.run(&key)?));
        }
        let old = run.as_ref().and_then(|(_, run)| run.get(block));
        let candidate = Candidate {
            ino,
            block,
            history: old.map(|old| old.history),
            group: old.and_then(|old| metadata.group_of(&old)),
            cleaning: false,
            file_write_count: inode.write_count,
            file_modified: inode.modified,
        };
        let group = if u64::from(block) < end {
            metadata.grouping.group(&candidate, now)
        } else {
            (appended, last) = (appended + 1, Some(candidate));
            Group(0)
        };
        let checksum = dirty.checksum;
        planned.push(PlannedBlock { block, checksum, old, is_covered: false, group });
    }
    let overwritten = planned.len() - appended;
    if let Some(candidate) = last {
        let group = metadata.grouping.group(&candidate, now);
        planned[overwritten..].iter_mut().for_each(|planned| planned.group = group);
    }
    group_neighbours(metadata, &mut planned[..overwritten]);
    Ok(planned)
}

/// Returns whether `b` follows `a` in the file, and both have content that is overwritten.
fn are_neighbours(a: &PlannedBlock, b: &PlannedBlock) -> bool {
    a.block + 1 == b.block && a.old.is_some() && b.old.is_some()
}

fn histories(neighbours: &[PlannedBlock]) -> impl Iterator<Item = Option<History>> {
    neighbours.iter().map(|planned| planned.old.map(|old| old.history))
}

/// Puts neighbours into the group that the policy has for them.
fn group_neighbours(metadata: &Metadata, planned: &mut [PlannedBlock]) {
    let now = metadata.usage.clock.now();
    for neighbours in planned.chunk_by_mut(are_neighbours) {
        let (count, mut histories) = (neighbours.len(), histories(neighbours));
        if let Some(group) = metadata.grouping.group_of_neighbours(count, &mut histories, now) {
            drop(histories);
            neighbours.iter_mut().for_each(|planned| planned.group = group);
        }
    }
}

/// Tells the policy of the neighbours of a plan that takes effect.
pub(super) fn note_neighbours(metadata: &mut Metadata, planned: &[PlannedBlock]) {
    let now = metadata.usage.clock.now();
    for neighbours in planned.chunk_by(are_neighbours) {
        metadata.grouping.note_neighbours(neighbours.len(), &mut histories(neighbours), now);
    }
}

/// Marks the planned blocks that are reserved, and returns their ranges; see [`FilePlan`].
fn find_covered(
    metadata: &Metadata,
    ino: u64,
    inode: &Inode,
    planned: &mut [PlannedBlock],
) -> std::result::Result<Vec<Reservation>, MetadataError> {
    let mut ranges: Vec<Reservation> = Vec::new();
    if !inode.flags.contains(InodeFlags::RESERVED) {
        return Ok(ranges);
    }
    for planned in planned.iter_mut().filter(|planned| planned.old.is_none()) {
        let block = planned.block;
        if !ranges.last().is_some_and(|range| range.contains(block)) {
            let Some(range) = reservation_of(&metadata.tree, ino, block)? else { continue };
            metadata.tree.prepare(&range.key(ino))?;
            ranges.push(range);
        }
        planned.is_covered = true;
        if let Some(after) = block.checked_add(1) {
            metadata.tree.prepare(&Reservation::key_of(ino, after))?;
        }
    }
    Ok(ranges)
}

/// Counts `count` block writes to the file at time `now` (SFS, section 3.2: W_f and T_f^m).
fn count_write(inode: &mut Inode, count: u64, now: u32) {
    if count > 0 {
        inode.write_count = inode.write_count.saturating_add(count);
        inode.modified = now;
    }
}
