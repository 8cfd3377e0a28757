//! What can be wrong with bytes from a device.

use std::fmt;

/// The structure that was being decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Structure {
    /// The volume's superblock or its backup.
    Superblock,
    /// A checkpoint slot.
    Checkpoint,
    /// The summary of a chunk.
    Chunk,
    /// The delta that chunks carry.
    Delta,
    /// A node of the tree.
    Node,
    /// An item of the tree.
    Item,
    /// A data block.
    Data,
    /// The usage table.
    Usage,
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CorruptionKind {
    /// The magic number is another.
    Magic,
    /// The checksum does not match the content.
    Checksum,
    /// It belongs to another volume.
    Volume,
    /// It was written for another address.
    Address,
    /// A length or count is out of range.
    Length,
    /// A field has a value that is not allowed.
    Value,
    /// Keys are not in ascending order.
    Order,
    /// Something it refers to does not exist.
    Dangling,
    /// A counter does not agree with what it counts.
    Count,
    /// The device does not read it.
    Unreadable,
}

/// Bytes that do not say what they should, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corruption {
    /// Block address, or inode number for [`Structure::Item`].
    pub at: u64,
    /// The structure.
    pub structure: Structure,
    /// What is wrong.
    pub kind: CorruptionKind,
}

impl Corruption {
    /// A finding of `kind` in `structure` at `at`.
    pub fn new(structure: Structure, at: u64, kind: CorruptionKind) -> Self {
        Self { at, structure, kind }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let structure = match self.structure {
            Structure::Superblock => "superblock at block",
            Structure::Checkpoint => "checkpoint at block",
            Structure::Chunk => "chunk at block",
            Structure::Delta => "delta at block",
            Structure::Node => "tree node at block",
            Structure::Item => "tree item of inode",
            Structure::Data => "data at block",
            Structure::Usage => "usage entry of segment",
        };
        let kind = match self.kind {
            CorruptionKind::Magic => "no magic number",
            CorruptionKind::Checksum => "checksum mismatch",
            CorruptionKind::Volume => "belongs to another volume",
            CorruptionKind::Address => "was written for another address",
            CorruptionKind::Length => "length out of range",
            CorruptionKind::Value => "value out of range",
            CorruptionKind::Order => "keys out of order",
            CorruptionKind::Dangling => "refers to something that does not exist",
            CorruptionKind::Count => "does not agree with what it counts",
            CorruptionKind::Unreadable => "cannot be read",
        };
        write!(f, "{structure} {}: {kind}", self.at)
    }
}

impl std::error::Error for Corruption {}
