//! Copies of a medium's blocks that are read faster than the medium.
//!
//! A copy may be missing, old or damaged at any time. So a caller asks only for blocks whose checksum it knows, and gets
//! exactly the content that has this checksum, or nothing. A caller offers only content that it has verified.

use crate::block::Block;

/// Keeper of copies of a medium's blocks.
pub trait Copies: Send + Sync {
    /// Fills the memory of every wanted block of which there is a copy with the wanted checksum, and marks the block as
    /// found. Returns the moment, for [`Copies::offer`]. Never fails: without a copy the caller reads the medium.
    fn fetch(&self, wanted: &mut [WantedBlock<'_>]) -> Moment;

    /// Offers the verified content of adjacent blocks from `address` on, which were read from the medium after `moment`. The call
    /// copies what it keeps, and does not wait for a device.
    fn offer(&self, moment: Moment, address: u64, blocks: &[Block]);
}

/// A moment in the order of the requests to a medium with copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// A block whose content the caller can verify.
#[derive(Debug)]
pub struct WantedBlock<'a> {
    /// Address on the medium.
    pub address: u64,
    /// CRC-32C of the bytes of the block behind `head`.
    pub checksum: u32,
    /// First bytes of the block, which the checksum leaves out; none if it covers the whole block.
    pub head: &'a [u8],
    /// Memory for the content, which is undefined unless the block was found.
    pub memory: &'a mut Block,
    /// `true` once the memory has the content.
    pub is_found: bool,
}
