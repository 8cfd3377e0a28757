//! The blocks that a load writes, and how often.

use rustc_hash::FxHashMap;
use sfs_device::BLOCK_SIZE;

use super::{LoadAction, RequestLoad};

const BLOCK: u64 = BLOCK_SIZE as u64;

impl RequestLoad {
    /// Returns the number of writes to each block, by the index of the file and the number of the block in it. A block
    /// that is written in part is written.
    pub fn block_writes(&self) -> FxHashMap<(u32, u64), u32> {
        let mut counts = FxHashMap::default();
        for operation in &self.operations {
            if let LoadAction::Write { offset, len } = operation.action {
                for block in offset / BLOCK..(offset + len).div_ceil(BLOCK) {
                    *counts.entry((operation.file, block)).or_default() += 1;
                }
            }
        }
        counts
    }

    /// Returns the ranges of bytes that the load writes to files that it does not make, by file and offset, in whole
    /// blocks: the content that the files must have for a first write to be an overwrite.
    pub(crate) fn overwritten_ranges(&self) -> Vec<(u32, u64, u64)> {
        let counts = self.block_writes();
        let is_old = |(file, _): &&(u32, u64)| !self.files[*file as usize].is_made;
        let mut blocks: Vec<(u32, u64)> = counts.keys().filter(is_old).copied().collect();
        blocks.sort_unstable();
        let mut ranges: Vec<(u32, u64, u64)> = Vec::new();
        for (file, block) in blocks {
            match ranges.last_mut() {
                Some((last, start, len)) if *last == file && *start + *len == block * BLOCK => {
                    *len += BLOCK;
                }
                _ => ranges.push((file, block * BLOCK, BLOCK)),
            }
        }
        ranges
    }
}
