//! The log as an engine: every block is appended to the head of its group.

use super::{Engine, Site};
use crate::format::Layout;
use crate::log::Batch;
use crate::meta::Meta;
use crate::volume::commit::{Chosen, data_head, sort};

/// See the module.
pub(in crate::volume) struct Append;

/// Blocks of a segment that summaries take: one in so many, and at least [`SUMMARY_BLOCKS_MIN`].
/// What is written in small pieces takes more at first, until it is cleaned.
const SUMMARY_SHARE: u32 = 64;

/// See [`SUMMARY_SHARE`].
const SUMMARY_BLOCKS_MIN: u32 = 2;

/// Segments that users never get, at least: open heads, a checkpoint, and room to clean into.
const RESERVE_SEGMENTS_MIN: u32 = 16;

/// The share of all segments that users never get: one in so many.
const RESERVE_SHARE: u32 = 16;

/// One in so many of the blocks of a full volume is kept for metadata of what users delete or
/// rename when it is full.
const METADATA_SHARE: u64 = 128;

/// Blocks that are kept when metadata is added.
pub(super) const METADATA_MIN: u64 = 8;

impl Engine for Append {
    fn capacity(&self, layout: &Layout) -> u64 {
        let reserve = RESERVE_SEGMENTS_MIN.max(layout.segment_count / RESERVE_SHARE);
        log_capacity(layout, layout.segment_count - reserve)
    }

    fn free_blocks(&self, layout: &Layout, meta: &Meta) -> u64 {
        let used = meta.usage.live_blocks() + meta.tree.new_count();
        self.capacity(layout).saturating_sub(used)
    }

    fn admits(&self, layout: &Layout, meta: &Meta, dirty: u64, blocks: u64) -> bool {
        let used = meta.usage.live_blocks() + dirty + dirty / 64 + meta.tree.new_count();
        let headroom = self.capacity(layout).saturating_sub(used);
        let kept = if blocks > 0 { self.capacity(layout) / METADATA_SHARE } else { METADATA_MIN };
        headroom >= blocks + kept
    }

    fn ample(&self, layout: &Layout, _meta: &Meta, spare: usize) -> usize {
        // Every block may make a leaf dirty, which a checkpoint has to write.
        spare * Batch::segment_room(layout) / 2
    }

    fn room(&self, site: Site<'_>, spare: usize) -> usize {
        if spare > 0 {
            return self.ample(site.layout, site.meta, spare).max(2);
        }
        // A few more fit where the roomiest head is.
        Batch::head_room(site.log, site.layout, data_head(roomiest(site)))
    }

    fn opens(&self, site: Site<'_>, chosen: &[Chosen]) -> usize {
        let opens = |group| {
            let count = chosen.iter().filter(|c| c.group == group).count();
            Batch::opens(site.log, site.layout, data_head(group), count, 0)
        };
        (0..site.meta.grouping.group_count()).map(opens).sum()
    }

    /// There are not segments for all groups: one head takes everything.
    fn narrow(&self, site: Site<'_>, chosen: &mut [Chosen]) {
        let group = roomiest(site);
        chosen.iter_mut().for_each(|c| c.group = group);
        sort(chosen);
    }
}

/// Blocks that live in `segments` of the log at most.
pub(super) fn log_capacity(layout: &Layout, segments: u32) -> u64 {
    let summaries = (layout.segment_blocks / SUMMARY_SHARE).max(SUMMARY_BLOCKS_MIN);
    u64::from(segments) * u64::from(layout.segment_blocks - summaries)
}

/// The group whose head has the most room left.
fn roomiest(site: Site<'_>) -> u8 {
    let groups = 0..site.meta.grouping.group_count();
    let room = |group: &u8| Batch::head_room(site.log, site.layout, data_head(*group));
    groups.max_by_key(room).unwrap_or(0)
}
