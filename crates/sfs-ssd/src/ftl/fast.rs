//! FAST: block-mapped, with log blocks that pages of any logical block go to.
//!
//! Owns: the sequential log block and the queue of random ones (Lee et al., TECS 2007).
//! Promises: merges in the order of that paper, with two things said where it is silent: a log
//! block of sequential writes that did not begin at its first page is merged in full, and a full
//! merge also empties the sequential log block of the same logical block.
//! Never: holds more log blocks than it was given.

use std::collections::VecDeque;

use super::hybrid::{Hybrid, Log};
use super::{Ftl, PageWrite, WearLevelling};
use crate::flash::Flash;
use crate::geometry::Geometry;

/// The FAST translation layer.
pub struct Fast {
    blocks: Hybrid,
    /// The log block for sequential writes; and the page of its logical block that comes next.
    sequential: Option<(Log, u32)>,
    /// Log blocks for the rest, the oldest first.
    random: VecDeque<u32>,
    log_blocks: u32,
}

impl Fast {
    /// The layer of an erased device, with `log_blocks` random log blocks beside the sequential
    /// one; `None` if there is none or the spare blocks do not suffice.
    pub fn new(geometry: &Geometry, log_blocks: u32, wear: WearLevelling) -> Option<Fast> {
        let blocks = Hybrid::new(geometry, log_blocks + 1, wear)?;
        (log_blocks > 0).then(|| Fast {
            blocks,
            sequential: None,
            random: VecDeque::new(),
            log_blocks,
        })
    }

    /// Empties the sequential log block.
    fn merge_sequential(&mut self, flash: &mut Flash, at_ns: u64) {
        if let Some((log, _)) = self.sequential.take() {
            self.blocks.merge(flash, log, at_ns);
        }
    }

    /// Begins a sequential log block with this page.
    fn begin(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        self.merge_sequential(flash, at_ns);
        let (block, index) = self.blocks.place(write.page);
        let log = Log { cluster: self.blocks.free.take(), block, in_order: index == 0 };
        self.sequential = Some((log, index + 1));
        self.blocks.append(flash, log.cluster, write, at_ns)
    }

    /// Adds to the random log.
    fn scatter(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        let room = |cluster: &&u32| flash.filled(**cluster) < flash.cluster_pages();
        let newest = self.random.back().filter(room).copied();
        let cluster = newest.unwrap_or_else(|| self.open(flash, at_ns));
        self.blocks.append(flash, cluster, write, at_ns)
    }

    fn open(&mut self, flash: &mut Flash, at_ns: u64) -> u32 {
        if self.random.len() as u32 == self.log_blocks {
            self.reclaim(flash, at_ns);
        }
        let cluster = self.blocks.free.take();
        self.random.push_back(cluster);
        cluster
    }

    /// Merges every logical block that has a last version in the oldest log block, and erases it.
    fn reclaim(&mut self, flash: &mut Flash, at_ns: u64) {
        let oldest = self.random.pop_front().expect("a log that is full");
        for index in 0..flash.filled(oldest) {
            let slot = flash.slot(oldest, index);
            let page = flash.spare(slot).expect("a programmed slot").page;
            if self.blocks.slot(page) == Some(slot) {
                let (block, _) = self.blocks.place(page);
                self.blocks.merge_full(flash, block, at_ns);
                self.drop_sequential(flash, block, at_ns);
            }
        }
        self.blocks.erase(flash, oldest, at_ns);
    }

    /// Nothing lives in the sequential log block of `block` any more.
    fn drop_sequential(&mut self, flash: &mut Flash, block: u32, at_ns: u64) {
        if let Some((log, _)) = self.sequential.take_if(|(log, _)| log.block == block) {
            self.blocks.erase(flash, log.cluster, at_ns);
        }
    }
}

impl Ftl for Fast {
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        if let Some(end_ns) = self.blocks.write_in_data(flash, write, at_ns) {
            return end_ns;
        }
        let (block, index) = self.blocks.place(write.page);
        match &mut self.sequential {
            _ if index == 0 => self.begin(flash, write, at_ns),
            Some((log, next)) if log.block == block && *next == index => {
                *next += 1;
                self.blocks.append(flash, log.cluster, write, at_ns)
            }
            Some((log, _)) if log.block == block => self.begin(flash, write, at_ns),
            _ => self.scatter(flash, write, at_ns),
        }
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) {
        if self.blocks.trim(flash, page, at_ns) {
            let (block, _) = self.blocks.place(page);
            self.drop_sequential(flash, block, at_ns);
        }
    }

    fn slot(&self, page: u32) -> Option<u32> {
        self.blocks.slot(page)
    }

    fn slot_next(&self, flash: &Flash, page: u32, _: u8) -> Option<u32> {
        self.blocks.place_in_data(flash, page)
    }

    fn clean(&mut self, _: &mut Flash, _: u32, _: u64) -> bool {
        false
    }
}
