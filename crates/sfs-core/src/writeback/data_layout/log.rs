//! Data in the log: every block is appended to the head of its group.

use super::super::staged::{StagedBlock, sort};
use super::behaviour::{LayoutBehaviour, SpaceView, Withheld};
use crate::format::{Group, Head, Layout, ReservationTotals};
use crate::log::Batch;
use crate::metadata::Metadata;
use crate::policy::GROUPS_MAX;

/// Behaviour of the layout that appends data to the log.
pub(crate) struct Appending;

/// Number of blocks of a segment per block of summaries; at least [`SUMMARY_BLOCKS_MIN`] are
/// reserved. Small chunks take more at first, until their segment is cleaned.
const BLOCKS_PER_SUMMARY_BLOCK: u32 = 64;

/// Minimum number of blocks of summaries in a segment.
const SUMMARY_BLOCKS_MIN: u32 = 2;

/// Minimum number of segments withheld from users: for open heads, a checkpoint, and cleaning.
const RESERVE_SEGMENTS_MIN: u32 = 16;

/// Number of segments of the volume per segment withheld from users.
const SEGMENTS_PER_RESERVE_SEGMENT: u32 = 16;

/// Number of blocks of capacity per block withheld from data: deletes and renames on a full volume
/// change metadata.
const BLOCKS_PER_METADATA_BLOCK: u64 = 128;

/// Number of data blocks for which the tree may need a new leaf.
pub(super) const BLOCKS_PER_LEAF: u64 = 64;

/// Number of blocks withheld when only metadata is added.
pub(super) const METADATA_BLOCKS_MIN: u64 = 8;

impl LayoutBehaviour for Appending {
    fn capacity_blocks(&self, layout: &Layout) -> u64 {
        let reserve = RESERVE_SEGMENTS_MIN.max(layout.segment_count / SEGMENTS_PER_RESERVE_SEGMENT);
        log_capacity(layout, layout.segment_count - reserve)
    }

    fn free_blocks(&self, layout: &Layout, metadata: &Metadata) -> u64 {
        let reserved = metadata.reserved();
        let used = metadata.live_blocks_after_write_out();
        let promised = reserved.blocks.saturating_add(reserved_leaves(reserved));
        self.capacity_blocks(layout).saturating_sub(used).saturating_sub(promised)
    }

    fn withheld_blocks(&self, layout: &Layout) -> u64 {
        self.capacity_blocks(layout) / BLOCKS_PER_METADATA_BLOCK
    }

    fn admits(
        &self,
        layout: &Layout,
        metadata: &Metadata,
        dirty_blocks: u64,
        new_blocks: u64,
        withheld: Withheld,
    ) -> bool {
        let leaves = (dirty_blocks + new_blocks) / BLOCKS_PER_LEAF;
        let withheld = match (withheld, new_blocks) {
            (Withheld::Usual, 1..) => self.withheld_blocks(layout),
            (Withheld::Usual, 0) | (Withheld::Least, 1..) => METADATA_BLOCKS_MIN,
            (Withheld::Least, 0) => 0,
        };
        self.free_blocks(layout, metadata) >= dirty_blocks + new_blocks + leaves + withheld
    }

    fn certain_blocks(
        &self,
        layout: &Layout,
        _metadata: &Metadata,
        spare_segments: usize,
    ) -> usize {
        // Every block may make a leaf dirty, which a checkpoint has to write.
        spare_segments * Batch::segment_data_blocks(layout) / 2
    }

    fn plannable_blocks(&self, view: SpaceView<'_>, spare_segments: usize) -> usize {
        if spare_segments > 0 {
            return self.certain_blocks(&view.layout, view.metadata, spare_segments).max(2);
        }
        // A few more blocks fit into the open segments.
        by_room(view).iter().map(|(_, room)| room).sum()
    }

    fn opened_segments(&self, view: SpaceView<'_>, blocks: &[StagedBlock]) -> usize {
        let opens = |group| {
            let count = blocks.iter().filter(|c| c.group == group).count();
            Batch::opens(view.log, &view.layout, Head::of(group), count, 0)
        };
        Group::first(GROUPS_MAX).map(opens).sum()
    }

    fn merge_groups(&self, view: SpaceView<'_>, blocks: &mut [StagedBlock]) {
        let order = by_room(view);
        let mut places = order.iter().flat_map(|(group, room)| std::iter::repeat_n(*group, *room));
        let further = order.first().map_or(Group(0), |(group, _)| *group);
        blocks.iter_mut().for_each(|block| block.group = places.next().unwrap_or(further));
        sort(blocks);
    }
}

/// Returns the number of leaves that the tree may need until all reserved blocks are written (decision 27).
pub(super) fn reserved_leaves(reserved: ReservationTotals) -> u64 {
    (reserved.blocks / BLOCKS_PER_LEAF).saturating_add(reserved.ranges)
}

/// Returns the number of blocks that can be live in `segments` segments of the log.
pub(super) fn log_capacity(layout: &Layout, segments: u32) -> u64 {
    let summaries = (layout.segment_blocks / BLOCKS_PER_SUMMARY_BLOCK).max(SUMMARY_BLOCKS_MIN);
    u64::from(segments) * u64::from(layout.segment_blocks - summaries)
}

/// Returns the groups with the room of their heads in blocks, the most first.
fn by_room(view: SpaceView<'_>) -> Vec<(Group, usize)> {
    let groups = Group::first(GROUPS_MAX);
    let room = |group: Group| Batch::head_room_blocks(view.log, &view.layout, Head::of(group));
    let mut order: Vec<(Group, usize)> = groups.map(|group| (group, room(group))).collect();
    order.sort_by_key(|(_, room)| std::cmp::Reverse(*room));
    order
}
