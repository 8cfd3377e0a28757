//! Plans: which blocks of which files a commit takes, the group of each, and what the files say
//! of themselves afterwards.
//!
//! Owns: the choice, while it can still be given up.
//! Promises: a file is planned with its data locked, and what the plan says of it is true when
//! exactly the planned blocks are written; nothing has changed yet.
//! Never: gives a block its place.

use std::sync::Arc;

use parking_lot::MutexGuard;
use rustc_hash::FxHashSet;
use sfs_device::BLOCK_SIZE;

use super::{Move, Progress, Request};
use crate::format::{
    INLINE_LEN_MAX, Inode, InodeFlags, ItemKind, Key, Mapping, MappingRun, SummaryEntry, run_key,
};
use crate::log::{Append, Batch};
use crate::memory::BlockRef;
use crate::meta::{Meta, MetadataError};
use crate::mutant::{Mutant, mutated};
use crate::owners::Owner;
use crate::policy::{Candidate, GROUPS_MAX};
use crate::request::Remainder;
use crate::volume::Volume;
use crate::volume::dirty::DirtyBlocks;
use crate::volume::handles::{FileData, Handle, Pending};

/// A dirty block that was chosen.
pub(in crate::volume) struct Chosen {
    pub(in crate::volume) ino: u64,
    pub(in crate::volume) block: u32,
    memory: BlockRef,
    /// What it is mapped to so far.
    pub(in crate::volume) old: Option<Mapping>,
    /// What the mapping will say; the address follows.
    pub(in crate::volume) mapping: Mapping,
    pub(in crate::volume) group: u8,
    /// The cleaner moves it.
    pub(in crate::volume) cleaning: bool,
}

impl Chosen {
    pub(super) fn into_memory(self) -> BlockRef {
        self.memory
    }

    pub(super) fn append(&self) -> Append {
        let Mapping { checksum, history, .. } = self.mapping;
        let checksum = checksum.expect("the log has checksums");
        Append {
            entry: SummaryEntry::Data { ino: self.ino, block: self.block, checksum, history },
            memory: self.memory.clone(),
        }
    }
}

/// A dirty block of a plan.
pub(super) struct PlannedBlock {
    pub(super) block: u32,
    checksum: u32,
    /// What it was mapped to.
    old: Option<Mapping>,
    group: u8,
}

/// What a commit does to one file.
///
/// Its data stays locked from the planning until the plan has taken effect: what is written
/// meanwhile would be taken for written out.
pub(super) struct FilePlan<'a> {
    pub(super) ino: u64,
    pub(super) data: MutexGuard<'a, FileData>,
    /// As the tree has it; after [`FilePlan::finish`] as it will be.
    pub(super) inode: Inode,
    /// Bytes that a later program has appended to its attributes.
    pub(super) rest_len: usize,
    /// As users see it.
    shown: Inode,
    /// Blocks that are written now, ascending.
    pub(super) blocks: Vec<PlannedBlock>,
    /// The file lives in its tree item from now on.
    pub(super) inline: Option<Vec<u8>>,
    /// The inline item goes.
    pub(super) outgrown: bool,
    /// It is longer than the tree has it.
    pub(super) lengthens: bool,
    /// Its data has to go with the next delta.
    pub(super) has_to_go: bool,
}

