//! The error type of the crate.
//!
//! Variants tell the caller's mistakes, damage of the image, a newer format and device errors apart. The FUSE shell
//! maps them to errno.

use sfs_device::DeviceError;
use thiserror::Error;

use crate::format::{Corruption, DecodeError, Incompatibility};

/// A failed operation.
#[derive(Debug, Error)]
pub enum Error {
    /// The file, directory entry or inode does not exist.
    #[error("not found")]
    NotFound,
    /// The name exists already.
    #[error("exists already")]
    Exists,
    /// The file is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The file is a directory, which the operation does not allow.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory is not empty")]
    NotEmpty,
    /// The extended attribute does not exist.
    #[error("no such extended attribute")]
    NoAttribute,
    /// An argument is not allowed.
    #[error("invalid argument")]
    Invalid,
    /// The name is longer than 255 bytes.
    #[error("name is too long")]
    NameTooLong,
    /// The file would be larger than 16 TiB.
    #[error("file would be too large")]
    FileTooLarge,
    /// The file has as many links as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The value is longer than allowed.
    #[error("value is too long")]
    ValueTooLong,
    /// The result does not fit in the caller's range.
    #[error("result does not fit")]
    OutOfRange,
    /// The operation is not permitted on this file.
    #[error("not permitted")]
    NotPermitted,
    /// The operation is not supported on this file.
    #[error("not supported")]
    NotSupported,
    /// The volume has no space left.
    #[error("no space left on the volume")]
    NoSpace,
    /// The system has no memory for the data of a request.
    #[error("no memory for data")]
    NoMemory,
    /// The volume cannot be changed: by a mount option, or because a write has failed.
    #[error("the volume is read-only")]
    ReadOnly,
    /// Writing has stopped, because a write failed or the volume was shut down. Data that is not durable is lost.
    #[error("writing has stopped, because a write failed or the volume was shut down")]
    Stopped,
    /// The image is damaged.
    #[error("{0}")]
    Corrupt(#[from] Corruption),
    /// The image needs a newer program.
    #[error("{0}")]
    Incompatible(#[from] Incompatibility),
    /// The device is smaller than the volume.
    #[error("the device has {device} blocks, but its volume has {volume}")]
    DeviceTooSmall {
        /// Number of blocks of the device.
        device: u64,
        /// Number of blocks of the volume.
        volume: u64,
    },
    /// The device failed a request.
    #[error("{0}")]
    Device(#[from] DeviceError),
}

/// The result of an operation of the volume.
pub type Result<T> = std::result::Result<T, Error>;

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt(corruption) => Self::Corrupt(corruption),
            DecodeError::Incompatible(incompatibility) => Self::Incompatible(incompatibility),
        }
    }
}
