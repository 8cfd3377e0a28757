//! The table from errors of the volume to error numbers. The table is exhaustive: a new error does not compile without its
//! line here.

use std::io::ErrorKind;

use sfs_core::Error;
use sfs_fuse::Errno;

/// Returns the error number of `error`. EIO stands for errors that the log explains, and ESTALE for a state of a volume in an object
/// store of which objects are deleted.
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
        Error::NoMemory => libc::ENOMEM,
        Error::ReadOnly => libc::EROFS,
        Error::Device(error) if error.source.kind() == ErrorKind::StaleNetworkFileHandle => {
            libc::ESTALE
        }
        Error::Stopped
        | Error::Corrupt(_)
        | Error::Incompatible(_)
        | Error::DeviceTooSmall { .. }
        | Error::Device(_) => libc::EIO,
    })
}

/// Returns whether the image or the device is at fault, and not the caller; such errors are logged.
/// [`Error::Stopped`] follows from an error that was logged already.
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
        let corruption = Corruption::in_block(Structure::Node, 7, CorruptionKind::Checksum);
        assert!(is_failure(&Error::Corrupt(corruption)));
    }
}
