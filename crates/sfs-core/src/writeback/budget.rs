//! Budget of a batch: the amount of dirty data that fits, and its share of the Clean segments.
//!
//! A batch that fits can be written whole, and leaves its reserve Clean (see [`crate::reserves`]). The budget
//! reclaims no segments.

use sfs_device::BLOCK_SIZE;

use super::commit_request::{CommitRequest, Releases, Reserve};
use super::data_layout::{LayoutBehaviour, SpaceView};
use super::plan::FilePlan;
use super::staged::StagedBlock;
use crate::format::{
    Change, Inode, ItemKind, Key, Layout, MappingRun, Reservation, VALUE_LEN_MAX, run_key,
};
use crate::metadata::Metadata;
use crate::reserves::{ChangesAhead, DELTA_SEGMENTS, checkpoint_segments, cleaning_segments};
use crate::segments::SegmentBudget;
use crate::tree::{PlannedChange, PlannedValue};

/// Maximum number of segments that one delta releases, so that the delta stays small.
pub(super) const RELEASES_MAX: usize = 128;

/// Maximum length in bytes of one change in a delta: a key, the longest value, and their frames.
const CHANGE_LEN_MAX: usize = VALUE_LEN_MAX + 64;

/// Bytes of one released segment in a delta.
const RELEASE_LEN: usize = Change::HEADER_LEN + 12;

/// Maximum number of bytes that one file adds to a delta, besides inline content and bytes appended
/// by a newer program: the inode, and the frames of both items.
const FILE_CHANGES_LEN_MAX: usize = 256;

/// Maximum number of bytes that one reserved block, which divides its range, adds to a delta: a removed key, and two
/// items.
const COVERED_CHANGES_LEN_MAX: usize =
    3 * (Change::HEADER_LEN + Key::LEN) + 2 * (size_of::<u64>() + Reservation::LEN);

/// Returns the number of segments that a batch with `reserve` has to leave Clean when it makes the changes `ahead`.
fn reserved_segments(
    layout: &Layout,
    metadata: &Metadata,
    reserve: Reserve,
    ahead: ChangesAhead,
) -> usize {
    match reserve {
        Reserve::Cleaning | Reserve::CleaningOnceReleased => {
            cleaning_segments(layout, metadata, ahead)
        }
        Reserve::Checkpoint => checkpoint_segments(layout, metadata, ahead),
    }
}

/// Returns the number of data blocks that a batch may plan now.
pub(super) fn plannable_blocks(
    behaviour: &dyn LayoutBehaviour,
    view: SpaceView<'_>,
    reserve: Reserve,
) -> usize {
    let kept = reserved_segments(&view.layout, view.metadata, reserve, ChangesAhead::NONE)
        + DELTA_SEGMENTS;
    let spare = view.metadata.usage.clean_count().saturating_sub(kept);
    behaviour.plannable_blocks(view, spare)
}

/// Returns the number of blocks that a user's commit certainly has room for before it makes any node dirty.
pub(crate) fn spare_blocks(
    behaviour: &dyn LayoutBehaviour,
    layout: &Layout,
    metadata: &Metadata,
) -> usize {
    let kept = cleaning_segments(layout, metadata, ChangesAhead::NONE);
    behaviour.certain_blocks(layout, metadata, metadata.usage.clean_count().saturating_sub(kept))
}

/// Returns whether `dirty_blocks` blocks of data in total certainly fit into one batch. Half of the
/// room is left for metadata that becomes dirty until then.
pub(super) fn fits_one_batch(
    behaviour: &dyn LayoutBehaviour,
    layout: &Layout,
    metadata: &Metadata,
    dirty_blocks: usize,
) -> bool {
    let kept = cleaning_segments(layout, metadata, ChangesAhead::NONE) + DELTA_SEGMENTS;
    let spare = metadata.usage.clean_count().saturating_sub(kept);
    dirty_blocks <= behaviour.certain_blocks(layout, metadata, spare) / 2
}

/// Returns whether a batch has left what its `reserve` promises, now that it has taken effect.
pub(super) fn is_reserve_left(
    layout: &Layout,
    metadata: &Metadata,
    request: &CommitRequest<'_>,
) -> bool {
    let (usage, reserve) = (&metadata.usage, request.reserve);
    let later = match reserve {
        Reserve::Checkpoint if request.releases == Releases::Dedicated => usage.releasable_count(),
        Reserve::CleaningOnceReleased => usage.releasable_count(),
        Reserve::Cleaning | Reserve::Checkpoint => 0,
    };
    reserved_segments(layout, metadata, reserve, ChangesAhead::NONE) <= usage.clean_count() + later
}

/// Returns the number of segments that moving `staged` empties, and that a delta can release afterwards.
fn emptied_segments(metadata: &Metadata, staged: &[StagedBlock]) -> usize {
    let mut addresses: Vec<u64> =
        staged.iter().filter_map(|block| Some(block.old?.address)).collect();
    // A block with several owners is one block.
    addresses.sort_unstable();
    addresses.dedup();
    let usage = &metadata.usage;
    let of_one = addresses.chunk_by(|a, b| usage.segment_of(*a) == usage.segment_of(*b));
    let is_emptied = |blocks: &&[u64]| {
        let segment = usage.segment_of(blocks[0]);
        segment.is_some_and(|segment| usage.is_emptied_for_delta(segment, blocks.len()))
    };
    of_one.filter(is_emptied).count()
}

