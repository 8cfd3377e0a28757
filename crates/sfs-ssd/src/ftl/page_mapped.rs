//! The page-mapped translation layer: an independent log with a cleaner in each gang.
//!
//! Page `p` always lives in gang `p % gangs` (static allocation; Agrawal et al., USENIX 2008, section 4.1).
//! Host writes are appended to the open block of their stream. When only the reserve of free blocks is left
//! in a gang, the layer cleans victims until a block is free. One clustered block of each gang is reserved
//! for cleaning, so that cleaning always succeeds.

use super::free::FreeBlocks;
use super::interface::{Ftl, PageWrite};
use super::layer::{Collection, Isolation, WearLevelling};
use super::victims::VictimQueue;
use crate::divisor::Divisor;
use crate::flash::{Flash, NONE, Spare};
use crate::geometry::FlashGeometry;

/// Number of free blocks of each gang that only cleaning may take.
const RESERVE_BLOCKS: u32 = 1;

/// Divisor of the number of a gang's blocks; the quotient is the interval of static wear levelling,
/// in erases.
const LEVELLING_FRACTION: u32 = 16;

/// Page-mapped translation layer.
pub struct PageMapped {
    /// Slot of the last version of each page.
    slots: Vec<u32>,
    /// State of each clustered block.
    blocks: Vec<EraseBlockState>,
    gangs: Vec<GangLog>,
    gang_count: Divisor,
    streams: u8,
    isolation: Isolation,
    wear: WearLevelling,
}

#[derive(Clone, Copy, Default)]
struct EraseBlockState {
    live_pages: u32,
    /// Index of the head that filled the block.
    head: u8,
}

/// Log of one gang.
struct GangLog {
    free: FreeBlocks,
    victims: VictimQueue,
    /// Open block of each stream, and that of cleaned pages under [`Isolation::Initial`].
    heads: Vec<u32>,
    erase_count: u32,
}

impl PageMapped {
    /// Makes the layer of an erased device.
    ///
    /// Returns `None` if the device has too few spare blocks for the open blocks of `streams` streams and
    /// the reserve, or if `streams` is zero.
    pub fn new(
        geometry: &FlashGeometry,
        collection: Collection,
        streams: u8,
        isolation: Isolation,
        wear: WearLevelling,
    ) -> Option<PageMapped> {
        let head_count = match isolation {
            Isolation::Initial => u32::from(streams) + 1,
            Isolation::Persistent => u32::from(streams),
        };
        let (gangs, clusters) = (geometry.gangs(), geometry.clusters());
        let needed = geometry.logical_clusters().div_ceil(gangs) + head_count + RESERVE_BLOCKS + 1;
        if streams == 0 || geometry.blocks < needed {
            return None;
        }
        let log_of = |gang| GangLog {
            free: FreeBlocks::new(wear, (gang..clusters).step_by(gangs as usize)),
            victims: VictimQueue::new(collection, clusters, geometry.cluster_pages()),
            heads: vec![NONE; head_count as usize],
            erase_count: 0,
        };
        Some(PageMapped {
            slots: vec![NONE; geometry.pages() as usize],
            blocks: vec![EraseBlockState::default(); clusters as usize],
            gangs: (0..gangs).map(log_of).collect(),
            gang_count: Divisor::new(gangs),
            streams,
            isolation,
            wear,
        })
    }

    fn gang_of(&self, page: u32) -> usize {
        self.gang_count.remainder(page) as usize
    }

    fn head_of(&self, stream: u8) -> usize {
        usize::from(stream.min(self.streams - 1))
    }

    /// Unmaps a page and returns whether it was mapped.
    fn unmap(&mut self, flash: &Flash, page: u32) -> bool {
        let slot = std::mem::replace(&mut self.slots[page as usize], NONE);
        if slot == NONE {
            return false;
        }
        let cluster = flash.cluster_of(slot);
        let block = &mut self.blocks[cluster as usize];
        block.live_pages -= 1;
        let live_pages = block.live_pages;
        let gang = self.gang_of(page);
        self.gangs[gang].victims.lower(cluster, live_pages);
        true
    }

    fn map(&mut self, flash: &Flash, page: u32, slot: u32) {
        self.slots[page as usize] = slot;
        self.blocks[flash.cluster_of(slot) as usize].live_pages += 1;
    }

    /// Returns the next slot of an open block; `None` if the block is full or none is open.
    fn next_slot(&self, flash: &Flash, gang: usize, head: usize) -> Option<u32> {
        let cluster = self.gangs[gang].heads[head];
        let filled = if cluster == NONE { NONE } else { flash.filled(cluster) };
        (filled < flash.cluster_pages()).then(|| flash.slot(cluster, filled))
    }

    /// Opens a free block in place of the full block of a head, which becomes a candidate for cleaning.
    ///
    /// Returns the first slot of the new block.
    fn open_block(&mut self, flash: &Flash, gang: usize, head: usize) -> u32 {
        let GangLog { free, victims, heads, .. } = &mut self.gangs[gang];
        let cluster = free.take();
        let full = std::mem::replace(&mut heads[head], cluster);
        if full != NONE {
            victims.add(full, self.blocks[full as usize].live_pages);
        }
        self.blocks[cluster as usize] = EraseBlockState { live_pages: 0, head: head as u8 };
        flash.slot(cluster, 0)
    }

