//! Staged blocks: data blocks that a commit is about to write, before and after they have an address.
//!
//! The planned blocks of files are staged, and the blocks that are moved, unless their content has changed since it was read.

use rustc_hash::FxHashSet;

use super::commit_request::{CommitRequest, MoveReason, MovedBlock};
use super::plan::{FilePlan, count_groups};
use crate::format::{Group, History, Mapping, SummaryEntry, run_key};
use crate::io::{Append, InPlaceBlock};
use crate::memory::BlockRef;
use crate::metadata::{Metadata, MetadataError, Owner};
use crate::mutant::{Mutant, mutated};
use crate::policy::{Candidate, GROUPS_MAX};
use crate::request::Remainder;

/// A data block that a commit writes.
pub(crate) struct StagedBlock {
    pub(crate) ino: u64,
    pub(crate) block: u32,
    pub(crate) memory: BlockRef,
    /// Mapping before this commit.
    pub(crate) old: Option<Mapping>,
    /// Mapping after this commit. The address is 0 until the block has one.
    pub(crate) mapping: Mapping,
    pub(crate) group: Group,
    /// Reason for which the block is moved; `None` if a user wrote it.
    pub(crate) moved: Option<MoveReason>,
}

impl StagedBlock {
    /// Returns the block for a write in place, at the address of its mapping.
    pub(crate) fn into_in_place(self) -> InPlaceBlock {
        (self.mapping.address, self.memory)
    }

    /// Returns the block for the log, with its summary entry.
    pub(crate) fn append(&self) -> Append {
        let Mapping { checksum, history, .. } = self.mapping;
        let checksum = checksum.expect("blocks in the log have checksums");
        Append {
            entry: SummaryEntry::Data { ino: self.ino, block: self.block, checksum, history },
            memory: self.memory.clone(),
        }
    }
}

/// Stages the planned blocks of `files`, and the live blocks that `request` moves, sorted by group and owner. Every
/// file is finished: its inode is as the tree will have it.
pub(super) fn stage(
    metadata: &Metadata,
    files: &mut [FilePlan<'_>],
    request: &CommitRequest<'_>,
    remainder: Remainder,
    segment_blocks: usize,
) -> std::result::Result<Vec<StagedBlock>, MetadataError> {
    let now = metadata.usage.clock.now();
    let mut staged = Vec::new();
    for file in files {
        file.finish(now);
        let mut dirty = file.data.dirty.iter();
        for planned in &file.blocks {
            let (_, dirty) =
                dirty.find(|(block, _)| *block == planned.block).expect("the file data is locked");
            let now = metadata.usage.clock.after(staged.len() as u64);
            let before = planned.old.map(|old| old.history);
            let history = metadata.grouping.history(before, now);
            staged.push(StagedBlock {
                ino: file.ino,
                block: planned.block,
                memory: dirty.memory.clone(),
                old: planned.old,
                mapping: Mapping { address: 0, checksum: Some(planned.checksum), history },
                group: planned.group,
                moved: None,
            });
        }
    }
    stage_moves(metadata, request, &mut staged)?;
    // Blocks that are put in order stay in their groups.
    if remainder == Remainder::Mixed && request.move_reason != MoveReason::Defragmentation {
        mix_remainders(&mut staged, segment_blocks);
    }
    sort(&mut staged);
    Ok(staged)
}

/// Stages the live blocks that `request` moves, except blocks that are overwritten by this commit.
fn stage_moves(
    metadata: &Metadata,
    request: &CommitRequest<'_>,
    staged: &mut Vec<StagedBlock>,
) -> std::result::Result<(), MetadataError> {
    let now = metadata.usage.clock.now();
    let CommitRequest { moves, move_reason, .. } = *request;
    let written: FxHashSet<(u64, u32)> = match moves {
        [] => FxHashSet::default(),
        _ => staged.iter().map(|b| (b.ino, b.block)).collect(),
    };
    for moved in moves {
        // Every error has to occur here: no step may fail once blocks have addresses.
        for owner in owners_of(metadata, moved, move_reason)? {
            // The address may have new content since the block was read.
            let is_live = owner.mapping.checksum == Some(moved.checksum);
            if is_live && !written.contains(&(owner.ino, owner.block)) {
                staged.push(stage_moved(metadata, &owner, (&moved.memory, move_reason), now));
            }
        }
    }
    Ok(())
}

/// Returns the owners of a block that is moved.
fn owners_of(
    metadata: &Metadata,
    moved: &MovedBlock,
    reason: MoveReason,
) -> std::result::Result<Vec<Owner>, MetadataError> {
    let mut owners = metadata.owners(moved.address, moved.named)?;
    let takes_stale = mutated(Mutant::StaleMove)
        || reason == MoveReason::Defragmentation && mutated(Mutant::StaleDefragmentation);
    if takes_stale && owners.is_empty() {
        let (ino, block) = moved.named;
        let (address, checksum) = (moved.address, Some(moved.checksum));
        let now = metadata.run(&run_key(ino, block))?.get(block);
        let stale = now.map(|now| Mapping { address, checksum, ..now });
        owners.extend(stale.map(|mapping| Owner { ino, block, mapping }));
    }
    Ok(owners)
}

/// Stages a block that is moved, for one of its owners. The history stays; a block that is put in order also stays in its
/// group, while the groups are in use. Each owner gets a copy of its own: no change in a delta can express a shared block.
fn stage_moved(
    metadata: &Metadata,
    owner: &Owner,
    (memory, reason): (&BlockRef, MoveReason),
    now: u32,
) -> StagedBlock {
    let Owner { ino, block, mut mapping } = *owner;
    let present = metadata.group_of(&mapping);
    let candidate = Candidate {
        ino,
        block,
        history: Some(mapping.history),
        group: present,
        cleaning: true,
        file_write_count: 0,
        file_modified: 0,
    };
    let is_ordered = reason == MoveReason::Defragmentation;
    let kept = present.filter(|group| is_ordered && metadata.grouping.is_in_use(*group));
    let old = Some(mapping);
    if is_ordered && mutated(Mutant::DefragmentedAsNew) {
        mapping.history = History::plain(1, now);
    }
    StagedBlock {
        ino,
        block,
        memory: memory.clone(),
        old,
        mapping,
        group: kept.unwrap_or_else(|| metadata.grouping.group(&candidate, now)),
        moved: Some(reason),
    }
}

/// Moves the blocks of every group that does not fill a segment to one group, the largest of these groups (SFS, section
/// 3.3).
fn mix_remainders(staged: &mut [StagedBlock], segment_blocks: usize) {
    let counts = count_groups(staged.iter().map(|b| b.group));
    let remainders =
        Group::first(GROUPS_MAX).filter(|group| counts[group.index()] < segment_blocks);
    let Some(largest) = remainders.max_by_key(|group| counts[group.index()]) else { return };
    for block in staged {
        if counts[block.group.index()] < segment_blocks {
            block.group = largest;
        }
    }
}

/// Sorts blocks by group and owner, which is the order in which they are written.
pub(crate) fn sort(blocks: &mut [StagedBlock]) {
    blocks.sort_by_key(|b| (b.group, b.ino, b.block));
}
