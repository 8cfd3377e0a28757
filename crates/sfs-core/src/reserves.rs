//! Reserves: Clean segments that every step leaves for the steps that must always be possible.
//!
//! A checkpoint must always fit; before it, one segment must always be cleanable; and every step that can wait leaves room for
//! both. All reserves of the core are here, as pure functions of the metadata.
//!
//! The invariant: after a commit by a user, [`cleaning_segments`] segments are Clean; after a commit of cleaning that no thread waits
//! for, they are once a delta has released what is Drained. Only a thread that lacks segments goes below, down to
//! [`checkpoint_segments`]. Cleaning ahead must not: on a full volume every victim is nearly full, so that a round makes more nodes
//! dirty than it gains blocks, and their checkpoint takes the segments. The sync that came next could then clean nothing.
//! `writeback::budget` asserts the invariant in debug builds.

use crate::format::{Layout, USAGE_PER_ITEM};
use crate::log::Batch;
use crate::metadata::Metadata;

/// Number of segments that a short delta may open: the delta may cross into one more segment.
pub(crate) const DELTA_SEGMENTS: usize = 1;

/// Least number of nodes that a checkpoint makes dirty itself, besides the nodes that scale with the number of changes.
const CHECKPOINT_NODES_MIN: usize = 16;

/// Number of nodes above the leaves of a usage table that all fit into one node, and of those that such a node and its parents
/// add.
const USAGE_PARENTS: usize = 4;

/// Number of usage items that a leaf has at least.
const USAGE_ITEMS_PER_LEAF: u32 = 2;

/// Number of nodes that splits of these nodes may add.
const CHECKPOINT_SPLITS: usize = 2;

/// Number of segments that cleaning one segment may open: the next one of the head, one for the
/// delta, and one more because two checkpoints may each fill a segment in part.
const CLEANING_SEGMENTS: usize = 3;

/// Number of segments that a small commit may open, plus one that gives early warning.
pub(crate) const COMMIT_SEGMENTS: usize = 4;

/// Changes before a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangesAhead {
    /// Largest number of nodes that become dirty, as [`Tree::dirtied_by`](crate::tree::Tree::dirtied_by) has it; 0 if it is not
    /// known.
    pub(crate) dirtied: usize,
    /// Largest number of leaves that change.
    pub(crate) leaves: usize,
}

impl ChangesAhead {
    /// No changes.
    pub(crate) const NONE: Self = Self { dirtied: 0, leaves: 0 };

    /// Changes of this many leaves.
    pub(crate) fn of_leaves(leaves: usize) -> Self {
        Self { dirtied: 0, leaves }
    }
}

/// Returns the number of nodes that a checkpoint makes dirty itself, besides the nodes that scale with the number of changes: those
/// of the whole usage table, as the blocks that were overwritten may be anywhere.
fn checkpoint_nodes(layout: &Layout) -> usize {
    let leaves =
        layout.segment_count.div_ceil(USAGE_PER_ITEM).div_ceil(USAGE_ITEMS_PER_LEAF) as usize;
    (leaves + leaves / 64 + USAGE_PARENTS).max(CHECKPOINT_NODES_MIN)
}

/// Returns the number of segments that the next checkpoint may have to open after the changes `ahead`.
pub(crate) fn checkpoint_segments(
    layout: &Layout,
    metadata: &Metadata,
    ahead: ChangesAhead,
) -> usize {
    segments_after(layout, metadata, ahead, 0)
}

/// Returns the number of segments that a commit which makes the changes `ahead` has to keep Clean, so that a segment can always be
/// cleaned and the checkpoint that releases it can be written.
pub(crate) fn cleaning_segments(
    layout: &Layout,
    metadata: &Metadata,
    ahead: ChangesAhead,
) -> usize {
    segments_after(layout, metadata, ahead, Batch::segment_data_blocks(layout)) + CLEANING_SEGMENTS
}

/// Returns whether the [`cleaning_segments`] of no changes are Clean.
pub(crate) fn has_cleaning_reserve(layout: &Layout, metadata: &Metadata) -> bool {
    metadata.usage.clean_count() >= cleaning_segments(layout, metadata, ChangesAhead::NONE)
}

/// Returns the number of segments that a checkpoint may have to open after the changes `ahead`, and then `moved_blocks` moved
/// blocks.
fn segments_after(
    layout: &Layout,
    metadata: &Metadata,
    ahead: ChangesAhead,
    moved_blocks: usize,
) -> usize {
    // A change makes a leaf and its parents dirty, and the sums of a segment. No node is written twice; splits make new
    // nodes.
    let clean_nodes =
        (metadata.usage.live_nodes() as usize).saturating_sub(metadata.tree.old_count());
    let own = checkpoint_nodes(layout);
    let estimate = |leaves: usize| (leaves + leaves / 4 + own).min(clean_nodes) + leaves / 4;
    // The estimate is more than the changes need where they share parents, and cleaning on a full volume lives on that; it is
    // less where each change divides a leaf.
    let more = estimate(ahead.leaves + moved_blocks).max(ahead.dirtied + estimate(moved_blocks));
    let nodes = metadata.tree.dirty_count() + more;
    (nodes + CHECKPOINT_SPLITS).div_ceil(Batch::segment_data_blocks(layout))
}

/// Returns the number of Clean segments that the cleaner aims for: as many as the last commits wanted. With fewer, all
/// blocks may have to go to one head, for which the reserve suffices.
pub(crate) fn clean_target_segments(layout: &Layout, metadata: &Metadata) -> usize {
    let wanted = metadata.wanted_segments().max(least_target_segments(layout, metadata));
    wanted.min(clean_target_max_segments(layout, metadata))
}

/// Returns the largest number of Clean segments that the cleaner aims for: one for each group beyond the reserve.
pub(crate) fn clean_target_max_segments(layout: &Layout, metadata: &Metadata) -> usize {
    least_target_segments(layout, metadata) + usize::from(metadata.grouping.group_count())
}

fn least_target_segments(layout: &Layout, metadata: &Metadata) -> usize {
    cleaning_segments(layout, metadata, ChangesAhead::NONE) + COMMIT_SEGMENTS
}

/// Returns the number of segments that are Clean or Drained.
pub(crate) fn free_segments(metadata: &Metadata) -> usize {
    let usage = &metadata.usage;
    usage.clean_count() + usage.releasable_count() + usage.pinned_count()
}

/// Returns the number of segments that will be Clean after a checkpoint, without the segments that
/// the checkpoint itself takes.
pub(crate) fn reclaimable_segments(layout: &Layout, metadata: &Metadata) -> usize {
    free_segments(metadata).saturating_sub(checkpoint_segments(
        layout,
        metadata,
        ChangesAhead::NONE,
    ))
}
