//! Feature words: bits that a program has to know before it may read or write a volume.

use thiserror::Error;

use super::{DataLayout, Encoding};

/// The feature words of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Features that a program may ignore.
    pub compatible: u64,
    /// Features that a program has to know to write; a program that does not know them may only
    /// read.
    pub read_only_compatible: u64,
    /// Features that a program has to know to read the volume.
    pub incompatible: u64,
}

impl Features {
    /// Bit of a volume whose file data is outside the log: bit 1, as bit 0 was used before version
    /// 1 was settled.
    const IN_PLACE: u64 = 2;

    /// Bit of [`Features::read_only_compatible`]: inodes may have flags of users
    /// ([`InodeFlags::OF_USERS`](super::InodeFlags::OF_USERS)). A program that does not know them would change
    /// immutable files.
    pub const INODE_FLAGS: u64 = 2;
    /// Bit of a volume with access lists: a program that does not know them would change the mode of a file without the
    /// mask of its list.
    pub const ACCESS_LISTS: u64 = 1;
    /// Bit of [`Features::read_only_compatible`] of a volume that may have reservations. A program without the feature
    /// would give the reserved space away.
    pub const PREALLOCATION: u64 = 4;
    /// Bit of [`Features::read_only_compatible`] of a volume on a disk with an SSD cache. A program without the feature would
    /// write without a new epoch, and the cache would return what the disk had before.
    pub const CACHE: u64 = 8;
    /// Compatible feature of a volume whose UUID and key of the hash of names come from a seed that others may know:
    /// names can be chosen whose hashes collide.
    pub const HASH_KEY_FROM_SEED: u64 = 1;

    /// Bits of [`Features::compatible`] that this program knows.
    pub const COMPATIBLE_KNOWN: u64 = Self::HASH_KEY_FROM_SEED;

    /// Bits of [`Features::read_only_compatible`] that this program knows.
    pub const READ_ONLY_COMPATIBLE_KNOWN: u64 =
        Self::ACCESS_LISTS | Self::INODE_FLAGS | Self::PREALLOCATION | Self::CACHE;

    /// Bits of [`Features::incompatible`] that this program knows.
    pub const INCOMPATIBLE_KNOWN: u64 = Self::IN_PLACE;

    /// Returns the incompatible features that a volume with this data layout has.
    pub(super) fn of(data_layout: DataLayout) -> u64 {
        match data_layout {
            DataLayout::Log => 0,
            _ => Self::IN_PLACE,
        }
    }

    /// Returns whether the key of the hash of names comes from a seed.
    pub fn has_key_from_seed(&self) -> bool {
        self.compatible & Self::HASH_KEY_FROM_SEED != 0
    }

    /// Returns whether the volume has a cache on another device.
    pub fn has_cache(&self) -> bool {
        self.read_only_compatible & Self::CACHE != 0
    }

    /// Returns whether the volume may contain structures of a newer program.
    pub fn has_unknown(&self) -> bool {
        self.compatible & !Self::COMPATIBLE_KNOWN != 0
            || self.read_only_compatible & !Self::READ_ONLY_COMPATIBLE_KNOWN != 0
    }
}

/// The reason why a volume of a newer program, which is not damaged, cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Incompatibility {
    /// The format version is newer.
    #[error("format version {0} is newer than this program knows")]
    Version(u32),
    /// Unknown bits of the incompatible features.
    #[error("features {0:#x} are newer than this program knows")]
    Features(u64),
    /// Unknown bits of the features that a writing program has to know.
    #[error("features {0:#x} are newer than this program knows, and allow only reading")]
    ReadOnlyFeatures(u64),
    /// Tag of an unknown checkpoint extension that has to be known.
    #[error("checkpoint extension {0} is newer than this program knows")]
    Extension(u16),
    /// Tag of an unknown checkpoint extension that a writing program has to know.
    #[error("checkpoint extension {0} is newer than this program knows, and allows only reading")]
    ReadOnlyExtension(u16),
    /// An unknown change of a delta that has to be known.
    #[error("change kind {kind} in the delta at block {at} is newer than this program knows")]
    Change {
        /// Number of the kind.
        kind: u16,
        /// Block address of the first chunk of its batch.
        at: u64,
    },
    /// An unknown encoding of a block.
    #[error("encoding {encoding}{} of a block of inode {ino} is newer than this program knows", encoding_name(.encoding))]
    Encoding {
        /// Number of the encoding.
        encoding: u8,
        /// Inode number of the file.
        ino: u64,
    },
    /// An unknown extension record of a mapping run that has to be known.
    #[error("record {tag} among the mappings of inode {ino} is newer than this program knows")]
    RunRecord {
        /// Tag of the record.
        tag: u8,
        /// Inode number of the file.
        ino: u64,
    },
}

impl Incompatibility {
    /// Returns whether a mount that only reads is possible.
    pub fn allows_reading(self) -> bool {
        matches!(self, Self::ReadOnlyFeatures(_) | Self::ReadOnlyExtension(_))
    }
}

/// Returns the name of an encoding that this program knows but does not read, in parentheses.
fn encoding_name(encoding: &u8) -> String {
    Encoding::decode(*encoding).map_or_else(String::new, |name| format!(" ({name:?})"))
}
