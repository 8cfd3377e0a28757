//! BAST: block-mapped, with log blocks of one logical block each.
//!
//! Owns: which logical block has a log block (Kim et al., IEEE Trans. Consumer Electronics 2002).
//! Promises: the log block that was written to longest ago is given up first.
//! Never: holds more log blocks than it was given.

use super::hybrid::{Hybrid, Log};
use super::{Ftl, PageWrite, WearLevelling};
use crate::flash::Flash;
use crate::geometry::Geometry;

/// The BAST translation layer.
pub struct Bast {
    blocks: Hybrid,
    /// The log blocks, the one written to last at the end.
    logs: Vec<Log>,
    log_blocks: u32,
}

impl Bast {
    /// The layer of an erased device, with `log_blocks` log blocks; `None` if there is none or
    /// the spare blocks do not suffice.
    pub fn new(geometry: &Geometry, log_blocks: u32, wear: WearLevelling) -> Option<Bast> {
        let blocks = Hybrid::new(geometry, log_blocks, wear)?;
        (log_blocks > 0).then(|| Bast { blocks, logs: Vec::new(), log_blocks })
    }

    fn take_log(&mut self, block: u32) -> Option<Log> {
        let no = self.logs.iter().rposition(|log| log.block == block)?;
        Some(self.logs.remove(no))
    }

    /// The log block for the next page of `block`: its own, or a new one.
    fn log_for(&mut self, flash: &mut Flash, block: u32, at_ns: u64) -> Log {
        match self.take_log(block) {
            Some(log) if flash.filled(log.cluster) < flash.cluster_pages() => return log,
            Some(full) => self.blocks.merge(flash, full, at_ns),
            None if self.logs.len() as u32 == self.log_blocks => {
                let rested = self.logs.remove(0);
                self.blocks.merge(flash, rested, at_ns);
            }
            None => {}
        }
        Log { cluster: self.blocks.free.take(), block, in_order: true }
    }
}

impl Ftl for Bast {
    fn write(&mut self, flash: &mut Flash, write: PageWrite, at_ns: u64) -> u64 {
        if let Some(end_ns) = self.blocks.write_in_data(flash, write, at_ns) {
            return end_ns;
        }
        let (block, index) = self.blocks.place(write.page);
        let mut log = self.log_for(flash, block, at_ns);
        log.in_order &= index == flash.filled(log.cluster);
        let end_ns = self.blocks.append(flash, log.cluster, write, at_ns);
        self.logs.push(log);
        end_ns
    }

    fn trim(&mut self, flash: &mut Flash, page: u32, at_ns: u64) {
        if self.blocks.trim(flash, page, at_ns) {
            let (block, _) = self.blocks.place(page);
            if let Some(log) = self.take_log(block) {
                self.blocks.erase(flash, log.cluster, at_ns);
            }
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