    /// Returns the slot for a page of the host, after cleaning as many victims as this takes.
    fn host_slot(&mut self, flash: &mut Flash, gang: usize, head: usize, at_ns: u64) -> u32 {
        loop {
            if let Some(slot) = self.next_slot(flash, gang, head) {
                return slot;
            }
            if self.gangs[gang].free.len() > RESERVE_BLOCKS {
                return self.open_block(flash, gang, head);
            }
            self.clean_victim(flash, gang, at_ns);
        }
    }

    /// Moves the live pages of the next victim, and erases the victim.
    fn clean_victim(&mut self, flash: &mut Flash, gang: usize, at_ns: u64) {
        let victim = self.gangs[gang].victims.first().expect("a full device has full blocks");
        self.gangs[gang].victims.remove(victim);
        let head = match self.isolation {
            Isolation::Initial => usize::from(self.streams),
            Isolation::Persistent => usize::from(self.blocks[victim as usize].head),
        };
        let mut end_ns = at_ns;
        for index in 0..flash.filled(victim) {
            let from = flash.slot(victim, index);
            if let Some(page) = self.live_page(flash, from) {
                let to = self.next_slot(flash, gang, head);
                let to = to.unwrap_or_else(|| self.open_block(flash, gang, head));
                end_ns = end_ns.max(self.relocate(flash, page, from, to, at_ns));
            }
        }
        flash.counters.cleanings += 1;
        self.erase(flash, gang, victim, end_ns);
        self.level_wear(flash, gang, at_ns);
    }

    /// Returns the page whose last version is in a slot.
    fn live_page(&self, flash: &Flash, slot: u32) -> Option<u32> {
        let page = flash.spare(slot)?.page;
        (self.slots[page as usize] == slot).then_some(page)
    }

    fn relocate(&mut self, flash: &mut Flash, page: u32, from: u32, to: u32, at_ns: u64) -> u64 {
        self.blocks[flash.cluster_of(from) as usize].live_pages -= 1;
        self.map(flash, page, to);
        flash.copy(from, to, at_ns)
    }

    fn erase(&mut self, flash: &mut Flash, gang: usize, cluster: u32, at_ns: u64) {
        flash.erase(cluster, at_ns);
        let log = &mut self.gangs[gang];
        log.erase_count += 1;
        log.free.put(cluster, flash.erases()[cluster as usize]);
    }

    /// Moves the least worn full block to the most worn free block, if their erase counts differ enough.
    ///
    /// Data that never changes would otherwise keep its block from being erased.
    fn level_wear(&mut self, flash: &mut Flash, gang: usize, at_ns: u64) {
        let WearLevelling::Static { spread } = self.wear else { return };
        let interval = (flash.geometry().blocks / LEVELLING_FRACTION).max(1);
        if !self.gangs[gang].erase_count.is_multiple_of(interval) {
            return;
        }
        let gangs = self.gangs.len();
        let full = (gang as u32..self.blocks.len() as u32).step_by(gangs);
        let full = full.filter(|&cluster| self.gangs[gang].victims.has(cluster));
        let wear = |cluster: u32| flash.erases()[cluster as usize];
        let Some(least_worn) = full.min_by_key(|&cluster| wear(cluster)) else { return };
        let Some(most_worn) = self.gangs[gang].free.take_most_worn() else { return };
        if wear(most_worn) <= wear(least_worn).saturating_add(spread) {
            return self.gangs[gang].free.put(most_worn, wear(most_worn));
        }
        self.move_block(flash, gang, least_worn, most_worn, at_ns);
    }

    fn move_block(&mut self, flash: &mut Flash, gang: usize, full: u32, free: u32, at_ns: u64) {
        self.gangs[gang].victims.remove(full);
        self.blocks[free as usize] =
            EraseBlockState { live_pages: 0, ..self.blocks[full as usize] };
        let mut end_ns = at_ns;
        for index in 0..flash.filled(full) {
            let from = flash.slot(full, index);
            if let Some(page) = self.live_page(flash, from) {
                let to = flash.slot(free, flash.filled(free));
                end_ns = end_ns.max(self.relocate(flash, page, from, to, at_ns));
            }
        }
        flash.counters.wear_moves += 1;
        self.erase(flash, gang, full, end_ns);
        self.gangs[gang].victims.add(free, self.blocks[free as usize].live_pages);
    }
}

impl Ftl for PageMapped {
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        self.unmap(flash, write.page);
        let (gang, head) = (self.gang_of(write.page), self.head_of(write.stream));
        let slot = self.host_slot(flash, gang, head, at_ns);
        self.map(flash, write.page, slot);
        flash.program(slot, Spare { page: write.page, version: write.version }, at_ns)
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, _: u64) {
        if self.unmap(flash, page) {
            flash.counters.host_pages_trimmed += 1;
        }
    }

    fn slot(&self, page: u32) -> Option<u32> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(slot)
    }

    fn slot_next(&self, flash: &Flash, page: u32, stream: u8) -> Option<u32> {
        self.next_slot(flash, self.gang_of(page), self.head_of(stream))
    }

    fn clean(&mut self, flash: &mut Flash, low_permille: u32, at_ns: u64) -> bool {
        let free_blocks = |gang: usize| self.gangs[gang].free.len();
        let gang = (0..self.gangs.len()).min_by_key(|&gang| free_blocks(gang));
        let gang = gang.expect("a device has a gang");
        if free_blocks(gang) * 1000 >= low_permille * flash.geometry().blocks {
            return false;
        }
        let victim = self.gangs[gang].victims.first();
        let live_pages = |cluster: u32| self.blocks[cluster as usize].live_pages;
        if victim.is_none_or(|victim| live_pages(victim) == flash.cluster_pages()) {
            return false;
        }
        self.clean_victim(flash, gang, at_ns);
        true
    }
}
