//! Inode attributes.

use std::borrow::Cow;
use std::ops::{BitOr, BitOrAssign};

use sfs_device::BLOCK_SIZE;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Corruption, CorruptionKind, FILE_BLOCKS_MAX, Tolerance};

/// A point in time as in the kernel: `nanos` after `secs` since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds, 0..10^9.
    pub nanos: u32,
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// Named pipe.
    Fifo = 4,
    /// Character device.
    CharDevice = 5,
    /// Block device.
    BlockDevice = 6,
    /// Socket.
    Socket = 7,
}

impl FileKind {
    /// Returns the kind in the type bits (`S_IFMT`) of `mode`.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Decodes the kind in a directory entry.
    pub fn decode(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::CharDevice,
            6 => Self::BlockDevice,
            7 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the type bits (`S_IFMT`) of a mode.
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Symlink => 0o120_000,
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// A set of inode flags. Flags of a later program are preserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeFlags(u32);

impl InodeFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The content is in `Inline` items and no block is mapped.
    pub const INLINE: Self = Self(1);
    /// The file has extended attributes.
    pub const XATTRS: Self = Self(2);
    /// Nothing about the file can be changed, nor can entries of a directory.
    pub const IMMUTABLE: Self = Self(4);
    /// Data can only be appended to the file, and entries can only be added to a directory.
    pub const APPEND_ONLY: Self = Self(8);
    /// Backup programs leave the file out. No other program heeds the flag.
    pub const NO_DUMP: Self = Self(16);
    /// Reading does not change the time of the last access.
    pub const NO_ATIME: Self = Self(32);
    /// The flags that users set. They need the feature [`Features::INODE_FLAGS`](super::Features::INODE_FLAGS).
    pub const OF_USERS: Self = Self(4 | 8 | 16 | 32);
    /// The file may have reservations; without the flag it has none.
    pub const RESERVED: Self = Self(64);
    const ALL: u32 = 3 | Self::OF_USERS.0 | Self::RESERVED.0;

    /// Returns whether all of `flags` are set.
    pub fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Returns the flags that are in both sets.
    pub fn intersection(self, flags: Self) -> Self {
        Self(self.0 & flags.0)
    }

    /// Returns whether any of `flags` is set.
    pub fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// Returns the bits of the set, unknown flags included.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Sets or clears `flags`.
    pub fn set(&mut self, flags: Self, on: bool) {
        self.0 = if on { self.0 | flags.0 } else { self.0 & !flags.0 };
    }
}

impl BitOr for InodeFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for InodeFlags {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names; for a directory 2 and one for each subdirectory.
    pub links: u32,
    /// User ID of the owner.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Flags.
    pub flags: InodeFlags,
    /// Length in bytes; for a directory the number of its entries.
    pub size: u64,
    /// Number of mapped blocks and reserved blocks.
    pub blocks: u64,
    /// Inode number of the directory that contains this directory; 0 for all other files.
    pub parent: u64,
    /// Time of the last access.
    pub atime: Timestamp,
    /// Time of the last change of content.
    pub mtime: Timestamp,
    /// Time of the last change of attributes.
    pub ctime: Timestamp,
    /// Time of creation.
    pub btime: Timestamp,
    /// Number of block writes since creation (SFS, section 3.2: W_f).
    pub write_count: u64,
    /// Time of the last block write, in ticks (T_f^m).
    pub modified: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawTimestamp {
    secs: I64,
    nanos: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInode {
    mode: U32,
    links: U32,
    uid: U32,
    gid: U32,
    rdev: U32,
    flags: U32,
    size: U64,
    blocks: U64,
    parent: U64,
    atime: RawTimestamp,
    mtime: RawTimestamp,
    ctime: RawTimestamp,
    btime: RawTimestamp,
    write_count: U64,
    modified: U32,
    reserved: U32,
}

impl Inode {
    /// Length of an encoded inode in bytes. Bytes that a later program appended are preserved by
    /// [`Inode::keep_rest`].
    pub const LEN: usize = 112;

    /// Returns the type of the file.
    ///
    /// # Panics
    ///
    /// If the mode has no file type; the mode of a decoded inode has one.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode).expect("an inode's mode has a file type")
    }

    /// Returns the item's value.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let time = |t: Timestamp| RawTimestamp { secs: t.secs.into(), nanos: t.nanos.into() };
        let raw = RawInode {
            mode: self.mode.into(),
            links: self.links.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            rdev: self.rdev.into(),
            flags: self.flags.0.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            parent: self.parent.into(),
            atime: time(self.atime),
            mtime: time(self.mtime),
            ctime: time(self.ctime),
            btime: time(self.btime),
            write_count: self.write_count.into(),
            modified: self.modified.into(),
            reserved: U32::ZERO,
        };
        zerocopy::transmute!(raw)
    }

    /// Returns `new` with the bytes that a later program appended to the item's value `old`.
    pub fn keep_rest<'a>(new: &'a [u8], old: Option<&[u8]>) -> Cow<'a, [u8]> {
        match old.and_then(|old| old.get(new.len()..)) {
            None | Some([]) => Cow::Borrowed(new),
            Some(rest) => Cow::Owned([new, rest].concat()),
        }
    }

    /// Decodes the attributes of `ino`. Bytes that a later program appended are ignored.
    pub fn decode(value: &[u8], ino: u64, tolerance: Tolerance) -> Result<Self, Corruption> {
        let wrong = |kind| Corruption::in_item(ino, kind);
        let (raw, _) =
            RawInode::ref_from_prefix(value).map_err(|_| wrong(CorruptionKind::Length))?;
        let time = |t: &RawTimestamp| Timestamp { secs: t.secs.get(), nanos: t.nanos.get() };
        let inode = Self {
            mode: raw.mode.get(),
            links: raw.links.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            rdev: raw.rdev.get(),
            flags: InodeFlags(raw.flags.get()),
            size: raw.size.get(),
            blocks: raw.blocks.get(),
            parent: raw.parent.get(),
            atime: time(&raw.atime),
            mtime: time(&raw.mtime),
            ctime: time(&raw.ctime),
            btime: time(&raw.btime),
            write_count: raw.write_count.get(),
            modified: raw.modified.get(),
        };
        let times = [inode.atime, inode.mtime, inode.ctime, inode.btime];
        let kind = FileKind::from_mode(inode.mode);
        let size_max = match kind {
            Some(FileKind::Regular) => FILE_BLOCKS_MAX * BLOCK_SIZE as u64,
            _ => i64::MAX as u64,
        };
        let sound = kind.is_some()
            && inode.mode & !0o177_777 == 0
            && (tolerance == Tolerance::Newer || inode.flags.0 & !InodeFlags::ALL == 0)
            && inode.size <= size_max
            && times.iter().all(|t| t.nanos < 1_000_000_000);
        if sound { Ok(inode) } else { Err(wrong(CorruptionKind::Value)) }
    }
}

const _: () = assert!(size_of::<RawInode>() == Inode::LEN);
