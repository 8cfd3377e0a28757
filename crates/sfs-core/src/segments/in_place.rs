//! The allocator of blocks in InPlace segments: a bitmap, a scheme that chooses the segment, and pending frees.
//!
//! A bit for each block says whether the block is taken. A scheme of the FAST 2009 paper chooses the segment
//! of the next new block. A dead block stays taken until the chunk that records its death is durable, so no block
//! is reused before that. The usage table owns the allocator and changes the states of segments; the allocator
//! does not know which file a block belongs to, except that a scheme may choose by the inode number.

mod allocator;
mod bitmap;
mod clock;
mod greedy;
mod group;
mod scheme;
#[cfg(test)]
mod tests;

pub use allocator::AllocationMemory;
pub(crate) use allocator::InPlaceAllocator;
