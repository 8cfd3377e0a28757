//! What block-mapped translation layers with log blocks have in common.
//!
//! Owns: the data block of each logical block, where each page's last version is, and the three
//! merges (Kim et al. 2002; FAST'09 paper, section 2.2).
//! Promises: a page of a data block is at its own place in it.
//! Never: chooses which log block a page goes to, or which is merged.

use super::free::Free;
use super::{PageWrite, WearLevelling};
use crate::flash::{Flash, NONE, Spare};
use crate::geometry::Geometry;

/// Free blocks that a merge may need at once: the new data block, and one to spare.
const MERGE_BLOCKS: u32 = 2;

/// Static wear levelling looks when this part of the logical blocks has been erased.
const LEVELLING_PART: u32 = 16;

/// A log block of one logical block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    /// The clustered block.
    pub(super) cluster: u32,
    /// The logical block whose pages are in it.
    pub(super) block: u32,
    /// Its pages are 0, 1, 2, ... of the logical block.
    pub(super) in_order: bool,
}

/// The block-mapped part of a layer.
pub(super) struct Hybrid {
    cluster_pages: u32,
    /// Where the last version of each page is: in a data block or a log block. A device finds it
    /// by searching its log blocks' maps.
    slots: Vec<u32>,
    /// The data block of each logical block.
    data: Vec<u32>,
    /// Pages of each logical block that hold something.
    live_pages: Vec<u32>,
    pub(super) free: Free,
    wear: WearLevelling,
    erase_count: u32,
}

impl Hybrid {
    /// `None` if the spare blocks do not suffice for so many log blocks and a merge.
    pub(super) fn new(geometry: &Geometry, log_blocks: u32, wear: WearLevelling) -> Option<Hybrid> {
        let logical = geometry.logical_clusters();
        (geometry.clusters() >= logical + log_blocks + MERGE_BLOCKS).then(|| Hybrid {
            cluster_pages: geometry.cluster_pages(),
            slots: vec![NONE; geometry.pages() as usize],
            data: vec![NONE; logical as usize],
            live_pages: vec![0; logical as usize],
            free: Free::new(wear, 0..geometry.clusters()),
            wear,
            erase_count: 0,
        })
    }

    /// Logical block of a page, and its place there.
    pub(super) fn place(&self, page: u32) -> (u32, u32) {
        (page / self.cluster_pages, page % self.cluster_pages)
    }

    pub(super) fn slot(&self, page: u32) -> Option<u32> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(slot)
    }

    /// The page's own place in its data block, if it can still be programmed. A logical block
    /// without a data block has all its places.
    pub(super) fn place_in_data(&self, flash: &Flash, page: u32) -> Option<u32> {
        let (block, index) = self.place(page);
        let cluster = self.data[block as usize];
        (cluster != NONE && index >= flash.filled(cluster)).then(|| flash.slot(cluster, index))
    }

    /// Writes a page to its own place, if it can be programmed; says when that ends.
    pub(super) fn write_in_data(
        &mut self,
        flash: &mut Flash,
        write: PageWrite,
        at_ns: u64,
    ) -> Option<u64> {
        let (block, _) = self.place(write.page);
        if self.data[block as usize] == NONE {
            self.data[block as usize] = self.free.take();
        }
        let slot = self.place_in_data(flash, write.page)?;
        Some(self.program(flash, write, slot, at_ns))
    }

    /// Writes a page to the next slot of a log block.
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
        let (block, _) = self.place(write.page);
        let old = std::mem::replace(&mut self.slots[write.page as usize], slot);
        self.live_pages[block as usize] += u32::from(old == NONE);
        flash.program(slot, Spare { page: write.page, version: write.version }, at_ns)
    }

    /// Forgets a page. Whether it was the last of its logical block: then that has no data block
    /// any more, and its log block can go, too.
    pub(super) fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) -> bool {
        if std::mem::replace(&mut self.slots[page as usize], NONE) == NONE {
            return false;
        }
        flash.counters.host_pages_trimmed += 1;
        let (block, _) = self.place(page);
        self.live_pages[block as usize] -= 1;
        if self.live_pages[block as usize] > 0 {
            return false;
        }
        let data = std::mem::replace(&mut self.data[block as usize], NONE);
        self.erase(flash, data, at_ns);
        true
    }

    /// Pages of a clustered block that are the last version of theirs.
    fn live_in<'a>(&'a self, flash: &'a Flash, cluster: u32) -> impl Iterator<Item = u32> + 'a {
        (0..flash.filled(cluster)).filter_map(move |index| {
            let slot = flash.slot(cluster, index);
            let page = flash.spare(slot)?.page;
            (self.slots[page as usize] == slot).then_some(page)
        })
    }

    /// Makes a log block a part of the data in the cheapest way that there is.
    pub(super) fn merge(&mut self, flash: &mut Flash, log: Log, at_ns: u64) {
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

    /// Copies the last versions of a logical block's pages into a free block.
    pub(super) fn merge_full(&mut self, flash: &mut Flash, block: u32, at_ns: u64) {
        flash.counters.merges_full += 1;
        let cluster = self.free.take();
        let end_ns = self.copy_live(flash, block, 0, cluster, at_ns);
        self.replace_data(flash, block, cluster, end_ns);
        self.level(flash, at_ns);
    }

    /// Copies the last versions of the pages of `block` from `first` on to their places.
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

    /// Erases a block that holds nothing any more.
    pub(super) fn erase(&mut self, flash: &mut Flash, cluster: u32, at_ns: u64) {
        flash.erase(cluster, at_ns);
        self.erase_count += 1;
        self.free.put(cluster, flash.erases()[cluster as usize]);
    }

    /// Moves the least worn data block to the most worn free one, if they are far apart. Only one
    /// that has no log block's pages: a log block in order relies on its places being taken.
    fn level(&mut self, flash: &mut Flash, at_ns: u64) {
        let WearLevelling::Static { spread } = self.wear else { return };
        let interval = (self.data.len() as u32 / LEVELLING_PART).max(1);
        if !self.erase_count.is_multiple_of(interval) || self.free.len() <= MERGE_BLOCKS {
            return;
        }
        let wear = |cluster: u32| flash.erases()[cluster as usize];
        let used = (0..self.data.len() as u32).filter(|&b| self.data[b as usize] != NONE);
        let Some(rested) = used.min_by_key(|&b| wear(self.data[b as usize])) else { return };
        let Some(worn) = self.free.take_most_worn() else { return };
        let data = self.data[rested as usize];
        let logged = self.live_in(flash, data).count() < self.live_pages[rested as usize] as usize;
        if logged || wear(worn) <= wear(data).saturating_add(spread) {
            return self.free.put(worn, wear(worn));
        }
        flash.counters.wear_moves += 1;
        let end_ns = self.copy_live(flash, rested, 0, worn, at_ns);
        self.replace_data(flash, rested, worn, end_ns);
    }
}