impl FilePlan<'_> {
    /// Nothing of the file has been chosen, though something waits.
    fn is_empty(&self) -> bool {
        self.inline.is_none() && self.blocks.is_empty() && !self.data.dirty.is_empty()
    }

    /// Makes the attributes say what is true when the planned blocks are written, at time `now`.
    fn finish(&mut self, now: u32) {
        let mut inode = self.shown;
        if self.inline.is_some() {
            inode.flags.set(InodeFlags::INLINE, true);
            count_write(&mut inode, 1, now);
            self.inode = inode;
            return;
        }
        // The length grows over what has been written, as far as nothing before it still is to be.
        if let Some(left) = self.first_left() {
            self.blocks.retain(|planned| planned.block < left);
            let end = u64::from(left) * BLOCK_SIZE as u64;
            let end = if mutated(Mutant::LengthAhead) { u64::MAX } else { end };
            inode.size = self.inode.size.max(self.shown.size.min(end));
        }
        self.lengthens = inode.size > self.inode.size;
        let new_blocks = self.blocks.iter().filter(|planned| planned.old.is_none()).count() as u64;
        inode.blocks = self.inode.blocks.saturating_add(new_blocks);
        if self.inode.flags.contains(InodeFlags::INLINE) && self.data.dirty.contains(0) {
            self.outgrown = self.blocks.first().is_some_and(|planned| planned.block == 0);
            inode.flags.set(InodeFlags::INLINE, !self.outgrown);
        }
        count_write(&mut inode, self.blocks.len() as u64, now);
        self.inode = inode;
    }

    /// The first dirty block at or beyond the end that the tree knows which is not planned.
    fn first_left(&self) -> Option<u32> {
        let end = u32::try_from(self.inode.size / BLOCK_SIZE as u64).unwrap_or(u32::MAX);
        let planned = |block: u32| self.blocks.binary_search_by_key(&block, |p| p.block).is_ok();
        self.data.dirty.range_from(end).map(|(block, _)| block).find(|block| !planned(*block))
    }
}

