//! Recognition of a block that holds what was written to another one.
//!
//! Nodes and chunks have their address in them. A device that states more capacity than it has returns, at some address,
//! what was written to another; so does a device that confuses addresses.

use sfs_device::BLOCK_SIZE;

use super::{ChunkSummary, NodeHeader};

/// Returns the address to which `bytes`, which were read at `at`, were written, if that is another one: `bytes` are a whole
/// tree node, or begin like a chunk of volume `volume`. Blocks of file data are not recognized.
pub fn misplaced(bytes: &[u8; BLOCK_SIZE], volume: u64, at: u64) -> Option<u64> {
    let address = NodeHeader::address_of(bytes, volume)
        .or_else(|| ChunkSummary::address_of(bytes, volume))?;
    (address != at).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_at_another_address_is_recognized() {
        let mut bytes = [0; BLOCK_SIZE];
        NodeHeader { level: 0, item_count: 0 }.seal(&mut bytes, 7, 40, 2);
        assert_eq!(misplaced(&bytes, 7, 50), Some(40));
        assert_eq!(misplaced(&bytes, 7, 40), None, "the block is where it belongs");
        assert_eq!(misplaced(&bytes, 8, 50), None, "another volume");
        bytes[4000] ^= 1;
        assert_eq!(misplaced(&bytes, 7, 50), None, "a damaged node");
        assert_eq!(misplaced(&[0; BLOCK_SIZE], 7, 50), None);
    }
}
