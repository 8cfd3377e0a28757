//! Owners of a block: the mappings that refer to its address now.
//!
//! A summary names one mapping for each block, which may refer to another address since. No two mappings share a
//! block at present. A feature that shares blocks extends [`owners`]; its callers take any number of owners. Blocks
//! that are overwritten in place (encoding 2) have one owner by the format, because shared blocks will have an
//! encoding of their own.

use crate::format::{Mapping, Tolerance};
use crate::meta::{MetadataError, find_mapping};
use crate::tree::Tree;

/// A mapping that refers to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Inode number of the file.
    pub(crate) ino: u64,
    /// Block number in the file.
    pub(crate) block: u32,
    /// The mapping.
    pub(crate) mapping: Mapping,
}

/// Returns the mappings that refer to the block at `address`, which was written as block `block` of `ino`. A dead
/// block has none.
pub(crate) fn owners(
    tree: &Tree,
    tolerance: Tolerance,
    address: u64,
    (ino, block): (u64, u32),
) -> Result<Vec<Owner>, MetadataError> {
    let mapping = find_mapping(tree, tolerance, ino, block)?;
    let owner = mapping.filter(|mapping| mapping.address == address);
    Ok(owner.map(|mapping| Owner { ino, block, mapping }).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{MappingRun, run_key};

    #[test]
    fn a_mapping_owns_a_block_while_it_refers_to_it() {
        let mut tree = Tree::new();
        let mapping = Mapping { checksum: Some(7), ..Mapping::in_place(99) };
        let mut run = MappingRun::default();
        run.set(5, Some(mapping));
        let mut value = Vec::new();
        run.encode(&mut value);
        tree.put(&run_key(16, 5), &value).expect("in memory");
        let owners =
            |address, named| owners(&tree, Tolerance::Exact, address, named).expect("a sound tree");
        assert_eq!(owners(99, (16, 5)), [Owner { ino: 16, block: 5, mapping }]);
        assert_eq!(owners(98, (16, 5)), [], "the block was rewritten elsewhere");
        assert_eq!(owners(99, (16, 6)), [], "the block is not mapped");
        assert_eq!(owners(99, (17, 5)), [], "the file does not exist");
    }
}