/// Returns the changes of items by a batch.
fn planned_changes(files: &[FilePlan<'_>], staged: &[StagedBlock]) -> Vec<PlannedChange> {
    let mut changes = Vec::with_capacity(2 * files.len() + staged.len());
    let mut add = |key, value| changes.push(PlannedChange { key, value });
    for file in files {
        add(Key::inode(file.ino), PlannedValue::Len(Inode::LEN + file.rest_len));
        let inline = Key::new(file.ino, ItemKind::Inline, 0);
        match &file.inline {
            Some(content) => add(inline, PlannedValue::Len(content.len())),
            None if file.outgrown => add(inline, PlannedValue::Gone),
            None => {}
        }
        for (old, left) in file.changed_ranges() {
            add(old.key(file.ino), PlannedValue::Gone);
            left.iter().for_each(|range| {
                add(range.key(file.ino), PlannedValue::Len(Reservation::LEN));
            });
        }
    }
    for run in staged.chunk_by(is_same_run) {
        let new = run.iter().filter(|block| block.old.is_none()).count();
        let more = match new {
            0 => 0,
            _ => MappingRun::HEAD_LEN + new * MappingRun::MAPPING_LEN,
        };
        add(run_key(run[0].ino, run[0].block), PlannedValue::Longer(more));
    }
    changes
}

/// Returns whether the mappings of two blocks are in the same item.
fn is_same_run(a: &StagedBlock, b: &StagedBlock) -> bool {
    run_key(a.ino, a.block) == run_key(b.ino, b.block)
}

/// Clean segments for a batch.
pub(super) struct BatchSegments {
    /// Number of Clean segments with which the batch fits, if its delta is short.
    pub(super) wanted: usize,
    /// Share of the batch in the Clean segments; `None` if they do not suffice.
    pub(super) share: Option<SegmentBudget>,
}

/// Returns the share of a batch for `request` in the Clean segments, if they suffice for the batch and for the reserve after it. The
/// batch releases `released_segments`, which count as Clean after the batch.
///
/// A delta for a release that comes alone may take the segments of the next checkpoint if later ones give them back without it:
/// whatever has made too many nodes dirty, removing files then helps.
pub(super) fn share_segments(
    behaviour: &dyn LayoutBehaviour,
    view: SpaceView<'_>,
    (files, staged): (&[FilePlan<'_>], &[StagedBlock]),
    request: &CommitRequest<'_>,
    released_segments: usize,
) -> BatchSegments {
    let reserve = request.reserve;
    let SpaceView { layout, metadata, .. } = view;
    let opened = behaviour.opened_segments(view, staged);
    // A checkpoint must be able to write what becomes dirty.
    let dirtied = metadata.tree.dirtied_by(planned_changes(files, staged));
    let reservations: usize = files.iter().map(FilePlan::reservation_leaves).sum();
    let leaves = staged.chunk_by(is_same_run).count() + files.len() + reservations;
    let ahead = ChangesAhead { dirtied, leaves };
    let kept = reserved_segments(&layout, metadata, reserve, ahead);
    let for_checkpoint = checkpoint_segments(&layout, metadata, ahead);
    let drained = metadata.usage.releasable_count().saturating_sub(released_segments);
    let later = match reserve {
        Reserve::CleaningOnceReleased => drained + emptied_segments(metadata, staged),
        Reserve::Cleaning | Reserve::Checkpoint => 0,
    };
    let is_alone = files.is_empty() && staged.is_empty();
    let gives_back = is_alone && request.releases == Releases::Dedicated;
    let inline: usize = files.iter().map(|f| f.inline.as_ref().map_or(0, Vec::len)).sum();
    let covered: usize = files.iter().map(FilePlan::covered_count).sum();
    let appended: usize = files.iter().map(|file| file.rest_len).sum();
    let maps_and_releases = behaviour.delta_len_max(staged.len()) + RELEASES_MAX * RELEASE_LEN;
    let others = files.len() * FILE_CHANGES_LEN_MAX
        + covered * COVERED_CHANGES_LEN_MAX
        + inline
        + appended
        + maps_and_releases;
    let share = |delta_len: usize| {
        let segments = delta_len / (layout.segment_blocks as usize * BLOCK_SIZE);
        let log = DELTA_SEGMENTS + segments;
        let clean = metadata.usage.clean_count();
        let after_batch = clean + released_segments;
        if gives_back && after_batch + drained >= 2 * log + for_checkpoint {
            return clean.checked_sub(log).map(|_| SegmentBudget { log, data: 0 });
        }
        let after = (after_batch + later).checked_sub(log + kept)?;
        // A checkpoint must fit before anything else is released.
        let before_release = after_batch.checked_sub(log + for_checkpoint)?;
        let data = after.min(before_release).min(clean.checked_sub(log)?);
        (opened <= data).then_some(SegmentBudget { log, data })
    };
    // The upper bound for the delta is cheap; its length takes longer to compute.
    let delta_len_max = metadata.change_count() * CHANGE_LEN_MAX + others;
    let share = share(delta_len_max).or_else(|| share(metadata.delta_len() + others));
    BatchSegments { wanted: DELTA_SEGMENTS + kept + opened, share }
}
