//! What the kernel is answered.
//!
//! Owns: one variant for each form that an answer can have, and the fixed parts of them.
//! Promises: what a filesystem says reaches the kernel as it was said.
//! Never: asks which request it is for.

use std::time::Duration;

use crate::abi;
use crate::directory::Directory;
use crate::time::{Time, ttl};

/// The bits of statx(2) for what every file has.
const STATX_BASIC_STATS: u32 = 0x7ff;
/// And for its time of birth.
const STATX_BTIME: u32 = 0x800;

/// An answer. `B` is the memory that data is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<B> {
    /// It is done.
    Done,
    /// A file, and a reference to it: LOOKUP, MKNOD, MKDIR, SYMLINK, LINK.
    Entry(Entry),
    /// A file that is open, and a reference to it: CREATE, TMPFILE.
    Created(Entry, Opened),
    /// GETATTR, SETATTR: attributes, and how long they may be remembered.
    Attributes(Attributes, Duration),
    /// STATX: as for `Attributes`, and the time of birth if there is one.
    Statx(Attributes, Option<Time>, Duration),
    /// OPEN, OPENDIR.
    Opened(Opened),
    /// READ, READLINK, GETXATTR, LISTXATTR: no more bytes than were asked for.
    Data(B),
    /// READ: so many bytes, which the handler has put to the beginning of the room that it was given.
    Filled(usize),
    /// GETXATTR, LISTXATTR where only the length was asked for.
    Length(u32),
    /// WRITE, COPY_FILE_RANGE: bytes written.
    Written(u32),
    /// COPY_FILE_RANGE_64: bytes written.
    Copied(u64),
    /// READDIR, READDIRPLUS.
    Directory(Directory),
    /// STATFS.
    Statfs(Statfs),
    /// LSEEK: where it is.
    Offset(u64),
    /// BMAP: where it is.
    Block(u64),
    /// GETLK: the lock that is in the way, or F_UNLCK.
    Lock {
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// F_RDLCK, F_WRLCK or F_UNLCK.
        kind: u32,
        /// Whose.
        pid: u32,
    },
    /// IOCTL: what it returns, and what is copied to its argument.
    Ioctl(i32, B),
    /// POLL: the events that there are.
    Events(u32),
}

/// A file that a name leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// What requests will call the inode. 0: there is no such name, which may be remembered.
    pub node: u64,
    /// Tells this inode from an earlier one with the same number.
    pub generation: u64,
    /// How long the name may be remembered.
    pub name_ttl: Duration,
    /// How long the attributes may be.
    pub attributes_ttl: Duration,
    /// The attributes.
    pub attributes: Attributes,
}

/// The attributes of a file, as stat(2) shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Sectors of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file: 12 bits of the major one at bit 8, the minor one around it.
    pub rdev: u32,
    /// Bytes that are best read and written at once.
    pub block_size: u32,
}

/// A file or directory that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// What requests will call it.
    pub handle: u64,
    /// How it is used.
    pub flags: OpenedFlags,
}

bitflags::bitflags! {
    /// How the kernel uses what is open.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenedFlags: u32 {
        /// Past the page cache.
        const DIRECT_IO = 1 << 0;
        /// What is cached of it stays.
        const KEEP_CACHE = 1 << 1;
        /// It has no position that could be changed.
        const NONSEEKABLE = 1 << 2;
        /// The entries of the directory are cached.
        const CACHE_DIR = 1 << 3;
        /// It has no position.
        const STREAM = 1 << 4;
        /// Closing writes nothing back.
        const NOFLUSH = 1 << 5;
        /// Several direct writes at a time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

/// statfs(2). Counts of blocks are in `fragment_size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Blocks.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones that everybody may have.
    pub blocks_available: u64,
    /// Inodes.
    pub files: u64,
    /// Free ones.
    pub files_free: u64,
    /// Bytes that are best read and written at once.
    pub block_size: u32,
    /// Bytes in the longest name.
    pub name_len_max: u32,
    /// Bytes in a block.
    pub fragment_size: u32,
}

impl Attributes {
    fn to_wire(self) -> abi::Attr {
        let [(atime, atimensec), (mtime, mtimensec), (ctime, ctimensec)] =
            [self.atime, self.mtime, self.ctime].map(Time::to_wire);
        abi::Attr {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime,
            mtime,
            ctime,
            atimensec,
            mtimensec,
            ctimensec,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.block_size,
            flags: 0,
        }
    }

    fn to_statx(self, btime: Option<Time>) -> abi::Statx {
        let time = |time: Time| {
            let (secs, tv_nsec) = time.to_wire();
            abi::SxTime { tv_sec: secs.cast_signed(), tv_nsec, reserved: 0 }
        };
        abi::Statx {
            mask: STATX_BASIC_STATS | if btime.is_some() { STATX_BTIME } else { 0 },
            blksize: self.block_size,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            mode: self.mode as u16,
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: time(self.atime),
            btime: time(btime.unwrap_or_default()),
            ctime: time(self.ctime),
            mtime: time(self.mtime),
            rdev_major: self.rdev >> 8 & 0xfff,
            rdev_minor: self.rdev & 0xff | self.rdev >> 12 & 0xf_ff00,
            ..abi::Statx::default()
        }
    }
}

impl Entry {
    pub(crate) fn to_wire(self) -> abi::EntryOut {
        let (entry_valid, entry_valid_nsec) = ttl(self.name_ttl);
        let (attr_valid, attr_valid_nsec) = ttl(self.attributes_ttl);
        abi::EntryOut {
            nodeid: self.node,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attributes.to_wire(),
        }
    }
}

impl Opened {
    pub(crate) fn to_wire(self) -> abi::OpenOut {
        abi::OpenOut { fh: self.handle, open_flags: self.flags.bits(), backing_id: 0 }
    }
}

impl Statfs {
    pub(crate) fn to_wire(self) -> abi::StatfsOut {
        abi::StatfsOut {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.name_len_max,
            frsize: self.fragment_size,
            ..abi::StatfsOut::default()
        }
    }
}

pub(crate) fn attr_out(attributes: Attributes, valid: Duration) -> abi::AttrOut {
    let (attr_valid, attr_valid_nsec) = ttl(valid);
    abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attributes.to_wire() }
}

pub(crate) fn statx_out(
    attributes: Attributes,
    btime: Option<Time>,
    valid: Duration,
) -> abi::StatxOut {
    let (attr_valid, attr_valid_nsec) = ttl(valid);
    let stat = attributes.to_statx(btime);
    abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..abi::StatxOut::default() }
}
