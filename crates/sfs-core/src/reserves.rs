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

use crate::format::Layout;
use crate::log::Batch;
use crate::metadata::Metadata;

/// Number of segments that a short delta may open: the delta may cross into one more segment.
pub(crate) const DELTA_SEGMENTS: usize = 1;

/// Number of nodes that a checkpoint makes dirty itself, besides the nodes that scale with the
/// number of changes: nodes of the usage table, and their parents.
const CHECKPOINT_NODES: usize = 16;

/// Number of nodes that splits of these nodes may add.
const CHECKPOINT_SPLITS: usize = 2;

/// Number of segments that cleaning one segment may open: the next one of the head, one for the
/// delta, and one more because two checkpoints may each fill a segment in part.
const CLEANING_SEGMENTS: usize = 3;

/// Number of segments that a small commit may open, plus one that gives early warning.
pub(crate) const COMMIT_SEGMENTS: usize = 4;

/// Returns the number of segments that the next checkpoint may have to open when `changed_leaves`
/// more leaves are changed before it.
pub(crate) fn checkpoint_segments(
    layout: &Layout,
    metadata: &Metadata,
    changed_leaves: usize,
) -> usize {
    // A change makes a leaf and its parents dirty, and the sums of a segment. No node is written twice; splits make new
    // nodes.
    let clean_nodes =
        (metadata.usage.live_nodes() as usize).saturating_sub(metadata.tree.old_count());
    let more = changed_leaves;
    let nodes = metadata.tree.dirty_count()
        + (more + more / 4 + CHECKPOINT_NODES).min(clean_nodes)
        + more / 4;
    (nodes + CHECKPOINT_SPLITS).div_ceil(Batch::segment_data_blocks(layout))
}

/// Returns the number of segments that a commit which changes `changed_leaves` leaves has to keep
/// Clean, so that a segment can always be cleaned and the checkpoint that releases it can be
/// written.
pub(crate) fn cleaning_segments(
    layout: &Layout,
    metadata: &Metadata,
    changed_leaves: usize,
) -> usize {
    let moved_blocks = Batch::segment_data_blocks(layout);
    checkpoint_segments(layout, metadata, changed_leaves + moved_blocks) + CLEANING_SEGMENTS
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
    cleaning_segments(layout, metadata, 0) + COMMIT_SEGMENTS
}

/// Returns the number of segments that are Clean or Drained.
pub(crate) fn free_segments(metadata: &Metadata) -> usize {
    let usage = &metadata.usage;
    usage.clean_count() + usage.releasable_count() + usage.pinned_count()
}

/// Returns the number of segments that will be Clean after a checkpoint, without the segments that
/// the checkpoint itself takes.
pub(crate) fn reclaimable_segments(layout: &Layout, metadata: &Metadata) -> usize {
    free_segments(metadata).saturating_sub(checkpoint_segments(layout, metadata, 0))
}
