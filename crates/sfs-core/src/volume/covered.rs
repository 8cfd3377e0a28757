//! Covered blocks: dirty blocks that lie in a reservation of their file, and are counted by it.
//!
//! A writer finds the reservations under the same hold of the metadata lock under which its blocks become dirty, so no
//! commit comes in between.

use super::Volume;
use crate::Result;
use crate::format::{Inode, InodeFlags, Reservation};
use crate::metadata::{MetadataError, Txn, overlapping, reservation_of};
use crate::tree::Tree;

impl Volume {
    /// Loads the reservations that [`covered_in`] reads into the cache, whose nodes are pinned.
    pub(super) fn load_reservations(
        &self,
        inode: &Inode,
        ino: u64,
        blocks: &[u32],
        written: Option<(u32, u32)>,
    ) -> Result<()> {
        if inode.flags.contains(InodeFlags::RESERVED) {
            let read = |txn: &Txn<'_>| covered_in(txn.tree(), inode, ino, blocks, written);
            self.metadata.read_txn(read)?;
        }
        Ok(())
    }
}

/// Returns the reservations of `ino` in which `blocks` and the blocks from the first to the last written one lie.
/// Where they are not in memory, because another thread has just changed the tree, the caller takes the blocks for
/// not reserved: then they are counted twice until they are written.
pub(super) fn covered_in(
    tree: &Tree,
    inode: &Inode,
    ino: u64,
    blocks: &[u32],
    written: Option<(u32, u32)>,
) -> std::result::Result<Vec<Reservation>, MetadataError> {
    let mut ranges = Vec::new();
    if !inode.flags.contains(InodeFlags::RESERVED) {
        return Ok(ranges);
    }
    if let Some((first, last)) = written {
        for range in overlapping(tree, ino, first..=last) {
            ranges.push(range?);
        }
    }
    for block in blocks {
        ranges.extend(reservation_of(tree, ino, *block)?);
    }
    Ok(ranges)
}

/// Returns whether `block` is in one of the reserved `ranges`.
pub(super) fn is_covered(ranges: &[Reservation], block: u32) -> bool {
    ranges.iter().any(|range| range.contains(block))
}
