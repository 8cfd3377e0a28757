//! Corruption: bytes from a device that differ from the written bytes, or that contradict other
//! structures.

use std::fmt;

use thiserror::Error;

/// The structure that was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// A copy of the superblock.
    Superblock,
    /// A checkpoint slot.
    Checkpoint,
    /// The summary of a chunk.
    Chunk,
    /// The delta of a batch.
    Delta,
    /// A node of the tree.
    Node,
    /// An item of the tree.
    Item,
    /// A data block.
    Data,
    /// An entry of the usage table.
    Usage,
}

/// The place of a corrupt structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// Block address.
    Block(u64),
    /// Inode number, for an item of the tree.
    Inode(u64),
    /// Segment number, for an entry of the usage table.
    Segment(u32),
}

impl Location {
    /// Returns the number without its unit, as remembered errors store it.
    pub fn number(self) -> u64 {
        match self {
            Self::Block(number) | Self::Inode(number) => number,
            Self::Segment(number) => number.into(),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(address) => write!(f, "at block {address}"),
            Self::Inode(ino) => write!(f, "of inode {ino}"),
            Self::Segment(segment) => write!(f, "of segment {segment}"),
        }
    }
}

/// The way in which a structure is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum CorruptionKind {
    /// The magic number is wrong.
    #[error("no magic number")]
    Magic,
    /// The checksum does not match the content.
    #[error("checksum mismatch")]
    Checksum,
    /// The structure belongs to another volume.
    #[error("belongs to another volume")]
    Volume,
    /// The structure was written for another address.
    #[error("was written for another address")]
    Address,
    /// A length or count is out of range.
    #[error("length out of range")]
    Length,
    /// A field has a value that is not allowed.
    #[error("value out of range")]
    Value,
    /// Keys are not in ascending order.
    #[error("keys out of order")]
    Order,
    /// The structure refers to something that does not exist.
    #[error("refers to something that does not exist")]
    Dangling,
    /// A counter does not agree with the counted structures.
    #[error("does not agree with the counted structures")]
    Count,
    /// The device cannot read the structure.
    #[error("cannot be read")]
    Unreadable,
}

/// A corrupt structure, its place, and the kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("{structure} {location}: {kind}")]
pub struct Corruption {
    /// The structure.
    pub structure: Structure,
    /// Place of the structure.
    pub location: Location,
    /// Kind of damage.
    pub kind: CorruptionKind,
}

impl Corruption {
    /// Returns damage of `kind` in a structure at the block `address`.
    pub const fn in_block(structure: Structure, address: u64, kind: CorruptionKind) -> Self {
        Self { structure, location: Location::Block(address), kind }
    }

    /// Returns damage of `kind` in an item of inode `ino`.
    pub fn in_item(ino: u64, kind: CorruptionKind) -> Self {
        Self { structure: Structure::Item, location: Location::Inode(ino), kind }
    }

    /// Returns damage of `kind` in the usage entry of `segment`.
    pub fn in_usage_entry(segment: u32, kind: CorruptionKind) -> Self {
        Self { structure: Structure::Usage, location: Location::Segment(segment), kind }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::Checkpoint => "checkpoint",
            Self::Chunk => "chunk",
            Self::Delta => "delta",
            Self::Node => "tree node",
            Self::Item => "tree item",
            Self::Data => "data",
            Self::Usage => "usage entry",
        })
    }
}
