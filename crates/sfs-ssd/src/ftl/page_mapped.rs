//! A page-mapped translation layer: a log in each gang, and a cleaner.
//!
//! Owns: the mapping of every page, the open blocks of every stream, the choice of victims.
//! Promises: one clustered block of each gang stays free for the cleaner; so it never gets stuck.
//! Never: moves a page to another gang: gang `page % gangs` has it (Agrawal et al., USENIX 2008,
//! section 4.1: static allocation).

use super::free::Free;
use super::victims::Victims;
use super::{Collection, Ftl, Isolation, PageWrite, WearLevelling};
use crate::divisor::Divisor;
use crate::flash::{Flash, NONE, Spare};
use crate::geometry::Geometry;

/// Free blocks that only the cleaner may take.
const RESERVE: u32 = 1;

/// Static wear levelling looks at a gang when this part of its blocks has been erased.
const LEVELLING_PART: u32 = 16;

/// A page-mapped translation layer.
pub struct PageMapped {
    slots: Vec<u32>,
    /// For each clustered block, its live pages, and which of the pool's open blocks it was.
    blocks: Vec<Block>,
    pools: Vec<Pool>,
    gangs: Divisor,
    streams: u8,
    isolation: Isolation,
    wear: WearLevelling,
}

#[derive(Clone, Copy, Default)]
struct Block {
    live_pages: u32,
    opened_as: u8,
}

/// What a gang has: the log is its own.
struct Pool {
    free: Free,
    victims: Victims,
    /// The open block of each stream, and of cleaned pages under [`Isolation::Initial`].
    open: Vec<u32>,
    erase_count: u32,
}

impl PageMapped {
    /// The layer of an erased device; `None` if the spare blocks do not suffice for the open
    /// blocks of `streams` streams and the reserve.
    pub fn new(
        geometry: &Geometry,
        collection: Collection,
        streams: u8,
        isolation: Isolation,
        wear: WearLevelling,
    ) -> Option<PageMapped> {
        let open_count = match isolation {
            Isolation::Initial => u32::from(streams) + 1,
            Isolation::Persistent => u32::from(streams),
        };
        let (gangs, clusters) = (geometry.gangs(), geometry.clusters());
        let needed = geometry.logical_clusters().div_ceil(gangs) + open_count + RESERVE + 1;
        if streams == 0 || geometry.blocks < needed {
            return None;
        }
        let pool = |gang| Pool {
            free: Free::new(wear, (gang..clusters).step_by(gangs as usize)),
            victims: Victims::new(collection, clusters, geometry.cluster_pages()),
            open: vec![NONE; open_count as usize],
            erase_count: 0,
        };
        Some(PageMapped {
            slots: vec![NONE; geometry.pages() as usize],
            blocks: vec![Block::default(); clusters as usize],
            pools: (0..gangs).map(pool).collect(),
            gangs: Divisor::new(gangs),
            streams,
            isolation,
            wear,
        })
    }

    fn pool_of(&self, page: u32) -> usize {
        self.gangs.remainder(page) as usize
    }

    fn open_of(&self, stream: u8) -> usize {
        usize::from(stream.min(self.streams - 1))
    }

    /// The last version of a page is dead. Whether there was one.
    fn forget(&mut self, flash: &Flash, page: u32) -> bool {
        let slot = std::mem::replace(&mut self.slots[page as usize], NONE);
        if slot == NONE {
            return false;
        }
        let cluster = flash.cluster_of(slot);
        let block = &mut self.blocks[cluster as usize];
        block.live_pages -= 1;
        let live_pages = block.live_pages;
        let pool = self.pool_of(page);
        self.pools[pool].victims.lower(cluster, live_pages);
        true
    }

    fn remember(&mut self, flash: &Flash, page: u32, slot: u32) {
        self.slots[page as usize] = slot;
        self.blocks[flash.cluster_of(slot) as usize].live_pages += 1;
    }

    /// The next slot of an open block; `None` if it is full, or there is none.
    fn room(&self, flash: &Flash, pool: usize, open: usize) -> Option<u32> {
        let cluster = self.pools[pool].open[open];
        let filled = if cluster == NONE { NONE } else { flash.filled(cluster) };
        (filled < flash.cluster_pages()).then(|| flash.slot(cluster, filled))
    }

    /// Puts a free block in the place of a full one.
    fn open(&mut self, flash: &Flash, pool: usize, open: usize) -> u32 {
        let Pool { free, victims, open: opened, .. } = &mut self.pools[pool];
        let cluster = free.take();
        let full = std::mem::replace(&mut opened[open], cluster);
        if full != NONE {
            victims.add(full, self.blocks[full as usize].live_pages);
        }
        self.blocks[cluster as usize] = Block { live_pages: 0, opened_as: open as u8 };
        flash.slot(cluster, 0)
    }

    /// A slot for the host, after as much cleaning as that takes.
    fn host_slot(&mut self, flash: &mut Flash, pool: usize, open: usize, at_ns: u64) -> u32 {
        loop {
            if let Some(slot) = self.room(flash, pool, open) {
                return slot;
            }
            if self.pools[pool].free.len() > RESERVE {
                return self.open(flash, pool, open);
            }
            self.clean_victim(flash, pool, at_ns);
        }
    }