impl Volume {
    /// The blocks that go, with what their mappings will say and the group of each, sorted by group
    /// and owner.
    pub(super) fn choose(
        &self,
        meta: &Meta,
        files: &mut [FilePlan<'_>],
        request: &Request<'_>,
    ) -> std::result::Result<Vec<Chosen>, MetadataError> {
        let now = meta.usage.clock.now();
        let mut chosen = Vec::new();
        for file in files {
            file.finish(now);
            let mut dirty = file.data.dirty.iter();
            for planned in &file.blocks {
                let (_, dirty) =
                    dirty.find(|(block, _)| *block == planned.block).expect("its data is locked");
                let now = meta.usage.clock.after(chosen.len() as u64);
                let before = planned.old.map(|old| old.history);
                let history = meta.grouping.history(before, now);
                chosen.push(Chosen {
                    ino: file.ino,
                    block: planned.block,
                    memory: dirty.memory.clone(),
                    old: planned.old,
                    mapping: Mapping { address: 0, checksum: Some(planned.checksum), history },
                    group: planned.group,
                    cleaning: false,
                });
            }
        }
        let written: FxHashSet<(u64, u32)> = match request.moves {
            [] => FxHashSet::default(),
            _ => chosen.iter().map(|c| (c.ino, c.block)).collect(),
        };
        for moved in request.moves {
            // Once blocks have their places, nothing may fail.
            for owner in owners_of(meta, moved)? {
                // The address may have another content since the block was read.
                let lives = owner.mapping.checksum == Some(moved.checksum);
                if lives && !written.contains(&(owner.ino, owner.block)) {
                    chosen.push(choose_moved(meta, &owner, &moved.memory, now));
                }
            }
        }
        let room = Batch::segment_room(&self.superblock.layout);
        if self.options.remainder == Remainder::Mixed {
            mix_remainders(&mut chosen, room);
        }
        sort(&mut chosen);
        Ok(chosen)
    }
}

/// By group and owner, as they will be written.
pub(in crate::volume) fn sort(chosen: &mut [Chosen]) {
    chosen.sort_by_key(|c| (c.group, c.ino, c.block));
}

/// The owners of a block that the cleaner moves.
fn owners_of(meta: &Meta, moved: &Move) -> std::result::Result<Vec<Owner>, MetadataError> {
    let mut owners = meta.owners(moved.address, moved.named)?;
    if mutated(Mutant::StaleMove) && owners.is_empty() {
        let (ino, block) = moved.named;
        let (address, checksum) = (moved.address, Some(moved.checksum));
        let now = meta.run(&run_key(ino, block))?.get(block);
        let stale = now.map(|now| Mapping { address, checksum, ..now });
        owners.extend(stale.map(|mapping| Owner { ino, block, mapping }));
    }
    Ok(owners)
}

/// A block that the cleaner moves, for one of its owners, whose history stays. Each owner gets a copy of
/// its own: no change says that a block is shared.
fn choose_moved(meta: &Meta, owner: &Owner, memory: &BlockRef, now: u32) -> Chosen {
    let Owner { ino, block, mapping } = *owner;
    let candidate = Candidate {
        ino,
        block,
        history: Some(mapping.history),
        group: meta.group_of(&mapping),
        cleaning: true,
        file_write_count: 0,
        file_modified: 0,
    };
    Chosen {
        ino,
        block,
        memory: memory.clone(),
        old: Some(mapping),
        mapping,
        group: meta.grouping.group(&candidate, now),
        cleaning: true,
    }
}

/// What does not fill a segment of its group goes to one group, the largest of these (SFS, section
/// 3.3).
fn mix_remainders(chosen: &mut [Chosen], segment_room: usize) {
    let counts = count_groups(chosen.iter().map(|c| c.group));
    let remainders = (0..GROUPS_MAX).filter(|group| counts[usize::from(*group)] < segment_room);
    let Some(largest) = remainders.max_by_key(|group| counts[usize::from(*group)]) else { return };
    for block in chosen {
        if counts[usize::from(block.group)] < segment_room {
            block.group = largest;
        }
    }
}

/// How many blocks are in each group.
fn count_groups(groups: impl Iterator<Item = u8>) -> [usize; GROUPS_MAX as usize] {
    let mut counts = [0; GROUPS_MAX as usize];
    groups.for_each(|group| counts[usize::from(group)] += 1);
    counts
}

/// Leaves `count` blocks, those of the largest groups; the small ones go on waiting, so that they
/// can grow (SFS, section 3.3). What has to go with this delta goes in any case.
pub(super) fn keep_largest(files: &mut Vec<FilePlan<'_>>, mut count: usize) {
    let blocks = files.iter().filter(|file| !file.has_to_go).flat_map(|file| &file.blocks);
    let counts = count_groups(blocks.map(|planned| planned.group));
    let mut order: Vec<u8> = (0..GROUPS_MAX).collect();
    order.sort_by_key(|group| std::cmp::Reverse(counts[usize::from(*group)]));
    let mut quota = [0; GROUPS_MAX as usize];
    for group in order {
        let group = usize::from(group);
        quota[group] = counts[group].min(count);
        count -= quota[group];
    }
    for file in files.iter_mut().filter(|file| !file.has_to_go) {
        file.blocks.retain(|planned| {
            let left = &mut quota[usize::from(planned.group)];
            let keeps = *left > 0;
            *left -= usize::from(keeps);
            keeps
        });
    }
    files.retain(|file| !file.is_empty());
}

/// Why there is no batch, and which file is to blame, if one is.
#[derive(Debug)]
pub(in crate::volume) struct Obstacle {
    pub(in crate::volume) fault: MetadataError,
    pub(in crate::volume) ino: Option<u64>,
}

impl<T: Into<MetadataError>> From<T> for Obstacle {
    fn from(fault: T) -> Self {
        Self { fault: fault.into(), ino: None }
    }
}

/// What a batch does to the `ordered` files and to the `others`: up to so many blocks of the former,
/// and up to so many of both.
pub(super) fn plan_files<'a>(
    meta: &Meta,
    ordered: (&'a [Arc<Handle>], usize),
    others: (&'a [Arc<Handle>], usize),
) -> std::result::Result<(Vec<FilePlan<'a>>, Progress), Obstacle> {
    let mut progress = Progress::Done;
    let mut plans = Vec::with_capacity(ordered.0.len() + others.0.len());
    let mut planned = 0;
    let limited = |(handles, limit): (&'a [Arc<Handle>], usize), has_to_go: bool| {
        handles.iter().map(move |handle| (handle, limit, has_to_go))
    };
    for (handle, limit, has_to_go) in limited(ordered, true).chain(limited(others, false)) {
        let left = limit.saturating_sub(planned);
        if left == 0 {
            progress = Progress::More;
            break;
        }
        let data = handle.data();
        // The file's own item may be in a leaf of its own.
        let left = left - 1;
        let fits = data.dirty.len() <= left;
        if !fits {
            progress = Progress::More;
        }
        let blame = |fault| Obstacle { fault, ino: Some(handle.ino) };
        if (fits || left > 0)
            && let Some(plan) = plan_file(meta, handle.ino, data, left).map_err(blame)?
        {
            planned += plan.blocks.len() + 1;
            plans.push(FilePlan { has_to_go, ..plan });
        }
    }
    Ok((plans, progress))
}

/// What a commit of up to `limit` blocks does to a file; nothing if the file is gone.
fn plan_file<'a>(
    meta: &Meta,
    ino: u64,
    data: MutexGuard<'a, FileData>,
    limit: usize,
) -> std::result::Result<Option<FilePlan<'a>>, MetadataError> {
    meta.tree.prepare(&Key::inode(ino))?;
    let Some(value) = meta.tree.get(&Key::inode(ino))? else { return Ok(None) };
    let inode = Inode::decode(value, ino, meta.tolerance)?;
    let rest_len = value.len() - Inode::LEN;
    meta.tree.prepare(&Key::new(ino, ItemKind::Inline, 0))?;
    let mut shown = inode;
    data.pending.unwrap_or(Pending { size: inode.size, times: None }).overlay(&mut shown);

