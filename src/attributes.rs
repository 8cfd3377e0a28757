//! Attributes and times, between the kernel's form and the volume's.
//!
//! Owns: both conversions, and the clock.
//! Promises: a time that the kernel gave comes back to the nanosecond, before 1970 too.
//! Never: rounds or refuses a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use nix::time::{ClockId, clock_gettime};
use sfs_core::format::{FileKind, Inode, InodeFlags, Timestamp};

/// The unit of `st_blocks`.
const SECTOR_SIZE: u64 = 512;

/// Sectors in a block.
const BLOCK_SECTORS: u64 = sfs_device::BLOCK_SIZE as u64 / SECTOR_SIZE;

/// The time now, by the clock that the kernel takes a file's times from.
pub(crate) fn now() -> Timestamp {
    match clock_gettime(ClockId::CLOCK_REALTIME_COARSE) {
        Ok(now) if now.tv_sec() >= 0 => {
            Timestamp { secs: now.tv_sec(), nanos: now.tv_nsec() as u32 }
        }
        _ => Timestamp::default(), // A clock before 1970 is not set at all.
    }
}

/// The time in a SETATTR request.
///
/// fuser 0.18 subtracts the nanoseconds of a time before 1970 instead of adding them. Nothing is
/// lost by that: its distance from 1970 still has the kernel's seconds and nanoseconds apart.
pub(crate) fn requested(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let secs = 0_i64.wrapping_sub_unsigned(before.as_secs());
            Timestamp { secs, nanos: before.subsec_nanos() }
        }
    }
}

/// As [`requested`], where the kernel may leave it to us to say what time it is.
pub(crate) fn requested_or(time: TimeOrNow, now: Timestamp) -> Timestamp {
    match time {
        TimeOrNow::SpecificTime(time) => requested(time),
        TimeOrNow::Now => now,
    }
}

/// The attributes of inode `ino` as the kernel takes them.
pub(crate) fn of(ino: u64, inode: &Inode) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: inode.size,
        blocks: sectors(inode),
        atime: system_time(inode.atime),
        mtime: system_time(inode.mtime),
        ctime: system_time(inode.ctime),
        crtime: system_time(inode.btime),
        kind: file_type(inode.kind()),
        perm: (inode.mode & 0o7777) as u16,
        nlink: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        blksize: sfs_device::BLOCK_SIZE as u32,
        flags: 0,
    }
}

/// The attributes that stand for "no such name": inode number 0, which the kernel may remember.
pub(crate) fn absent() -> FileAttr {
    bare(0, FileKind::Regular)
}

/// The attributes of "." and ".." in a directory, of which the kernel uses number and kind.
pub(crate) fn bare(ino: u64, kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: file_type(kind),
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: sfs_device::BLOCK_SIZE as u32,
        flags: 0,
    }
}

/// What the kernel calls `kind`.
pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Socket => FileType::Socket,
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

/// The time for a reply, which fuser 0.18 converts rightly.
fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.secs.unsigned_abs());
    let whole = match time.secs >= 0 {
        true => UNIX_EPOCH.checked_add(seconds),
        false => UNIX_EPOCH.checked_sub(seconds),
    };
    let nanos = Duration::from_nanos(time.nanos.into());
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fuser 0.18 does it.
    fn as_fuser_decodes(time: Timestamp) -> SystemTime {
        let duration = Duration::new(time.secs.unsigned_abs(), time.nanos);
        if time.secs >= 0 { UNIX_EPOCH + duration } else { UNIX_EPOCH - duration }
    }

    #[test]
    fn times_come_back_to_the_nanosecond() {
        for secs in [i64::MIN + 1, -2, -1, 0, 1, 1 << 40, i64::MAX] {
            for nanos in [0, 1, 999_999_999] {
                let time = Timestamp { secs, nanos };
                assert_eq!(requested(as_fuser_decodes(time)), time);
                let reply = system_time(time);
                let whole = reply.checked_sub(Duration::from_nanos(nanos.into()));
                assert_eq!(whole.map(requested), Some(Timestamp { secs, nanos: 0 }));
            }
        }
        let least = Timestamp { secs: i64::MIN, nanos: 0 };
        assert_eq!(requested(system_time(least)), least);
    }
}
