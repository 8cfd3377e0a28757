//! A hybrid layer with a bound on associativity: a log block takes the pages of one superblock, a run of adjacent
//! logical blocks.
//!
//! This is between BAST, whose log blocks take pages of one logical block, and FAST, whose log blocks take pages of any.
//! So a merge copies at most the logical blocks of a superblock, and scattered writes within a superblock share a
//! log block. After Kang et al., "A superblock-based flash translation layer for NAND flash memory" (EMSOFT 2006),
//! and Park et al., "A reconfigurable FTL architecture for NAND flash-based applications" (TECS 2008), without the
//! page mapping within a superblock of the former. If no log block is left, the least recently written one is merged.

use super::hybrid::{Hybrid, LogBlock};
use super::interface::{Ftl, PageWrite};
use super::layer::WearLevelling;
use crate::flash::Flash;
use crate::geometry::FlashGeometry;

/// Translation layer with superblocks.
pub struct Superblock {
    mapped: Hybrid,
    /// Log blocks, the least recently written one first. A superblock has at most one. `block` is the logical block
    /// of the first page, the only one in the log while the log is in order.
    logs: Vec<LogBlock>,
    log_blocks: u32,
    /// Number of logical blocks of a superblock.
    width: u32,
}

impl Superblock {
    /// Maps an erased device; returns `None` if it has too few spare blocks, there are no log blocks, or superblocks
    /// are empty.
    pub fn new(
        geometry: &FlashGeometry,
        log_blocks: u32,
        width: u32,
        wear: WearLevelling,
    ) -> Option<Superblock> {
        let mapped = Hybrid::new(geometry, log_blocks, wear)?;
        (log_blocks > 0 && width > 0).then(|| Superblock {
            mapped,
            logs: Vec::new(),
            log_blocks,
            width,
        })
    }

    /// Removes and returns the log block of the superblock of `block`.
    fn take_log(&mut self, block: u32) -> Option<LogBlock> {
        let superblock = block / self.width;
        let no = self.logs.iter().rposition(|log| log.block / self.width == superblock)?;
        Some(self.logs.remove(no))
    }

    /// Returns a log block with a free slot for a page of `block`, after a merge if necessary.
    fn log_for(&mut self, flash: &mut Flash, block: u32, at_ns: u64) -> LogBlock {
        match self.take_log(block) {
            Some(log) if flash.filled(log.cluster) < flash.cluster_pages() => return log,
            Some(full) => self.merge(flash, full, at_ns),
            None if self.logs.len() as u32 == self.log_blocks => {
                let least_recent = self.logs.remove(0);
                self.merge(flash, least_recent, at_ns);
            }
            None => {}
        }
        LogBlock { cluster: self.mapped.free.take(), block, in_order: true }
    }

    /// Merges a log block with the data blocks of its pages, at most a superblock's.
    fn merge(&mut self, flash: &mut Flash, log: LogBlock, at_ns: u64) {
        match log.in_order {
            true => self.mapped.merge(flash, log, at_ns),
            false => {
                self.mapped.merge_live(flash, log.cluster, at_ns, |_, _, _| ());
                self.mapped.erase(flash, log.cluster, at_ns);
            }
        }
    }
}

impl Ftl for Superblock {
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        if let Some(end_ns) = self.mapped.write_in_data(flash, write, at_ns) {
            return end_ns;
        }
        let (block, index) = self.mapped.position(write.page);
        let mut log = self.log_for(flash, block, at_ns);
        log.in_order &= block == log.block && index == flash.filled(log.cluster);
        let end_ns = self.mapped.append(flash, log.cluster, write, at_ns);
        self.logs.push(log);
        end_ns
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) {
        if !self.mapped.trim(flash, page, at_ns) {
            return;
        }
        // A log in order has pages of this logical block only; another one is merged by its live pages.
        let (block, _) = self.mapped.position(page);
        let no = self.logs.iter().position(|log| log.in_order && log.block == block);
        if let Some(no) = no {
            let log = self.logs.remove(no);
            self.mapped.erase(flash, log.cluster, at_ns);
        }
    }

    fn slot(&self, page: u32) -> Option<u32> {
        self.mapped.slot(page)
    }

    fn slot_next(&self, flash: &Flash, page: u32, _: u8) -> Option<u32> {
        self.mapped.slot_in_data(flash, page)
    }

    fn clean(&mut self, _: &mut Flash, _: u32, _: u64) -> bool {
        false
    }
}
