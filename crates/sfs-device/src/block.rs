//! Memory for blocks.
//!
//! Owns: how blocks are allocated, compared and shown.
//! Promises: every block is aligned to its size and starts as zeros.
//! Never: touches a device.

use std::fmt;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::{BLOCK_SIZE, Block};

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; BLOCK_SIZE]);

    /// `count` blocks of zeros, next to each other on the heap.
    ///
    /// # Panics
    ///
    /// When there is no memory left.
    pub fn zeroed(count: usize) -> Box<[Block]> {
        <[Block]>::new_box_zeroed_with_elems(count).expect("memory for blocks")
    }

    /// The bytes of `blocks`, one after the other.
    pub fn bytes_of(blocks: &[Block]) -> &[u8] {
        blocks.as_bytes()
    }

    /// The bytes of `blocks`, one after the other, to be changed.
    pub fn bytes_of_mut(blocks: &mut [Block]) -> &mut [u8] {
        blocks.as_mut_bytes()
    }

    /// The blocks that `bytes` are; `None` if they are not whole ones, or not aligned.
    pub fn in_bytes_mut(bytes: &mut [u8]) -> Option<&mut [Block]> {
        <[Block]>::mut_from_bytes(bytes).ok()
    }
}

impl Default for Block {
    fn default() -> Block {
        Block::ZERO
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Block) -> bool {
        self.0 == other.0
    }
}

impl Eq for Block {}

/// Shows the first bytes only: a block is too long for a line.
impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({:02x?}..)", &self.0[..8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroed_blocks_are_aligned_and_zero() {
        let blocks = Block::zeroed(3);
        assert_eq!(blocks.as_ptr().addr() % BLOCK_SIZE, 0);
        assert_eq!(&blocks[..], &[Block::ZERO, Block::ZERO, Block::ZERO]);
        assert_eq!(Block::bytes_of(&blocks).len(), 3 * BLOCK_SIZE);
        assert!(Block::zeroed(0).is_empty());
    }

    #[test]
    fn debug_is_short() {
        assert_eq!(format!("{:?}", Block::ZERO), "Block([00, 00, 00, 00, 00, 00, 00, 00]..)");
    }
}
