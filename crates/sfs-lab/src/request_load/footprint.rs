//! The blocks that a load writes, and how often.

use rustc_hash::{FxHashMap, FxHashSet};
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

    /// Returns the largest number of bytes, in whole blocks, that files which the load makes have at the same time.
    pub fn new_bytes_max(&self) -> u64 {
        let mut files: FxHashMap<u32, FxHashSet<u64>> = FxHashMap::default();
        let (mut blocks, mut blocks_max) = (0, 0);
        for operation in &self.operations {
            let file = operation.file;
            if !self.files.get(file as usize).is_some_and(|file| file.is_made) {
                continue;
            }
            let live = files.entry(file).or_default();
            let before = live.len();
            match operation.action {
                LoadAction::Write { offset, len } => {
                    live.extend(offset / BLOCK..(offset + len).div_ceil(BLOCK));
                }
                LoadAction::Truncate { size } => live.retain(|block| block * BLOCK < size),
                LoadAction::Delete => live.clear(),
                _ => continue,
            }
            blocks = blocks + live.len() - before;
            blocks_max = blocks_max.max(blocks);
        }
        blocks_max as u64 * BLOCK
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_files_count_while_they_exist() {
        let lines = "1,write,5,0,40960,0,0,0\n2,create,9,0,0,0,0,1\n3,write,9,4096,8192,0,0,0\n\
                     4,create,10,0,0,0,0,1\n5,write,10,0,1,0,0,0\n6,truncate,9,5000,0,0,0,0\n\
                     7,unlink,10,0,0,0,0,1\n8,write,9,4096,8192,0,0,0\n";
        let heading = sfs_trace::TraceProperties::default();
        let load = RequestLoad::parse(&format!("{heading}{lines}")).expect("a trace");
        assert_eq!(load.new_bytes_max(), 3 * BLOCK);
        assert_eq!(load.overwritten_ranges(), [(0, 0, 40960)]);
        assert_eq!(load.block_writes()[&(1, 2)], 2);
    }
}