    /// Moves what lives in the next victim, and erases it.
    fn clean_victim(&mut self, flash: &mut Flash, pool: usize, at_ns: u64) {
        let victim = self.pools[pool].victims.first().expect("a full device has full blocks");
        self.pools[pool].victims.remove(victim);
        let open = match self.isolation {
            Isolation::Initial => usize::from(self.streams),
            Isolation::Persistent => usize::from(self.blocks[victim as usize].opened_as),
        };
        let mut end_ns = at_ns;
        for index in 0..flash.filled(victim) {
            let from = flash.slot(victim, index);
            if let Some(page) = self.live(flash, from) {
                let to = self.room(flash, pool, open);
                let to = to.unwrap_or_else(|| self.open(flash, pool, open));
                end_ns = end_ns.max(self.relocate(flash, page, from, to, at_ns));
            }
        }
        flash.counters.cleanings += 1;
        self.erase(flash, pool, victim, end_ns);
        self.level(flash, pool, at_ns);
    }

    /// The page that lives in a slot.
    fn live(&self, flash: &Flash, slot: u32) -> Option<u32> {
        let page = flash.spare(slot)?.page;
        (self.slots[page as usize] == slot).then_some(page)
    }

    fn relocate(&mut self, flash: &mut Flash, page: u32, from: u32, to: u32, at_ns: u64) -> u64 {
        self.blocks[flash.cluster_of(from) as usize].live_pages -= 1;
        self.remember(flash, page, to);
        flash.copy(from, to, at_ns)
    }

    fn erase(&mut self, flash: &mut Flash, pool: usize, cluster: u32, at_ns: u64) {
        flash.erase(cluster, at_ns);
        let pool = &mut self.pools[pool];
        pool.erase_count += 1;
        pool.free.put(cluster, flash.erases()[cluster as usize]);
    }

    /// Moves what lies in the least worn full block to the most worn free one, if they are far
    /// apart: data that never changes keeps its block from wearing.
    fn level(&mut self, flash: &mut Flash, pool: usize, at_ns: u64) {
        let WearLevelling::Static { spread } = self.wear else { return };
        let interval = (flash.geometry().blocks / LEVELLING_PART).max(1);
        if !self.pools[pool].erase_count.is_multiple_of(interval) {
            return;
        }
        let gangs = self.pools.len();
        let full = (pool as u32..self.blocks.len() as u32).step_by(gangs);
        let full = full.filter(|&cluster| self.pools[pool].victims.has(cluster));
        let wear = |cluster: u32| flash.erases()[cluster as usize];
        let Some(rested) = full.min_by_key(|&cluster| wear(cluster)) else { return };
        let Some(worn) = self.pools[pool].free.take_most_worn() else { return };
        if wear(worn) <= wear(rested).saturating_add(spread) {
            return self.pools[pool].free.put(worn, wear(worn));
        }
        self.exchange(flash, pool, rested, worn, at_ns);
    }

    fn exchange(&mut self, flash: &mut Flash, pool: usize, full: u32, free: u32, at_ns: u64) {
        self.pools[pool].victims.remove(full);
        self.blocks[free as usize] = Block { live_pages: 0, ..self.blocks[full as usize] };
        let mut end_ns = at_ns;
        for index in 0..flash.filled(full) {
            let from = flash.slot(full, index);
            if let Some(page) = self.live(flash, from) {
                let to = flash.slot(free, flash.filled(free));
                end_ns = end_ns.max(self.relocate(flash, page, from, to, at_ns));
            }
        }
        flash.counters.wear_moves += 1;
        self.erase(flash, pool, full, end_ns);
        self.pools[pool].victims.add(free, self.blocks[free as usize].live_pages);
    }
}

impl Ftl for PageMapped {
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        self.forget(flash, write.page);
        let (pool, open) = (self.pool_of(write.page), self.open_of(write.stream));
        let slot = self.host_slot(flash, pool, open, at_ns);
        self.remember(flash, write.page, slot);
        flash.program(slot, Spare { page: write.page, version: write.version }, at_ns)
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, _: u64) {
        if self.forget(flash, page) {
            flash.counters.host_pages_trimmed += 1;
        }
    }

    fn slot(&self, page: u32) -> Option<u32> {
        let slot = self.slots[page as usize];
        (slot != NONE).then_some(slot)
    }

    fn slot_next(&self, flash: &Flash, page: u32, stream: u8) -> Option<u32> {
        self.room(flash, self.pool_of(page), self.open_of(stream))
    }

    fn clean(&mut self, flash: &mut Flash, low_permille: u32, at_ns: u64) -> bool {
        let free = |pool: &Pool| pool.free.len();
        let neediest = (0..self.pools.len()).min_by_key(|&pool| free(&self.pools[pool]));
        let pool = neediest.expect("a device has a gang");
        if free(&self.pools[pool]) * 1000 >= low_permille * flash.geometry().blocks {
            return false;
        }
        let victim = self.pools[pool].victims.first();
        let lives = |cluster: u32| self.blocks[cluster as usize].live_pages;
        if victim.is_none_or(|victim| lives(victim) == flash.cluster_pages()) {
            return false;
        }
        self.clean_victim(flash, pool, at_ns);
        true
    }
}
