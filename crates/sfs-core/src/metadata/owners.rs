//! Owners of a block: the mappings that refer to it.
//!
//! A mapping is an owner if it refers to the address now; the summary may name a mapping that no
//! longer does. A summary names one mapping, and at present no other can refer to the block; a
//! feature that shares blocks extends [`owners`], and no caller may assume that there is one owner.
//! Blocks overwritten in place (encoding 2) have one owner by the format.

use super::metadata_error::MetadataError;
use crate::format::{Mapping, MappingRun, Tolerance, run_key};
use crate::tree::Tree;

/// A mapping that refers to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Inode number of the file.
    pub(crate) ino: u64,
    /// Block of the file.
    pub(crate) block: u32,
    /// The mapping itself.
    pub(crate) mapping: Mapping,
}

/// Returns the mappings that refer to the block at `address`, which a summary names as block
/// `block` of `ino`. A dead block has no owner.
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

/// Returns the mapping of block `block` of `ino`.
pub(crate) fn find_mapping(
    tree: &Tree,
    tolerance: Tolerance,
    ino: u64,
    block: u32,
) -> Result<Option<Mapping>, MetadataError> {
    let key = run_key(ino, block);
    match tree.get(&key)? {
        Some(value) => Ok(MappingRun::find(value, &key, block, tolerance)?),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_owns_a_block_while_it_refers_to_it() {
        let mut tree = Tree::new();
        let mapping = Mapping { checksum: Some(7), ..Mapping::in_place(99) };
        let mut run = MappingRun::default();
        run.set(5, Some(mapping));
        let mut value = Vec::new();
        run.encode(&mut value);
        tree.put(&run_key(16, 5), &value).expect("in memory");
        let owners = |address, named| {
            owners(&tree, Tolerance::Exact, address, named).expect("the tree is sound")
        };
        assert_eq!(owners(99, (16, 5)), [Owner { ino: 16, block: 5, mapping }]);
        assert_eq!(owners(98, (16, 5)), [], "the block has been written elsewhere since");
        assert_eq!(owners(99, (16, 6)), [], "the block was cut off");
        assert_eq!(owners(99, (17, 5)), [], "the file is gone");
    }
}
