//! Rules for unknown structures of the log and the tree: damage, or written by a newer program.

use thiserror::Error;

use super::{Corruption, Incompatibility, ItemKind};

/// The rule for a program that does not know a change or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// The program skips the change or record.
    Skip = 1,
    /// The program refuses the delta or run that contains it.
    Refuse = 2,
}

impl Class {
    pub(super) fn decode(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Skip),
            2 => Some(Self::Refuse),
            _ => None,
        }
    }
}

/// The reason why bytes cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes are damaged.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The bytes need a newer program.
    #[error(transparent)]
    Incompatible(#[from] Incompatibility),
}

/// The tolerance of unknown item kinds, inode flags and block encodings. Such structures are damage unless the superblock has
/// feature bits that this program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// All features are known: unknown structures are damage.
    Exact,
    /// Some feature is unknown: unknown structures may be those of a newer program.
    Newer,
}

impl Tolerance {
    /// Kinds of items that later programs may add. 0 and 255 bound searches and are never kinds.
    pub const LATER_KINDS: std::ops::RangeInclusive<u8> = 9..=254;

    /// Returns whether the tree may have items of kind `byte`.
    pub fn allows_kind(self, byte: u8) -> bool {
        ItemKind::decode(byte).is_some() || self.is_later_kind(byte)
    }

    /// Returns whether items of kind `byte` belong to a later program and must not be changed.
    pub fn is_later_kind(self, byte: u8) -> bool {
        self == Self::Newer && Self::LATER_KINDS.contains(&byte)
    }
}
