//! Blocks of memory: definition, allocation, comparison and formatting.
//!
//! Every block is aligned to its size, as direct I/O demands. Allocated blocks are zero.

use std::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Size of a block in bytes; every address in SFS counts blocks.
pub const BLOCK_SIZE: usize = 4096;

/// One block of memory, aligned for direct I/O.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_SIZE]);

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; BLOCK_SIZE]);

    /// Allocates `count` adjacent blocks of zeros on the heap.
    ///
    /// # Panics
    ///
    /// If the allocation fails.
    pub fn zeroed(count: usize) -> Box<[Block]> {
        <[Block]>::new_box_zeroed_with_elems(count).expect("memory for blocks")
    }

    /// Views `blocks` as one slice of bytes.
    pub fn bytes_of(blocks: &[Block]) -> &[u8] {
        blocks.as_bytes()
    }

    /// Views `blocks` as one mutable slice of bytes.
    pub fn bytes_of_mut(blocks: &mut [Block]) -> &mut [u8] {
        blocks.as_mut_bytes()
    }

    /// Views the beginning of `memory` as the whole blocks that hold `len` bytes of a file from byte `offset` on.
    ///
    /// Returns `None` if `offset` is not a multiple of the block size, or if `memory` is too short
    /// or not aligned. A reader then has to copy.
    pub fn room_for(offset: u64, len: usize, memory: &mut [u8]) -> Option<&mut [Block]> {
        if !offset.is_multiple_of(BLOCK_SIZE as u64) {
            return None;
        }
        let whole = memory.get_mut(..len.checked_next_multiple_of(BLOCK_SIZE)?)?;
        <[Block]>::mut_from_bytes(whole).ok()
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

/// Prints the first eight bytes only, because a whole block would fill pages.
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
    fn room_for_views_whole_blocks_at_the_beginning_of_memory() {
        let mut memory = Block::zeroed(3);
        let memory = Block::bytes_of_mut(&mut memory);
        let room = |offset, len, memory: &mut [u8]| {
            Block::room_for(offset, len, memory).map(|room| room.len())
        };
        assert_eq!(room(0, 0, memory), Some(0));
        assert_eq!(room(0, 1, memory), Some(1));
        assert_eq!(room(4096, 4096, memory), Some(1));
        assert_eq!(room(u64::MAX - 4095, 4097, memory), Some(2));
        assert_eq!(room(0, 3 * BLOCK_SIZE, memory), Some(3));

        assert_eq!(room(1, 1, memory), None, "no block begins at 1");
        assert_eq!(room(0, 3 * BLOCK_SIZE + 1, memory), None, "the memory is too short");
        assert_eq!(room(0, usize::MAX, memory), None, "the rounded length overflows");
        assert_eq!(
            room(0, 1, &mut memory[..BLOCK_SIZE - 1]),
            None,
            "the memory is shorter than a block"
        );
        assert_eq!(room(0, 1, &mut memory[8..]), None, "the memory is not aligned");

        Block::room_for(4096, 1, memory).unwrap()[0].0.fill(7);
        assert_eq!((memory[0], memory[BLOCK_SIZE - 1], memory[BLOCK_SIZE]), (7, 7, 0));
    }

    #[test]
    fn debug_output_is_one_short_line() {
        assert_eq!(format!("{:?}", Block::ZERO), "Block([00, 00, 00, 00, 00, 00, 00, 00]..)");
    }
}
