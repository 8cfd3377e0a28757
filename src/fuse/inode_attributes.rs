//! NodeAttributes and times, between the kernel's form and the volume's.
//!
//! Owns: both conversions, and the clock.
//! Promises: a time that the kernel gave comes back to the nanosecond, before 1970 too.
//! Never: rounds or refuses a time.

use sfs_core::format::{FileKind, Inode, InodeFlags, Timestamp};
use sfs_fuse::{NodeAttributes, SetTime, Time};

/// The unit of `st_blocks`.
const SECTOR_SIZE: u64 = 512;

/// Sectors in a block.
const BLOCK_SECTORS: u64 = sfs_device::BLOCK_SIZE as u64 / SECTOR_SIZE;

/// Of a file that is not there.
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

/// A time that the kernel says.
pub(crate) fn requested(time: Time) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}

/// As [`requested`], where the kernel may leave it to us to say what time it is.
pub(crate) fn requested_or(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::At(time) => requested(time),
        SetTime::Now => now,
    }
}

/// A time for the kernel.
pub(crate) fn time(time: Timestamp) -> Time {
    Time { secs: time.secs, nanos: time.nanos }
}

/// The attributes of inode `ino` as the kernel takes them.
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

/// `st_blocks`. Never zero for a regular file: tar takes a file without blocks for one hole, and
/// would archive zeros. A file may live in its tree item, in the write buffer, or, whatever size we
/// know of, in the kernel's cache alone.
fn sectors(inode: &Inode) -> u64 {
    let sectors = match inode.flags.contains(InodeFlags::INLINE) {
        true => inode.size.div_ceil(SECTOR_SIZE),
        false => inode.blocks.saturating_mul(BLOCK_SECTORS),
    };
    sectors.max(u64::from(inode.kind() == FileKind::Regular))
}
