//! A small device in memory whose copies share unchanged blocks.
//!
//! A copy costs one pointer for each block. Blocks that were never written read as zeros. Every request that
//! lies on the device succeeds.

use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use sfs_device::{BLOCK_SIZE, Block, Device, DeviceError, Geometry, Operation, Stream};

/// Bytes of a block without the alignment of [`Block`], which would double the allocation.
type BlockBytes = [u8; BLOCK_SIZE];

static ZERO: LazyLock<Arc<BlockBytes>> = LazyLock::new(|| Arc::new([0; BLOCK_SIZE]));

/// Device in memory with copy-on-write blocks.
#[derive(Debug)]
pub struct CowImage {
    geometry: Geometry,
    blocks: RwLock<Vec<Arc<BlockBytes>>>,
}

impl Clone for CowImage {
    fn clone(&self) -> Self {
        let blocks = RwLock::new(self.blocks.read().clone());
        Self { geometry: self.geometry.clone(), blocks }
    }
}

impl CowImage {
    /// Makes a device of `block_count` blocks of zeros.
    pub fn new(block_count: u64) -> Self {
        let geometry = Geometry {
            block_count,
            logical_block_size: 512,
            physical_block_size: BLOCK_SIZE as u32,
            discard_granularity: BLOCK_SIZE as u64,
            ..Geometry::default()
        };
        Self { geometry, blocks: RwLock::new(vec![ZERO.clone(); block_count as usize]) }
    }

    /// Changes the bytes of block `address`.
    ///
    /// # Panics
    ///
    /// If the block is past the end.
    pub fn edit(&self, address: u64, change: impl FnOnce(&mut BlockBytes)) {
        change(Arc::make_mut(&mut self.blocks.write()[address as usize]));
    }

    /// Writes zeros to `block_count` blocks from `address` on.
    pub fn clear(&self, address: u64, block_count: u64) {
        let range = address as usize..(address + block_count) as usize;
        self.blocks.write()[range].fill(ZERO.clone());
    }

    /// Writes `content` from `address` on.
    pub fn put(&self, address: u64, content: &[Block]) {
        let mut blocks = self.blocks.write();
        for (target, block) in blocks[address as usize..].iter_mut().zip(content) {
            *target = Arc::new(block.0);
        }
    }

    /// Returns whether block `address` has the same content in `other`.
    pub fn same_block(&self, other: &Self, address: u64) -> bool {
        let (block, others) = (self.block(address), other.block(address));
        Arc::ptr_eq(&block, &others) || block == others
    }

    /// Returns the bytes of block `address`.
    pub fn block(&self, address: u64) -> Arc<[u8; BLOCK_SIZE]> {
        self.blocks.read()[address as usize].clone()
    }
}

impl Device for CowImage {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, address: u64, buffer: &mut [Block]) -> Result<(), DeviceError> {
        self.geometry.check_range(Operation::Read, address, buffer.len() as u64)?;
        let blocks = self.blocks.read();
        for (block, target) in blocks[address as usize..].iter().zip(buffer) {
            target.0.copy_from_slice(&block[..]);
        }
        Ok(())
    }

    fn write(&self, address: u64, parts: &[&[Block]], _: Stream) -> Result<(), DeviceError> {
        let block_count = parts.iter().map(|part| part.len() as u64).sum();
        self.geometry.check_range(Operation::Write, address, block_count)?;
        let mut at = address;
        for part in parts {
            self.put(at, part);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, address: u64, count: u64) -> Result<(), DeviceError> {
        self.geometry.check_range(Operation::Discard, address, count)?;
        self.clear(address, count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_later_changes_of_the_original() {
        let image = CowImage::new(4);
        let block = Block([7; BLOCK_SIZE]);
        image.write(1, &[std::slice::from_ref(&block)], Stream(0)).expect("a write");
        let copy = image.clone();
        image.edit(1, |bytes| bytes[0] = 1);
        copy.discard(2, 2).expect("a discard");
        let mut found = Block::zeroed(4);
        copy.read(0, &mut found).expect("a read");
        assert_eq!(&found[..], &[Block::ZERO, block, Block::ZERO, Block::ZERO]);
        assert_eq!((image.block(1)[0], image.block(1)[1]), (1, 7));
    }

    #[test]
    fn requests_past_the_end_are_refused() {
        let image = CowImage::new(2);
        let error = image.discard(1, 2).expect_err("the range is past the end");
        assert_eq!(error.source.kind(), std::io::ErrorKind::InvalidInput);
    }
}
