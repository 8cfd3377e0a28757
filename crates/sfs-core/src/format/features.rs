//! Feature words: what a program has to know before it may read or write a volume.

use std::fmt;

use super::{DataLayout, Encoding};

/// The feature words of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A program that does not know one of these ignores it.
    pub compatible: u64,
    /// A program that does not know one of these only reads.
    pub read_only_compatible: u64,
    /// A program that does not know one of these refuses the volume.
    pub incompatible: u64,
}

impl Features {
    /// Data is placed outside the log. Bit 1 was used before version 1 was settled.
    const PLACED: u64 = 2;

    /// Bits of [`Features::compatible`] that this program knows.
    pub const COMPATIBLE_KNOWN: u64 = 0;

    /// Bits of [`Features::read_only_compatible`] that this program knows.
    pub const READ_ONLY_COMPATIBLE_KNOWN: u64 = 0;

    /// Bits of [`Features::incompatible`] that this program knows.
    pub const INCOMPATIBLE_KNOWN: u64 = Self::PLACED;

    /// Returns the incompatible features that a volume with this data layout has.
    pub(super) fn of(data_layout: DataLayout) -> u64 {
        match data_layout {
            DataLayout::Log => 0,
            _ => Self::PLACED,
        }
    }

    /// Returns whether a newer program has written to the volume what this one may not know.
    pub fn has_unknown(&self) -> bool {
        self.compatible & !Self::COMPATIBLE_KNOWN != 0
            || self.read_only_compatible & !Self::READ_ONLY_COMPATIBLE_KNOWN != 0
    }
}

/// Why a volume of a newer program cannot be used. It is not damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incompatibility {
    /// The format has this version.
    Version(u32),
    /// These features have to be known.
    Features(u64),
    /// These features have to be known by a program that writes.
    ReadOnlyFeatures(u64),
    /// The checkpoint has an extension with this tag, which has to be known.
    Extension(u16),
    /// The checkpoint has an extension with this tag, which has to be known by a program that writes.
    ReadOnlyExtension(u16),
    /// A delta has a change of this kind, which has to be known.
    Change {
        /// Number of the kind.
        kind: u16,
        /// Block address of the first chunk of its batch.
        at: u64,
    },
    /// A block of a file is stored in a way that has to be known.
    Encoding {
        /// Number of the encoding.
        encoding: u8,
        /// The file.
        ino: u64,
    },
    /// A run of mappings has an extension record with this tag, which has to be known.
    RunRecord {
        /// The tag.
        tag: u8,
        /// The file.
        ino: u64,
    },
}

impl Incompatibility {
    /// Returns whether a mount that only reads is possible.
    pub fn allows_reading(self) -> bool {
        matches!(self, Self::ReadOnlyFeatures(_) | Self::ReadOnlyExtension(_))
    }
}

impl fmt::Display for Incompatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "format version {version} is newer than this program knows")
            }
            Self::Features(bits) => {
                write!(f, "features {bits:#x} are newer than this program knows")
            }
            Self::ReadOnlyFeatures(bits) => {
                write!(f, "features {bits:#x} are newer than this program knows; it may only read")
            }
            Self::Extension(tag) => {
                write!(f, "checkpoint extension {tag} is newer than this program knows")
            }
            Self::ReadOnlyExtension(tag) => write!(
                f,
                "checkpoint extension {tag} is newer than this program knows; it may only read"
            ),
            Self::Change { kind, at } => write!(
                f,
                "change kind {kind} in the delta at block {at} is newer than this program knows"
            ),
            Self::Encoding { encoding, ino } => {
                write!(f, "encoding {encoding}")?;
                if let Some(name) = Encoding::decode(*encoding) {
                    write!(f, " ({name:?})")?;
                }
                write!(f, " of a block of inode {ino} is newer than this program knows")
            }
            Self::RunRecord { tag, ino } => write!(
                f,
                "record {tag} among the mappings of inode {ino} is newer than this program knows"
            ),
        }
    }
}

impl std::error::Error for Incompatibility {}
