//! FAST: a block-mapped layer whose log blocks take pages of any logical block (Lee et al., TECS 2007).
//!
//! One log block takes sequential writes of one logical block; a queue of random log blocks takes all other
//! pages. Merges follow the paper. Where the paper is silent, two rules are added. A sequential log block
//! that does not begin with the first page of its logical block is merged in full. A full merge of a logical
//! block also erases its sequential log block.

use std::collections::VecDeque;

use super::hybrid::{Hybrid, LogBlock};
use super::interface::{Ftl, PageWrite};
use super::layer::WearLevelling;
use crate::flash::Flash;
use crate::geometry::FlashGeometry;

/// FAST translation layer.
pub struct Fast {
    blocks: Hybrid,
    /// Log block of sequential writes, and the index of the next page in its logical block.
    sequential: Option<(LogBlock, u32)>,
    /// Random log blocks, the oldest first.
    random: VecDeque<u32>,
    log_blocks: u32,
}

impl Fast {
    /// Makes the layer of an erased device, with `log_blocks` random log blocks besides the sequential one.
    ///
    /// Returns `None` if `log_blocks` is zero or the device has too few spare blocks.
    pub fn new(geometry: &FlashGeometry, log_blocks: u32, wear: WearLevelling) -> Option<Fast> {
        let blocks = Hybrid::new(geometry, log_blocks + 1, wear)?;
        (log_blocks > 0).then(|| Fast {
            blocks,
            sequential: None,
            random: VecDeque::new(),
            log_blocks,
        })
    }

    /// Merges the sequential log block with its data block.
    fn merge_sequential(&mut self, flash: &mut Flash, at_ns: u64) {
        if let Some((log, _)) = self.sequential.take() {
            self.blocks.merge(flash, log, at_ns);
        }
    }

    /// Merges the sequential log block and opens a new one with this page.
    fn begin_sequential(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        self.merge_sequential(flash, at_ns);
        let (block, index) = self.blocks.position(write.page);
        let log = LogBlock { cluster: self.blocks.free.take(), block, in_order: index == 0 };
        self.sequential = Some((log, index + 1));
        self.blocks.append(flash, log.cluster, write, at_ns)
    }

    /// Appends a page to the newest random log block, or to a new one.
    fn append_random(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        let has_free_slot = |cluster: &&u32| flash.filled(**cluster) < flash.cluster_pages();
        let newest = self.random.back().filter(has_free_slot).copied();
        let cluster = newest.unwrap_or_else(|| self.open_random(flash, at_ns));
        self.blocks.append(flash, cluster, write, at_ns)
    }

    fn open_random(&mut self, flash: &mut Flash, at_ns: u64) -> u32 {
        if self.random.len() as u32 == self.log_blocks {
            self.reclaim(flash, at_ns);
        }
        let cluster = self.blocks.free.take();
        self.random.push_back(cluster);
        cluster
    }

    /// Merges every logical block with a live page in the oldest random log block, and erases the log block.
    fn reclaim(&mut self, flash: &mut Flash, at_ns: u64) {
        let oldest = self.random.pop_front().expect("all log blocks are in use");
        let sequential = &mut self.sequential;
        self.blocks.merge_live(flash, oldest, at_ns, |blocks, flash, block| {
            if let Some((log, _)) = sequential.take_if(|(log, _)| log.block == block) {
                blocks.erase(flash, log.cluster, at_ns);
            }
        });
        self.blocks.erase(flash, oldest, at_ns);
    }

    /// Erases the sequential log block if it belongs to `block`, none of whose pages is live there any more.
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
        let (block, index) = self.blocks.position(write.page);
        match &mut self.sequential {
            _ if index == 0 => self.begin_sequential(flash, write, at_ns),
            Some((log, next)) if log.block == block && *next == index => {
                *next += 1;
                self.blocks.append(flash, log.cluster, write, at_ns)
            }
            Some((log, _)) if log.block == block => self.begin_sequential(flash, write, at_ns),
            _ => self.append_random(flash, write, at_ns),
        }
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) {
        if self.blocks.trim(flash, page, at_ns) {
            let (block, _) = self.blocks.position(page);
            self.drop_sequential(flash, block, at_ns);
        }
    }

    fn slot(&self, page: u32) -> Option<u32> {
        self.blocks.slot(page)
    }

    fn slot_next(&self, flash: &Flash, page: u32, _: u8) -> Option<u32> {
        self.blocks.slot_in_data(flash, page)
    }

    fn clean(&mut self, _: &mut Flash, _: u32, _: u64) -> bool {
        false
    }
}
