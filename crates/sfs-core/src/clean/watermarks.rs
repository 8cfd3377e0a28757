//! Watermarks of cleaning (Rajimwale et al., section 3.6), as pure functions of the metadata.
//!
//! Below the low watermark the background cleans while no request is under way. Below the steady watermark it yields only to reads, and
//! not while users write or change names, so that a program that writes without a pause need not clean itself. Below the critical watermark writers clean in proportion to their
//! writes, too, so that they slow down smoothly.

use super::progress::GarbageBlocks;
use crate::format::Layout;
use crate::log::Batch;
use crate::metadata::Metadata;
use crate::reserves::{clean_target_segments, free_segments};

/// Number of segments of the volume for each segment of the low watermark.
const SEGMENTS_PER_LOW: usize = 20;

/// Number of segments of the volume for each segment of the steady watermark.
const SEGMENTS_PER_STEADY: usize = 50;

/// Number of segments that writers let the background go below what it aims for, before they clean themselves: so much later
/// that it keeps ahead of most of them, and so early that no commit takes the reserve.
const STEADY_SEGMENTS: usize = 2;

/// Number of segments that make a checkpoint worthwhile for a waiting thread.
pub(crate) const WORTHWHILE_SEGMENTS: usize = 4;

/// Number of blocks that a checkpoint has to release for each node that it writes, unless space is
/// short. Segments that wait for a checkpoint leave less room for garbage: with three times this
/// number, cleaning moves more blocks than the rarer checkpoints save. Values of 1 to 3 differ by less
/// than 0.5 % of the bytes on the device (docs/benchmarks.md).
const RELEASED_BLOCKS_PER_NODE: usize = 2;

/// Number of unused segments for each segment that may wait for a checkpoint.
const UNUSED_PER_PINNED: usize = 4;

/// Urgency of cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Enough segments are Clean, or soon will be.
    None,
    /// Fewer segments are available than the low watermark.
    Background,
    /// Fewer segments are available than the steady watermark.
    Steady,
    /// Fewer segments are available than the critical watermark.
    Critical,
}

/// Returns how urgent cleaning is. Drained segments count: a delta makes them Clean, or a checkpoint where that is
/// worthwhile.
pub(crate) fn urgency(layout: &Layout, metadata: &Metadata) -> Urgency {
    let segments = layout.segment_count as usize;
    let target = clean_target_segments(layout, metadata) + WORTHWHILE_SEGMENTS;
    let steady = (segments / SEGMENTS_PER_STEADY).max(target);
    let low = (segments / SEGMENTS_PER_LOW).max(steady + steady / 4);
    let usage = &metadata.usage;
    let is_worthwhile = is_checkpoint_worthwhile(layout, metadata);
    let pinned = if is_worthwhile { usage.pinned_count() } else { 0 };
    let available = usage.clean_count() + usage.releasable_count() + pinned;
    if available + STEADY_SEGMENTS < target {
        Urgency::Critical
    } else if available < steady {
        Urgency::Steady
    } else if available < low {
        Urgency::Background
    } else {
        Urgency::None
    }
}

/// Returns whether a checkpoint is worthwhile: it has to write few nodes beside the blocks of the
/// segments that wait for it, or the waiting segments are a good part of all unused ones.
pub(crate) fn is_checkpoint_worthwhile(layout: &Layout, metadata: &Metadata) -> bool {
    let nodes = metadata.checkpoint_nodes.max(metadata.tree.dirty_count());
    let worthwhile = nodes * RELEASED_BLOCKS_PER_NODE / layout.segment_blocks as usize;
    let used = metadata.usage.live_blocks() / Batch::segment_data_blocks(layout) as u64;
    let unused = u64::from(layout.segment_count).saturating_sub(used);
    let pinned = metadata.usage.pinned_count();
    pinned > 0 && pinned >= worthwhile.min(unused as usize / UNUSED_PER_PINNED)
}

/// Returns the garbage in the segments that are in use.
pub(crate) fn garbage(layout: &Layout, metadata: &Metadata) -> GarbageBlocks {
    let segment_blocks = Batch::segment_data_blocks(layout) as u64;
    let free = free_segments(metadata) as u64;
    let used = u64::from(layout.segment_count).saturating_sub(free);
    let blocks = (used * segment_blocks).saturating_sub(metadata.usage.live_blocks());
    GarbageBlocks { blocks, segment_blocks }
}
