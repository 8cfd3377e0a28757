//! Parts of replies that describe one file: its attributes, a reference to it, and an open handle of it.
//!
//! Each type here, and the reply to statfs(2), converts itself to the kernel's form in `abi`, field
//! by field. Times before 1970 keep their value.

use std::time::Duration;

use crate::protocol::abi;
use crate::protocol::timestamps::{Time, ttl};

/// Bits of statx(2) for the attributes that every file has.
const STATX_BASIC_STATS: u32 = 0x7ff;
/// Bit of statx(2) for the time of birth.
const STATX_BTIME: u32 = 0x800;

/// Reference to a file, in the reply to a request that names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeEntry {
    /// Number by which requests name the inode from now on; 0 if the name does not exist, which the
    /// kernel may cache.
    pub node: u64,
    /// Generation, which differs between two inodes that had the same number.
    pub generation: u64,
    /// Time for which the kernel may cache the name.
    pub name_ttl: Duration,
    /// Time for which the kernel may cache the attributes.
    pub attributes_ttl: Duration,
    /// Attributes of the file.
    pub attributes: NodeAttributes,
}

/// Attributes of a file, as stat(2) shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAttributes {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated sectors of 512 bytes.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of attributes.
    pub ctime: Time,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// User number of the owner.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Device number of a device file: 12 bits of the major number at bit 8, the minor number around it.
    pub rdev: u32,
    /// Preferred length of a read or write, in bytes.
    pub block_size: u32,
}

/// Open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReply {
    /// Number by which requests name the open file.
    pub handle: u64,
    /// Flags of the open file, for the kernel.
    pub flags: OpenReplyFlags,
}

bitflags::bitflags! {
    /// Flags of an open file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenReplyFlags: u32 {
        /// Reads and writes bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Cached data of the file stays valid.
        const KEEP_CACHE = 1 << 1;
        /// The position in the file cannot be changed.
        const NONSEEKABLE = 1 << 2;
        /// The kernel caches the entries of the directory.
        const CACHE_DIR = 1 << 3;
        /// The file has no position.
        const STREAM = 1 << 4;
        /// Closing the file writes nothing back.
        const NOFLUSH = 1 << 5;
        /// Allows several direct writes at a time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

/// Reply to statfs(2). Blocks are counted in units of `fragment_size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub blocks_free: u64,
    /// Number of free blocks for ordinary users.
    pub blocks_available: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub files_free: u64,
    /// Preferred length of a read or write, in bytes.
    pub block_size: u32,
    /// Length of the longest name, in bytes.
    pub name_len_max: u32,
    /// Size of a block, in bytes.
    pub fragment_size: u32,
}

impl NodeAttributes {
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

impl NodeEntry {
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

impl OpenReply {
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

pub(crate) fn attr_out(attributes: NodeAttributes, valid: Duration) -> abi::AttrOut {
    let (attr_valid, attr_valid_nsec) = ttl(valid);
    abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attributes.to_wire() }
}

pub(crate) fn statx_out(
    attributes: NodeAttributes,
    btime: Option<Time>,
    valid: Duration,
) -> abi::StatxOut {
    let (attr_valid, attr_valid_nsec) = ttl(valid);
    let stat = attributes.to_statx(btime);
    abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..abi::StatxOut::default() }
}
