//! Everything that can go wrong, split by whose fault it is.
//!
//! Owns: the error type of the crate.
//! Promises: no variant carries text; a caller can tell its own mistake from the image's and the
//! device's.
//! Never: maps to errno; the FUSE shell does.

use std::fmt;

use sfs_device::DeviceError;

use crate::format::{Corruption, DecodeError, Incompatibility};

/// A failed operation.
#[derive(Debug)]
pub enum Error {
    /// No such file, directory entry or inode.
    NotFound,
    /// The name exists already.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// A directory, where something else was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// No such extended attribute.
    NoAttribute,
    /// An argument is not allowed.
    Invalid,
    /// The name is longer than 255 bytes.
    NameTooLong,
    /// The file would be larger than 16 TiB.
    FileTooLarge,
    /// Too many links to a file.
    TooManyLinks,
    /// The value is longer than allowed.
    ValueTooLong,
    /// The caller gave too small a range.
    OutOfRange,
    /// Not permitted on this file.
    NotPermitted,
    /// Not supported on this file.
    NotSupported,
    /// The device is full.
    NoSpace,
    /// The volume cannot be changed: by option, or since a write has failed.
    ReadOnly,
    /// Nothing is written any more, since a write has failed or the volume was shut down: what is not
    /// durable is lost.
    Stopped,
    /// The image is not what it should be.
    Corrupt(Corruption),
    /// The image is of a newer program.
    Incompatible(Incompatibility),
    /// The device is smaller than the volume; blocks there are, and should be.
    DeviceTooSmall {
        /// Blocks of the device.
        device: u64,
        /// Blocks of the volume.
        volume: u64,
    },
    /// The device did not carry out a request.
    Device(DeviceError),
}

/// The result of an operation of the volume.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::Exists => f.write_str("exists already"),
            Self::NotDirectory => f.write_str("not a directory"),
            Self::IsDirectory => f.write_str("is a directory"),
            Self::NotEmpty => f.write_str("directory is not empty"),
            Self::NoAttribute => f.write_str("no such extended attribute"),
            Self::Invalid => f.write_str("invalid argument"),
            Self::NameTooLong => f.write_str("name is too long"),
            Self::FileTooLarge => f.write_str("file would be too large"),
            Self::TooManyLinks => f.write_str("too many links"),
            Self::ValueTooLong => f.write_str("value is too long"),
            Self::OutOfRange => f.write_str("result does not fit"),
            Self::NotPermitted => f.write_str("not permitted"),
            Self::NotSupported => f.write_str("not supported"),
            Self::NoSpace => f.write_str("no space left on the volume"),
            Self::ReadOnly => f.write_str("the volume is read-only"),
            Self::Stopped => f.write_str(
                "nothing is written any more since a write failed, or the volume was shut down",
            ),
            Self::Corrupt(corruption) => corruption.fmt(f),
            Self::Incompatible(incompatibility) => incompatibility.fmt(f),
            Self::DeviceTooSmall { device, volume } => {
                write!(f, "the device has {device} blocks, but its volume {volume}")
            }
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Corrupt(corruption) => Some(corruption),
            Self::Incompatible(what) => Some(what),
            Self::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(corruption)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Corrupt(corruption) => Self::Corrupt(corruption),
            DecodeError::Incompatible(what) => Self::Incompatible(what),
        }
    }
}

impl From<Incompatibility> for Error {
    fn from(incompatibility: Incompatibility) -> Self {
        Self::Incompatible(incompatibility)
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
