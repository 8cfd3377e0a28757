//! Conversions between the types of `sfs-fuse` and those of fuser 0.18: times, attributes and errors.
//!
//! Times are converted exactly, to the nanosecond, also before 1970. No time is rounded or refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use sfs_core::format::FileKind;
use sfs_fuse::{Errno, NodeAttributes, NodeEntry, SetTime, Time};

pub(super) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.code())
}

/// Converts a time that fuser has decoded.
///
/// For a time before 1970 fuser subtracts the nanoseconds instead of adding them. The conversion loses no
/// information: the distance from 1970 still has the kernel's seconds and nanoseconds apart.
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

/// Converts a time to the form that fuser encodes correctly.
fn system_time(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.secs.unsigned_abs());
    let whole = match time.secs >= 0 {
        true => UNIX_EPOCH.checked_add(seconds),
        false => UNIX_EPOCH.checked_sub(seconds),
    };
    let nanos = Duration::from_nanos(time.nanos.into());
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// Converts the attributes in a reference to a file. fuser takes the reference's inode number from them.
pub(super) fn attributes(file: &NodeEntry) -> FileAttr {
    FileAttr { ino: INodeNo(file.node), ..file_attr(&file.attributes) }
}

pub(super) fn file_attr(attributes: &NodeAttributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: system_time(attributes.atime),
        mtime: system_time(attributes.mtime),
        ctime: system_time(attributes.ctime),
        crtime: UNIX_EPOCH, // Linux has no field for it in these requests.
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

/// Returns the file type in `mode`; a regular file if there is none.
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

    /// Decodes a time as fuser 0.18 does.
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
