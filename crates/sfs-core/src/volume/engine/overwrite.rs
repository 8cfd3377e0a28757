//! Overwriting as an engine (FAST 2009): what is mapped is written where it is, and new blocks get free
//! blocks of Placed segments; only metadata goes to the log.

use super::append::{METADATA_MIN, log_capacity};
use super::{Beside, Engine, Site};
use crate::format::{Change, Layout, Mapping};
use crate::log::Log;
use crate::meta::Meta;
use crate::segments::{Extent, SegmentBudget, UsageTable};
use crate::volume::commit::Chosen;

/// Blocks that a commit may plan beyond what is free: they may all stay where they are.
const STAYING_MAX: usize = 1024;

/// Segments that the log keeps to clean into.
const LOG_RESERVE: u32 = 16;

/// Blocks of data for which the tree may need a new leaf.
const BLOCKS_PER_LEAF: u64 = 64;

/// Bytes of an encoded [`Change::Map`].
const MAP_LEN: usize = Change::HEADER_LEN + 24;

/// See the module.
pub(super) struct Overwrite;

impl Engine for Overwrite {
    fn capacity(&self, layout: &Layout) -> u64 {
        UsageTable::in_place_capacity_blocks(layout)
    }

    fn free_blocks(&self, _layout: &Layout, meta: &Meta) -> u64 {
        meta.usage.in_place_room_blocks(meta.node_count())
    }

    fn admits(&self, layout: &Layout, meta: &Meta, dirty: u64, blocks: u64) -> bool {
        let segments = layout.segment_count - meta.usage.in_place_segments();
        let nodes = log_capacity(layout, segments.saturating_sub(LOG_RESERVE));
        let leaves = (dirty + blocks) / BLOCKS_PER_LEAF;
        let used = meta.node_count() + leaves + METADATA_MIN;
        used <= nodes && (blocks == 0 || dirty + blocks <= meta.usage.in_place_room_blocks(used))
    }

    fn ample(&self, layout: &Layout, meta: &Meta, spare: usize) -> usize {
        let segments = spare.min(meta.usage.in_place_segments_left(meta.node_count()));
        meta.usage.free_blocks() as usize + segments * layout.segment_blocks as usize
    }

    fn room(&self, site: Site<'_>, spare: usize) -> usize {
        self.ample(site.layout, site.meta, spare) + STAYING_MAX
    }

    fn opens(&self, site: Site<'_>, chosen: &[Chosen]) -> usize {
        let more = chosen.len().saturating_sub(site.meta.usage.free_blocks() as usize);
        more.div_ceil(site.layout.segment_blocks as usize)
    }

    fn arrange(&self, chosen: &mut Vec<Chosen>) -> Vec<Chosen> {
        let stays = |c: &mut Chosen| c.old.is_some_and(|old| old.checksum.is_none());
        let mut staying: Vec<Chosen> = chosen.extract_if(.., stays).collect();
        for block in &mut staying {
            block.mapping = block.old.expect("it stays");
        }
        staying
    }

    fn said_len(&self, count: usize) -> usize {
        count * MAP_LEN
    }

    fn place(
        &self,
        layout: &Layout,
        log: &Log,
        meta: &mut Meta,
        chosen: &mut Vec<Chosen>,
        share: SegmentBudget,
    ) -> Beside {
        // What was admitted is written; beyond that the log keeps its share.
        let spare = share.data.min(meta.usage.in_place_segments_left(meta.node_count()));
        let opens = self.opens(Site { layout, log, meta }, chosen);
        let mut share = SegmentBudget { data: spare.max(opens), ..share };
        let mut beside = Beside { chosen: std::mem::take(chosen), maps: Vec::new() };
        let follows = |a: &Chosen, b: &Chosen| a.ino == b.ino && a.block + 1 == b.block;
        for run in beside.chosen.chunk_by_mut(follows) {
            let ino = run[0].ino;
            let mut rest = &mut *run;
            for extent in meta.usage.allocate(ino, rest.len(), &mut share, log.next_sequence) {
                let Extent { address, count } = extent;
                let (part, others) = rest.split_at_mut(count as usize);
                beside.maps.push(Change::Map { ino, block: part[0].block, count, address });
                for (block, address) in part.iter_mut().zip(address..) {
                    block.mapping = Mapping::in_place(address);
                }
                rest = others;
            }
        }
        beside
    }
}
