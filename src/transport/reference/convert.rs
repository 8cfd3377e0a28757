//! Between the forms of sfs-fuse and those of fuser 0.18.
//!
//! Owns: times, attributes and errors.
//! Promises: a time that the kernel gave comes back to the nanosecond, before 1970 too.
//! Never: rounds or refuses a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use sfs_core::format::FileKind;
use sfs_fuse::{Attributes, Entry, Errno, SetTime, Time};

pub(super) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.code())
}

/// A time that fuser gives.
///
/// It subtracts the nanoseconds of a time before 1970 instead of adding them. Nothing is lost by
/// that: the distance from 1970 still has the kernel's seconds and nanoseconds apart.
pub(super) fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let secs = 0_i64.wrapping_sub_unsigned(before.as_secs());
            Time { secs, nanos: before.subsec_nanos() }
        }
    }
}

pub(super) fn set_time(asked: TimeOrNow) -> SetTime {
    match asked {
        TimeOrNow::SpecificTime(at) => SetTime::At(time(at)),
        TimeOrNow::Now => SetTime::Now,
    }
}

/// A time for fuser, which it converts rightly.
fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.secs.unsigned_abs());
    let whole = match time.secs >= 0 {
        true => UNIX_EPOCH.checked_add(seconds),
        false => UNIX_EPOCH.checked_sub(seconds),
    };
    let nanos = Duration::from_nanos(time.nanos.into());
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// The attributes of a file that a name leads to. fuser takes the number of the inode from them.
pub(super) fn attributes(file: &Entry) -> FileAttr {
    FileAttr { ino: INodeNo(file.node), ..file_attr(&file.attributes) }
}

pub(super) fn file_attr(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: UNIX_EPOCH, // Linux has no place for it.
        kind: file_type(attributes.mode),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: attributes.block_size,
        flags: 0,
    }
}

/// What fuser calls the type in `mode`; a regular file for none.
pub(super) fn file_type(mode: u32) -> FileType {
    match FileKind::from_mode(mode) {
        Some(FileKind::Regular) | None => FileType::RegularFile,
        Some(FileKind::Directory) => FileType::Directory,
        Some(FileKind::Symlink) => FileType::Symlink,
        Some(FileKind::Fifo) => FileType::NamedPipe,
        Some(FileKind::CharDevice) => FileType::CharDevice,
        Some(FileKind::BlockDevice) => FileType::BlockDevice,
        Some(FileKind::Socket) => FileType::Socket,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fuser 0.18 does it.
    fn as_fuser_decodes(time: Time) -> SystemTime {
        let duration = Duration::new(time.secs.unsigned_abs(), time.nanos);
        if time.secs >= 0 { UNIX_EPOCH + duration } else { UNIX_EPOCH - duration }
    }

    #[test]
    fn times_come_back_to_the_nanosecond() {
        for secs in [i64::MIN + 1, -2, -1, 0, 1, 1 << 40, i64::MAX] {
            for nanos in [0, 1, 999_999_999] {
                let asked = Time { secs, nanos };
                assert_eq!(time(as_fuser_decodes(asked)), asked);
                let reply = system_time(asked);
                let whole = reply.checked_sub(Duration::from_nanos(nanos.into()));
                assert_eq!(whole.map(time), Some(Time { secs, nanos: 0 }));
            }
        }
        let least = Time { secs: i64::MIN, nanos: 0 };
        assert_eq!(time(system_time(least)), least);
    }
}
