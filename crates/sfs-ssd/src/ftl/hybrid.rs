//! The common part of block-mapped translation layers with log blocks (hybrid mapping).
//!
//! This part maps logical blocks to data blocks, finds the last version of each page, and does the three
//! merges (Kim et al. 2002; FAST'09 paper, section 2.2). A page in a data block always has the same index
//! there as in its logical block. The layers choose the log block that a page goes to, and the log block
//! that is merged.

use super::free::FreeBlocks;
use super::interface::PageWrite;
use super::layer::WearLevelling;
use crate::flash::{Flash, NONE, Spare};
use crate::geometry::FlashGeometry;

/// Number of free blocks that a merge may need at the same time: the new data block, and one in
/// reserve.
const MERGE_BLOCKS: u32 = 2;

/// Divisor of the number of logical blocks; the quotient is the interval of static wear levelling,
/// in erases.
const LEVELLING_FRACTION: u32 = 16;

/// Log block of one logical block.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBlock {
    /// Clustered block that holds the log.
    pub(super) cluster: u32,
    /// Logical block whose pages are logged.
    pub(super) block: u32,
    /// `true` while the logged pages are pages 0, 1, 2, ... of the logical block.
    pub(super) in_order: bool,
}

/// Block-mapped part of a layer.
pub(super) struct Hybrid {
    cluster_pages: u32,
    /// Slot of the last version of each page, in a data block or a log block. A real device searches the
    /// maps of its log blocks instead.
    slots: Vec<u32>,
    /// Data block of each logical block.
    data: Vec<u32>,
    /// Number of live pages of each logical block.
    live_pages: Vec<u32>,
    pub(super) free: FreeBlocks,
    wear: WearLevelling,
    erase_count: u32,
}

impl Hybrid {
    /// Maps an erased device; returns `None` if it has too few spare blocks for the log blocks and a merge.
    pub(super) fn new(
        geometry: &FlashGeometry,
        log_blocks: u32,
        wear: WearLevelling,
    ) -> Option<Hybrid> {
        let logical = geometry.logical_clusters();
        (geometry.clusters() >= logical + log_blocks + MERGE_BLOCKS).then(|| Hybrid {
            cluster_pages: geometry.cluster_pages(),
            slots: vec![NONE; geometry.pages() as usize],
            data: vec![NONE; logical as usize],
            live_pages: vec![0; logical as usize],
            free: FreeBlocks::new(wear, 0..geometry.clusters()),
            wear,
            erase_count: 0,
        })
    }

    /// Returns the logical block of a page, and the index of the page in it.
    pub(super) fn position(&self, page: u32) -> (u32, u32) {
        (page / self.cluster_pages, page % self.cluster_pages)
    }