    let fits = shown.size <= INLINE_LEN_MAX as u64 && shown.size > 0 && inode.blocks == 0;
    let only = data.dirty.get(0).filter(|_| fits && data.dirty.len() == 1);
    let inline = only.map(|first| first.memory.block().0[..shown.size as usize].to_vec());
    let blocks = match inline {
        Some(_) => Vec::new(),
        None => plan_blocks(meta, ino, &inode, &data.dirty, limit)?,
    };
    Ok(Some(FilePlan {
        ino,
        data,
        inode,
        rest_len,
        shown,
        blocks,
        inline,
        outgrown: false,
        lengthens: false,
        has_to_go: false,
    }))
}

/// The first `limit` blocks of `dirty`, of file `ino`, with what each is mapped to and the group it belongs
/// to. The runs are in memory afterwards.
fn plan_blocks(
    meta: &Meta,
    ino: u64,
    inode: &Inode,
    dirty: &DirtyBlocks,
    limit: usize,
) -> std::result::Result<Vec<PlannedBlock>, MetadataError> {
    let now = meta.usage.clock.now();
    let mut run: Option<(Key, MappingRun)> = None;
    let mut planned = Vec::with_capacity(dirty.len().min(limit));
    // What is appended cannot be written before the last block that was there: see `finish`. All of it
    // goes where its last block belongs.
    let end = inode.size / BLOCK_SIZE as u64;
    let (mut appended, mut last) = (0, None);
    for (block, dirty) in dirty.iter().take(limit) {
        let key = run_key(ino, block);
        if run.as_ref().is_none_or(|(at, _)| *at != key) {
            run = Some((key, meta.run(&key)?));
        }
        let old = run.as_ref().and_then(|(_, run)| run.get(block));
        let candidate = Candidate {
            ino,
            block,
            history: old.map(|old| old.history),
            group: old.and_then(|old| meta.group_of(&old)),
            cleaning: false,
            file_write_count: inode.write_count,
            file_modified: inode.modified,
        };
        let group = if u64::from(block) < end {
            meta.grouping.group(&candidate, now)
        } else {
            (appended, last) = (appended + 1, Some(candidate));
            0
        };
        planned.push(PlannedBlock { block, checksum: dirty.checksum, old, group });
    }
    if let Some(candidate) = last {
        let group = meta.grouping.group(&candidate, now);
        let first = planned.len() - appended;
        planned[first..].iter_mut().for_each(|planned| planned.group = group);
    }
    Ok(planned)
}

/// `count` blocks of the file are written (SFS, section 3.2: W_f and T_f^m).
fn count_write(inode: &mut Inode, count: u64, now: u32) {
    if count > 0 {
        inode.write_count = inode.write_count.saturating_add(count);
        inode.modified = now;
    }
}
