//! One reference to a block, from a mapping, a node pointer or a summary entry.

use sfs_core::format::{ItemKind, Key, NodePointer, RUN_BLOCKS, SummaryEntry};

use crate::finding::Finding;
use crate::read::mapping::decode_run;
use crate::read::volume::VolumeReader;

/// Owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockOwner {
    /// Block `block` of file `ino`.
    Data { ino: u64, block: u32 },
    /// The tree.
    Node,
}

/// Reference to a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockReference {
    pub(crate) address: u64,
    /// `None` for a block that is overwritten in place.
    pub(crate) checksum: Option<u32>,
    pub(crate) owner: BlockOwner,
}

impl BlockReference {
    /// Returns the reference of a node pointer.
    pub(crate) fn to_node(NodePointer { address, checksum }: NodePointer) -> Self {
        Self { address, checksum: Some(checksum), owner: BlockOwner::Node }
    }

    /// Returns the reference to the block at `address` that a summary entry describes.
    pub(crate) fn described(address: u64, entry: &SummaryEntry) -> Self {
        match *entry {
            SummaryEntry::Data { ino, block, checksum, .. } => {
                Self { address, checksum: Some(checksum), owner: BlockOwner::Data { ino, block } }
            }
            SummaryEntry::Node { checksum } => Self::to_node(NodePointer { address, checksum }),
        }
    }

    /// Returns whether the block is overwritten in place.
    pub(crate) fn is_placed(&self) -> bool {
        self.checksum.is_none()
    }

    /// Returns a hash over address, owner and checksum; two different references have the same hash
    /// with a probability of 2^-64.
    pub(crate) fn hash(&self) -> u64 {
        let (ino, block) = match self.owner {
            BlockOwner::Data { ino, block } => (ino, block),
            BlockOwner::Node => (u64::MAX, 0),
        };
        let checksum = u64::from(self.checksum.unwrap_or_default());
        let words = [self.address, ino, u64::from(block) << 32 | checksum];
        words.into_iter().fold(1, |hash, word| mix(hash ^ mix(word)))
    }

    /// Returns the finding for a reference that no summary confirms.
    pub(crate) fn unknown(&self) -> Finding {
        let address = self.address;
        match self.owner {
            BlockOwner::Data { ino, block } => Finding::MappingUnknown { ino, block, address },
            BlockOwner::Node => Finding::NodeUnknown { address },
        }
    }
}

/// Calls `each` for the references of an item. Runs that do not decode have a finding elsewhere.
pub(crate) fn each_mapping(
    volume: &VolumeReader<'_>,
    key: &Key,
    value: &[u8],
    mut each: impl FnMut(BlockReference),
) {
    if key.kind != ItemKind::Mapping as u8 {
        return;
    }
    let tolerance = volume.superblock.tolerance();
    let (ino, Ok(run)) = (key.ino, decode_run(key, value, tolerance)) else { return };
    for (block, mapping) in run.iter(key.offset as u32 * RUN_BLOCKS) {
        let (address, checksum) = (mapping.address, mapping.checksum);
        each(BlockReference { address, checksum, owner: BlockOwner::Data { ino, block } });
    }
}

/// Spreads every bit over all others (the finalizer of splitmix64).
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