    pub(super) fn slot(&self, page: u32) -> Option<u32> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(slot)
    }

    /// Returns the slot of a page in its data block, if the slot can still be programmed.
    ///
    /// Returns `None` also for a logical block without a data block.
    pub(super) fn slot_in_data(&self, flash: &Flash, page: u32) -> Option<u32> {
        let (block, index) = self.position(page);
        let cluster = self.data[block as usize];
        (cluster != NONE && index >= flash.filled(cluster)).then(|| flash.slot(cluster, index))
    }

    /// Writes a page to its slot in the data block and returns the end time; returns `None` if the
    /// slot cannot be programmed.
    ///
    /// A logical block without a data block gets one.
    pub(super) fn write_in_data(
        &mut self,
        flash: &mut Flash,
        write: PageWrite,
        at_ns: u64,
    ) -> Option<u64> {
        let (block, _) = self.position(write.page);
        if self.data[block as usize] == NONE {
            self.data[block as usize] = self.free.take();
        }
        let slot = self.slot_in_data(flash, write.page)?;
        Some(self.program(flash, write, slot, at_ns))
    }

    /// Writes a page to the next slot of a log block and returns the end time.
    pub(super) fn append(
        &mut self,
        flash: &mut Flash,
        cluster: u32,
        write: PageWrite,
        at_ns: u64,
    ) -> u64 {
        let slot = flash.slot(cluster, flash.filled(cluster));
        self.program(flash, write, slot, at_ns)
    }

    fn program(&mut self, flash: &mut Flash, write: PageWrite, slot: u32, at_ns: u64) -> u64 {
        let (block, _) = self.position(write.page);
        let old = std::mem::replace(&mut self.slots[write.page as usize], slot);
        self.live_pages[block as usize] += u32::from(old == NONE);
        flash.program(slot, Spare { page: write.page, version: write.version }, at_ns)
    }

    /// Unmaps a page and returns whether it was the last live page of its logical block.
    ///
    /// In this case the data block is erased, and the caller can erase the log block of the logical block.
    pub(super) fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) -> bool {
        if std::mem::replace(&mut self.slots[page as usize], NONE) == NONE {
            return false;
        }
        flash.counters.host_pages_trimmed += 1;
        let (block, _) = self.position(page);
        self.live_pages[block as usize] -= 1;
        if self.live_pages[block as usize] > 0 {
            return false;
        }
        let data = std::mem::replace(&mut self.data[block as usize], NONE);
        self.erase(flash, data, at_ns);
        true
    }

    /// Iterates over the pages whose last version is in a clustered block.
    fn live_in<'a>(&'a self, flash: &'a Flash, cluster: u32) -> impl Iterator<Item = u32> + 'a {
        (0..flash.filled(cluster)).filter_map(move |index| {
            let slot = flash.slot(cluster, index);
            let page = flash.spare(slot)?.page;
            (self.slots[page as usize] == slot).then_some(page)
        })
    }

    /// Merges a log block with its data block, by a switch or partial merge if the log is in order.
    pub(super) fn merge(&mut self, flash: &mut Flash, log: LogBlock, at_ns: u64) {
        let filled = flash.filled(log.cluster);
        if !log.in_order {
            self.merge_full(flash, log.block, at_ns);
            self.erase(flash, log.cluster, at_ns);
        } else {
            match filled == self.cluster_pages {
                true => flash.counters.merges_switch += 1,
                false => flash.counters.merges_partial += 1,
            }
            let end_ns = self.copy_live(flash, log.block, filled, log.cluster, at_ns);
            self.replace_data(flash, log.block, log.cluster, end_ns);
        }
    }

    /// Copies the last versions of all pages of a logical block into a free block, its new data block.
    pub(super) fn merge_full(&mut self, flash: &mut Flash, block: u32, at_ns: u64) {
        flash.counters.merges_full += 1;
        let cluster = self.free.take();
        let end_ns = self.copy_live(flash, block, 0, cluster, at_ns);
        self.replace_data(flash, block, cluster, end_ns);
        self.level_wear(flash, at_ns);
    }

    /// Merges every logical block that has a page in a log block in full, and calls `merged` after each.
    pub(super) fn merge_live(
        &mut self,
        flash: &mut Flash,
        log: u32,
        at_ns: u64,
        mut merged: impl FnMut(&mut Hybrid, &mut Flash, u32),
    ) {
        for index in 0..flash.filled(log) {
            let slot = flash.slot(log, index);
            let page = flash.spare(slot).expect("a programmed slot").page;
            if self.slot(page) == Some(slot) {
                let (block, _) = self.position(page);
                self.merge_full(flash, block, at_ns);
                merged(self, flash, block);
            }
        }
    }

    /// Copies the last versions of the pages of `block`, from index `first` on, to their slots in `cluster`.
    fn copy_live(
        &mut self,
        flash: &mut Flash,
        block: u32,
        first: u32,
        cluster: u32,
        at_ns: u64,
    ) -> u64 {
        let mut end_ns = at_ns;
        for index in first..self.cluster_pages {
            let page = (block * self.cluster_pages + index) as usize;
            if self.slots[page] != NONE {
                let to = flash.slot(cluster, index);
                end_ns = end_ns.max(flash.copy(self.slots[page], to, at_ns));
                self.slots[page] = to;
            }
        }
        end_ns
    }

    fn replace_data(&mut self, flash: &mut Flash, block: u32, cluster: u32, at_ns: u64) {
        let old = std::mem::replace(&mut self.data[block as usize], cluster);
        if old != NONE {
            self.erase(flash, old, at_ns);
        }
    }

    /// Erases a block without live pages, and adds it to the free blocks.
    pub(super) fn erase(&mut self, flash: &mut Flash, cluster: u32, at_ns: u64) {
        flash.erase(cluster, at_ns);
        self.erase_count += 1;
        self.free.put(cluster, flash.erases()[cluster as usize]);
    }

    /// Moves the least worn data block to the most worn free block, if their erase counts differ enough.
    ///
    /// A data block of a logical block with live pages in a log block is not moved, because a log block in
    /// order relies on the slots of these pages being programmed in the data block.
    fn level_wear(&mut self, flash: &mut Flash, at_ns: u64) {
        let WearLevelling::Static { spread } = self.wear else { return };
        let interval = (self.data.len() as u32 / LEVELLING_FRACTION).max(1);
        if !self.erase_count.is_multiple_of(interval) || self.free.len() <= MERGE_BLOCKS {
            return;
        }
        let wear = |cluster: u32| flash.erases()[cluster as usize];
        let used = (0..self.data.len() as u32).filter(|&b| self.data[b as usize] != NONE);
        let Some(least_worn) = used.min_by_key(|&b| wear(self.data[b as usize])) else { return };
        let Some(most_worn) = self.free.take_most_worn() else { return };
        let data = self.data[least_worn as usize];
        let logged =
            self.live_in(flash, data).count() < self.live_pages[least_worn as usize] as usize;
        if logged || wear(most_worn) <= wear(data).saturating_add(spread) {
            return self.free.put(most_worn, wear(most_worn));
        }
        flash.counters.wear_moves += 1;
        let end_ns = self.copy_live(flash, least_worn, 0, most_worn, at_ns);
        self.replace_data(flash, least_worn, most_worn, end_ns);
    }
}
