//! Content of a file in the model, stored as sparse blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of a block, in bytes.
pub const BLOCK: u64 = 4096;

static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// Content of a file. Bytes outside the stored blocks are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileContent {
    /// Length in bytes.
    pub size: u64,
    /// Written blocks by their number; bytes beyond the length are zero.
    pub blocks: BTreeMap<u32, Arc<Vec<u8>>>,
}

impl FileContent {
    /// Writes `bytes` at `offset`, and extends the length if necessary.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let start = (at % BLOCK) as usize;
            let len = rest.len().min(BLOCK as usize - start);
            let block = self.blocks.entry((at / BLOCK) as u32).or_insert_with(zeros);
            Arc::make_mut(block)[start..start + len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            at += len as u64;
        }
        self.size = self.size.max(at);
    }

    /// Sets the length to `size` bytes.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            drop(self.blocks.split_off(&(size.div_ceil(BLOCK) as u32)));
            let tail = (size % BLOCK) as usize;
            if let Some(block) = self.blocks.get_mut(&((size / BLOCK) as u32)) {
                Arc::make_mut(block)[tail..].fill(0);
            }
        }
        self.size = size;
    }

    /// Makes the bytes in `from..to` zero.
    pub fn punch(&mut self, from: u64, to: u64) {
        let blocks = (from / BLOCK) as u32..=((to - 1) / BLOCK) as u32;
        for (no, block) in self.blocks.range_mut(blocks.clone()) {
            let start = u64::from(*no) * BLOCK;
            let (first, last) = (from.max(start) - start, to.min(start + BLOCK) - start);
            Arc::make_mut(block)[first as usize..last as usize].fill(0);
        }
        self.blocks.retain(|no, block| !blocks.contains(no) || block.iter().any(|byte| *byte != 0));
    }

    /// Stores zeros in the missing blocks of `from..to`, so that the file counts with the space that is kept for it.
    pub fn reserve(&mut self, from: u64, to: u64) {
        for block in (from / BLOCK) as u32..=((to - 1) / BLOCK) as u32 {
            self.blocks.entry(block).or_insert_with(zeros);
        }
    }

    /// Reads up to `len` bytes from `offset` on.
    pub fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = len.min(self.size.saturating_sub(offset) as usize);
        let mut bytes = vec![0; len];
        if len == 0 {
            return bytes;
        }
        let end = offset + len as u64;
        let blocks = (offset / BLOCK) as u32..=((end - 1) / BLOCK) as u32;
        for (block, content) in self.blocks.range(blocks) {
            let start = u64::from(*block) * BLOCK;
            let (from, to) = (start.max(offset), (start + BLOCK).min(end));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&content[(from - start) as usize..(to - start) as usize]);
        }
        bytes
    }

    /// Returns the bytes of block `block`, zeros if the block was not written.
    pub fn block(&self, block: u32) -> &[u8] {
        self.blocks.get(&block).map_or(&ZEROS, |bytes| &bytes[..])
    }

    /// Returns whether all bytes in `from..to` are zero.
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        let to = to.min(self.size);
        if from >= to {
            return true;
        }
        let blocks = (from / BLOCK) as u32..=((to - 1) / BLOCK) as u32;
        self.blocks.range(blocks).all(|(block, bytes)| {
            let start = u64::from(*block) * BLOCK;
            let (first, last) = (from.max(start) - start, to.min(start + BLOCK) - start);
            bytes[first as usize..last as usize].iter().all(|byte| *byte == 0)
        })
    }
}

fn zeros() -> Arc<Vec<u8>> {
    Arc::new(vec![0; BLOCK as usize])
}
