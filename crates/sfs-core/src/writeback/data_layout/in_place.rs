//! Data in place (FAST 2009): a mapped block is overwritten at its address, and a new block gets a free block of an
//! in-place segment. Only metadata goes to the log.

use super::super::staged::StagedBlock;
use super::behaviour::{InPlaceBatch, LayoutBehaviour, SpaceView, Withheld};
use super::log::{BLOCKS_PER_LEAF, METADATA_BLOCKS_MIN, log_capacity, reserved_leaves};
use crate::format::{Change, Layout, Mapping};
use crate::log::LogState;
use crate::metadata::Metadata;
use crate::segments::{Extent, SegmentBudget, UsageTable};

/// Number of blocks that a commit may plan beyond the free blocks: all of them may be overwritten
/// in place.
const OVERWRITTEN_BLOCKS_MAX: usize = 1024;

/// Number of segments withheld from data, for cleaning the log.
const LOG_RESERVE_SEGMENTS: u32 = 16;

/// Length of an encoded [`Change::Map`], in bytes.
const MAP_LEN: usize = Change::HEADER_LEN + 24;

/// Behaviour of the layouts that overwrite data in place.
pub(crate) struct InPlace;

impl LayoutBehaviour for InPlace {
    fn capacity_blocks(&self, layout: &Layout) -> u64 {
        UsageTable::in_place_capacity_blocks(layout)
    }

    fn free_blocks(&self, _layout: &Layout, metadata: &Metadata) -> u64 {
        let reserved = metadata.reserved();
        let nodes = metadata.node_count().saturating_add(reserved_leaves(reserved));
        metadata.usage.in_place_room_blocks(nodes).saturating_sub(reserved.blocks)
    }

    fn admits(
        &self,
        layout: &Layout,
        metadata: &Metadata,
        dirty_blocks: u64,
        new_blocks: u64,
        withheld: Withheld,
    ) -> bool {
        let segments = layout.segment_count - metadata.usage.in_place_segments();
        let nodes = log_capacity(layout, segments.saturating_sub(LOG_RESERVE_SEGMENTS));
        let reserved = metadata.reserved();
        let leaves = ((dirty_blocks + new_blocks) / BLOCKS_PER_LEAF)
            .saturating_add(reserved_leaves(reserved));
        let withheld = if withheld == Withheld::Usual { METADATA_BLOCKS_MIN } else { 0 };
        let used = (metadata.node_count() + withheld).saturating_add(leaves);
        let data = (dirty_blocks + new_blocks).saturating_add(reserved.blocks);
        // More nodes take room from reserved blocks, too.
        let needs_room = new_blocks > 0 || reserved.blocks > 0;
        used <= nodes && (!needs_room || data <= metadata.usage.in_place_room_blocks(used))
    }

    fn certain_blocks(&self, layout: &Layout, metadata: &Metadata, spare_segments: usize) -> usize {
        let segments =
            spare_segments.min(metadata.usage.in_place_segments_left(metadata.node_count()));
        metadata.usage.free_blocks() as usize + segments * layout.segment_blocks as usize
    }

    fn plannable_blocks(&self, view: SpaceView<'_>, spare_segments: usize) -> usize {
        self.certain_blocks(&view.layout, view.metadata, spare_segments) + OVERWRITTEN_BLOCKS_MAX
    }

    fn opened_segments(&self, view: SpaceView<'_>, blocks: &[StagedBlock]) -> usize {
        let more = blocks.len().saturating_sub(view.metadata.usage.free_blocks() as usize);
        more.div_ceil(view.layout.segment_blocks as usize)
    }

    fn split_in_place(&self, blocks: &mut Vec<StagedBlock>) -> Vec<StagedBlock> {
        let is_overwritten = |c: &mut StagedBlock| c.old.is_some_and(|old| old.checksum.is_none());
        let mut overwritten: Vec<StagedBlock> = blocks.extract_if(.., is_overwritten).collect();
        for block in &mut overwritten {
            block.mapping = block.old.expect("only mapped blocks are overwritten");
        }
        overwritten
    }

    fn delta_len_max(&self, count: usize) -> usize {
        count * MAP_LEN
    }

    fn allocate(
        &self,
        layout: &Layout,
        log: &LogState,
        metadata: &mut Metadata,
        blocks: &mut Vec<StagedBlock>,
        share: SegmentBudget,
    ) -> InPlaceBatch {
        // Admitted blocks are written in any case; beyond them the log keeps its segments.
        let spare = share.data.min(metadata.usage.in_place_segments_left(metadata.node_count()));
        let opens = self.opened_segments(SpaceView { layout: *layout, log, metadata }, blocks);
        let mut share = SegmentBudget { data: spare.max(opens), ..share };
        let mut batch = InPlaceBatch { blocks: std::mem::take(blocks), maps: Vec::new() };
        let follows = |a: &StagedBlock, b: &StagedBlock| a.ino == b.ino && a.block + 1 == b.block;
        for run in batch.blocks.chunk_by_mut(follows) {
            let ino = run[0].ino;
            let mut rest = &mut *run;
            for extent in metadata.usage.allocate(ino, rest.len(), &mut share, log.next_sequence) {
                let Extent { address, count } = extent;
                let (part, others) = rest.split_at_mut(count as usize);
                batch.maps.push(Change::Map { ino, block: part[0].block, count, address });
                for (block, address) in part.iter_mut().zip(address..) {
                    block.mapping = Mapping::in_place(address);
                }
                rest = others;
            }
        }
        batch
    }
}
