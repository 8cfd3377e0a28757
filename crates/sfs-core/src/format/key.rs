//! Keys of the tree: (inode, kind, offset), in this order.

use std::ops::RangeInclusive;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of a tree item. Items of a file are in this order in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ItemKind {
    /// Attributes; offset 0.
    Inode = 1,
    /// Part of an extended attribute; offset: hash of the name << 32 | collision << 16 | part.
    Xattr = 2,
    /// Part of an inline file or symlink target; offset: part number.
    Inline = 3,
    /// A run of block mappings; offset: first block / `RUN_BLOCKS`.
    Mapping = 4,
    /// A directory entry; offset: hash of the name << 8 | collision, which is its cookie.
    Dirent = 5,
    /// A file that a mount has to delete or to truncate; inode 0, offset: its inode number.
    Orphan = 6,
    /// Usage of `USAGE_PER_ITEM` segments; inode 0, offset: first segment / `USAGE_PER_ITEM`.
    Usage = 7,
    /// A range of reserved blocks; offset: its first block.
    Reservation = 8,
}

impl ItemKind {
    /// Decodes a kind.
    pub fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Inode,
            2 => Self::Xattr,
            3 => Self::Inline,
            4 => Self::Mapping,
            5 => Self::Dirent,
            6 => Self::Orphan,
            7 => Self::Usage,
            8 => Self::Reservation,
            _ => return None,
        })
    }
}

/// Key of an item. `kind` is a byte because keys are compared before their kind is checked; 0 is below and 255 above
/// every kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Inode number of the file that the item belongs to; 0 for the volume's own items.
    pub ino: u64,
    /// Kind of the item, an [`ItemKind`].
    pub kind: u8,
    /// Position among the items of its kind.
    pub offset: u64,
}

impl Key {
    /// The lowest key; no item has it.
    pub const MIN: Self = Self { ino: 0, kind: 0, offset: 0 };
    /// The highest key; no item has it.
    pub const MAX: Self = Self { ino: u64::MAX, kind: u8::MAX, offset: u64::MAX };
    /// Length of an encoded key in bytes.
    pub const LEN: usize = 17;

    /// Returns the key of an item.
    pub fn new(ino: u64, kind: ItemKind, offset: u64) -> Self {
        Self { ino, kind: kind as u8, offset }
    }

    /// Returns the key of the attributes of `ino`.
    pub fn inode(ino: u64) -> Self {
        Self::new(ino, ItemKind::Inode, 0)
    }

    /// Returns the range of keys of all items of a kind that `ino` can have.
    pub fn all_of(ino: u64, kind: ItemKind) -> RangeInclusive<Self> {
        Self::new(ino, kind, 0)..=Self::new(ino, kind, u64::MAX)
    }

    /// Returns whether this is the key of the first part of an extended attribute.
    pub fn begins_xattr(self) -> bool {
        self.kind == ItemKind::Xattr as u8 && self.offset & 0xffff == 0
    }

    /// Returns the key right after this one; [`Key::MAX`] for [`Key::MAX`].
    pub fn next(self) -> Self {
        match self.offset.checked_add(1) {
            Some(offset) => Self { offset, ..self },
            None if self.kind < u8::MAX => Self { kind: self.kind + 1, offset: 0, ..self },
            None => self.ino.checked_add(1).map_or(Self::MAX, |ino| Self { ino, ..Self::MIN }),
        }
    }

    /// Decodes the on-device form.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let raw: RawKey = zerocopy::transmute!(*bytes);
        Self { ino: raw.ino.get(), kind: raw.kind, offset: raw.offset.get() }
    }

    /// Returns the on-device form.
    pub fn encode(self) -> [u8; Self::LEN] {
        let raw = RawKey { ino: self.ino.into(), kind: self.kind, offset: self.offset.into() };
        zerocopy::transmute!(raw)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawKey {
    ino: U64,
    kind: u8,
    offset: U64,
}

const _: () = assert!(size_of::<RawKey>() == Key::LEN);
