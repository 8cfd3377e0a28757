//! Conversions of attributes and times between the kernel's form and the volume's.
//!
//! Times are converted exactly, to the nanosecond, also before 1970; no time is rounded or refused.

use sfs_core::format::{FileKind, Inode, InodeFlags, Timestamp};
use sfs_fuse::{NodeAttributes, SetTime, Time};

/// Unit of `st_blocks`, in bytes.
const SECTOR_SIZE: u64 = 512;

/// Number of sectors in a block.
const BLOCK_SECTORS: u64 = sfs_device::BLOCK_SIZE as u64 / SECTOR_SIZE;

/// Attributes in a reply for a name that does not exist.
pub(crate) const NONE: NodeAttributes = {
    let never = Time { secs: 0, nanos: 0 };
    NodeAttributes {
        ino: 0,
        size: 0,
        blocks: 0,
        atime: never,
        mtime: never,
        ctime: never,
        mode: 0,
        links: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size: sfs_device::BLOCK_SIZE as u32,
    }
};

/// Converts a time of a request.
pub(crate) fn requested(time: Time) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}

/// Converts a time of a request that may leave the choice of the time to SFS.
pub(crate) fn requested_or(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::At(time) => requested(time),
        SetTime::Now => now,
    }
}

/// Converts a time for a reply.
pub(crate) fn time(time: Timestamp) -> Time {
    Time { secs: time.secs, nanos: time.nanos }
}

/// Converts the attributes of inode `ino` for a reply.
pub(crate) fn of(ino: u64, inode: &Inode) -> NodeAttributes {
    NodeAttributes {
        ino,
        size: inode.size,
        blocks: sectors(inode),
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        mode: inode.mode,
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        block_size: sfs_device::BLOCK_SIZE as u32,
    }
}

/// Returns `st_blocks`. The count is never zero for a regular file, because tar takes a file
/// without blocks for one hole and would archive zeros. The data of a file may be in its tree item,
/// in the write buffer or only in the kernel's cache.
fn sectors(inode: &Inode) -> u64 {
    let sectors = match inode.flags.contains(InodeFlags::INLINE) {
        true => inode.size.div_ceil(SECTOR_SIZE),
        false => inode.blocks.saturating_mul(BLOCK_SECTORS),
    };
    sectors.max(u64::from(inode.kind() == FileKind::Regular))
}
