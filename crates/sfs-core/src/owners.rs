//! Owners: which mappings refer to a block.
//!
//! Owns: the answer to that question, for whatever moves blocks or counts on one being dead.
//! Promises: a mapping is an owner if it refers to the address now, whatever a summary once said.
//! Never: promises that there is one owner at most. A summary names one mapping, and at present no other
//! can refer to the block; features that share blocks extend [`owners`], and nothing else may assume how
//! many there are. Blocks that are overwritten in place (encoding 2) have one owner by the format, as
//! blocks that may have several get an encoding of their own.

use crate::format::{Mapping, Tolerance};
use crate::meta::{MetadataError, find_mapping};
use crate::tree::Tree;

/// A mapping that refers to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The file.
    pub(crate) ino: u64,
    /// Block of the file.
    pub(crate) block: u32,
    /// What it says of the block.
    pub(crate) mapping: Mapping,
}

/// Returns the mappings that refer to the block at `address`, which a summary says to be block `block` of
/// `ino`. None if the block is dead.
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
    fn the_mapping_that_a_summary_names_owns_a_block_as_long_as_it_refers_to_it() {
        let mut tree = Tree::new();
        let mapping = Mapping { checksum: Some(7), ..Mapping::in_place(99) };
        let mut run = MappingRun::default();
        run.set(5, Some(mapping));
        let mut value = Vec::new();
        run.encode(&mut value);
        tree.put(&run_key(16, 5), &value).expect("in memory");
        let owners =
            |address, named| owners(&tree, Tolerance::Exact, address, named).expect("it is sound");
        assert_eq!(owners(99, (16, 5)), [Owner { ino: 16, block: 5, mapping }]);
        assert_eq!(owners(98, (16, 5)), [], "it has been written elsewhere since");
        assert_eq!(owners(99, (16, 6)), [], "it was cut off");
        assert_eq!(owners(99, (17, 5)), [], "the file is gone");
    }
}
