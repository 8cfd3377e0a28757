//! What the kernel is told about an error.
//!
//! Owns: the one table from [`Error`] to errno.
//! Promises: it is exhaustive: a new error does not compile until it has its line here.
//! Never: answers ENOSYS, which the kernel remembers for the whole mount.

use sfs_core::Error;
use sfs_fuse::Errno;

/// The errno of `error`. EIO stands for what the log has to explain.
pub(crate) fn of(error: &Error) -> Errno {
    Errno::new(match error {
        Error::NotFound => libc::ENOENT,
        Error::Exists => libc::EEXIST,
        Error::NotDirectory => libc::ENOTDIR,
        Error::IsDirectory => libc::EISDIR,
        Error::NotEmpty => libc::ENOTEMPTY,
        Error::NoAttribute => libc::ENODATA,
        Error::Invalid => libc::EINVAL,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::FileTooLarge => libc::EFBIG,
        Error::TooManyLinks => libc::EMLINK,
        Error::ValueTooLong => libc::E2BIG,
        Error::OutOfRange => libc::ENXIO,
        Error::NotPermitted => libc::EPERM,
        Error::NotSupported => libc::EOPNOTSUPP,
        Error::NoSpace => libc::ENOSPC,
        Error::ReadOnly => libc::EROFS,
        Error::Stopped
        | Error::Corrupt(_)
        | Error::Incompatible(_)
        | Error::DeviceTooSmall { .. }
        | Error::Device(_) => libc::EIO,
    })
}

/// Whether `error` is the image's or the device's fault, and not the caller's: those are logged. That the
/// volume has stopped follows from one that was.
pub(crate) fn is_failure(error: &Error) -> bool {
    of(error).code() == libc::EIO && !matches!(error, Error::Stopped)
}

#[cfg(test)]
mod tests {
    use sfs_core::format::{Corruption, CorruptionKind, Structure};

    use super::*;

    #[test]
    fn the_callers_mistakes_are_not_failures() {
        assert_eq!(of(&Error::OutOfRange).code(), libc::ENXIO);
        assert_eq!(of(&Error::NoAttribute).code(), libc::ENODATA);
        assert!(!is_failure(&Error::NoSpace));
        assert_eq!(of(&Error::Stopped).code(), libc::EIO);
        assert!(!is_failure(&Error::Stopped));
        let corruption = Corruption::new(Structure::Node, 7, CorruptionKind::Checksum);
        assert!(is_failure(&Error::Corrupt(corruption)));
    }
}
