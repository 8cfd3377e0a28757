//! What the kernel is told about an error.
//!
//! Owns: the one table from [`Error`] to errno.
//! Promises: it is exhaustive: a new error does not compile until it has its line here.
//! Never: answers ENOSYS, which the kernel remembers for the whole mount.

use fuser::Errno;
use sfs_core::Error;

/// The errno of `error`. EIO stands for what the log has to explain.
pub(crate) fn of(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::Exists => Errno::EEXIST,
        Error::NotDirectory => Errno::ENOTDIR,
        Error::IsDirectory => Errno::EISDIR,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NoAttribute => Errno::ENODATA,
        Error::Invalid => Errno::EINVAL,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::FileTooLarge => Errno::EFBIG,
        Error::TooManyLinks => Errno::EMLINK,
        Error::ValueTooLong => Errno::E2BIG,
        Error::OutOfRange => Errno::ENXIO,
        Error::NotPermitted => Errno::EPERM,
        Error::NotSupported => Errno::EOPNOTSUPP,
        Error::NoSpace => Errno::ENOSPC,
        Error::ReadOnly => Errno::EROFS,
        Error::Corrupt(_)
        | Error::NewerFormat(_)
        | Error::DeviceTooSmall { .. }
        | Error::Device(_) => Errno::EIO,
    }
}

/// Whether `error` is the image's or the device's fault, and not the caller's: those are logged.
pub(crate) fn is_failure(error: &Error) -> bool {
    of(error).code() == libc::EIO
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
        let corruption = Corruption::new(Structure::Node, 7, CorruptionKind::Checksum);
        assert!(is_failure(&Error::Corrupt(corruption)));
    }
}
