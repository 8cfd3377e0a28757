//! What this program does about what it does not know of the log and the tree.

use std::fmt;

use super::{Corruption, Incompatibility, ItemKind, Superblock};

/// What a program does about something that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// Passes over it.
    Skip = 1,
    /// Refuses what it belongs to.
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

/// Why bytes cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They are damaged.
    Corrupt(Corruption),
    /// They need a later program.
    Incompatible(Incompatibility),
}

impl From<Corruption> for DecodeError {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(corruption)
    }
}

impl From<Incompatibility> for DecodeError {
    fn from(incompatibility: Incompatibility) -> Self {
        Self::Incompatible(incompatibility)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corruption) => corruption.fmt(f),
            Self::Incompatible(incompatibility) => incompatibility.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Whether the superblock names features that this program does not know. Only then are unknown kinds of
/// items, flags of inodes and encodings of blocks something other than damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Every feature is known: what is unknown is damaged.
    Exact,
    /// Some feature is unknown.
    Newer,
}

impl Tolerance {
    /// Kinds of items that later programs may add. 0 and 255 bound searches and are never kinds.
    pub const LATER_KINDS: std::ops::RangeInclusive<u8> = 8..=254;

    /// Whether the tree may have items of kind `byte`.
    pub fn allows_kind(self, byte: u8) -> bool {
        ItemKind::decode(byte).is_some() || self.is_later_kind(byte)
    }

    /// Whether items of kind `byte` are those of a later program, to be left alone.
    pub fn is_later_kind(self, byte: u8) -> bool {
        self == Self::Newer && Self::LATER_KINDS.contains(&byte)
    }
}

impl Superblock {
    /// What of the tree and the log may be unknown without being damaged.
    pub fn tolerance(&self) -> Tolerance {
        if self.features.has_unknown() { Tolerance::Newer } else { Tolerance::Exact }
    }
}
