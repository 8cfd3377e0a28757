//! BAST: a block-mapped layer with log blocks of one logical block each (Kim et al., IEEE Trans.
//! Consumer Electronics 2002).
//!
//! A page that cannot be written to its position in the data block is appended to the log block of
//! its logical block. If no log block is left, the least recently written log block is merged.

use super::hybrid::{Hybrid, LogBlock};
use super::interface::{Ftl, PageWrite};
use super::layer::WearLevelling;
use crate::flash::Flash;
use crate::geometry::FlashGeometry;

/// BAST translation layer.
pub struct Bast {
    blocks: Hybrid,
    /// Log blocks, the most recently written last.
    logs: Vec<LogBlock>,
    log_blocks: u32,
}

impl Bast {
    /// Makes the layer of an erased device, with `log_blocks` log blocks.
    ///
    /// Returns `None` if `log_blocks` is zero or the device has too few spare blocks.
    pub fn new(geometry: &FlashGeometry, log_blocks: u32, wear: WearLevelling) -> Option<Bast> {
        let blocks = Hybrid::new(geometry, log_blocks, wear)?;
        (log_blocks > 0).then(|| Bast { blocks, logs: Vec::new(), log_blocks })
    }

    fn take_log(&mut self, block: u32) -> Option<LogBlock> {
        let no = self.logs.iter().rposition(|log| log.block == block)?;
        Some(self.logs.remove(no))
    }

    /// Takes the log block for the next page of `block` from the list, or makes a new one.
    fn log_for(&mut self, flash: &mut Flash, block: u32, at_ns: u64) -> LogBlock {
        match self.take_log(block) {
            Some(log) if flash.filled(log.cluster) < flash.cluster_pages() => return log,
            Some(full) => self.blocks.merge(flash, full, at_ns),
            None if self.logs.len() as u32 == self.log_blocks => {
                let least_recent = self.logs.remove(0);
                self.blocks.merge(flash, least_recent, at_ns);
            }
            None => {}
        }
        LogBlock { cluster: self.blocks.free.take(), block, in_order: true }
    }
}

impl Ftl for Bast {
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        if let Some(end_ns) = self.blocks.write_in_data(flash, write, at_ns) {
            return end_ns;
        }
        let (block, index) = self.blocks.position(write.page);
        let mut log = self.log_for(flash, block, at_ns);
        log.in_order &= index == flash.filled(log.cluster);
        let end_ns = self.blocks.append(flash, log.cluster, write, at_ns);
        self.logs.push(log);
        end_ns
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) {
        if self.blocks.trim(flash, page, at_ns) {
            let (block, _) = self.blocks.position(page);
            if let Some(log) = self.take_log(block) {
                self.blocks.erase(flash, log.cluster, at_ns);
            }
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
