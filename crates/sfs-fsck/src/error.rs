//! Why a volume could not be checked, or not be repaired.
//!
//! Owns: the error type; damage is no error but a finding.
//! Promises: one line each, with the remedy where there is one.
//! Never: means that the volume is damaged, except for [`FsckError::SuperblocksLost`].

use std::fmt;

use sfs_core::format::Incompatibility;
use sfs_device::DeviceError;

/// Why a volume could not be checked, or not be repaired.
#[derive(Debug)]
pub enum FsckError {
    /// The device did not give its superblock.
    Device(DeviceError),
    /// There is no SFS volume.
    NotSfs {
        /// What there is instead, if it is known.
        instead: Option<&'static str>,
    },
    /// The volume is of a newer program.
    Incompatible(Incompatibility),
    /// Both superblocks are damaged.
    SuperblocksLost,
    /// The device is smaller than its volume.
    Truncated {
        /// Blocks of the device.
        device: u64,
        /// Blocks of the volume.
        volume: u64,
    },
    /// The caller did not want to go on.
    Cancelled,
    /// There is nothing of this kind to be shown.
    NotThere(&'static str),
    /// Remedies go on finding something to do.
    NoEnd,
    /// Too few segments are Clean to write the repaired tree beside the damaged one.
    NoRoom,
    /// The repaired volume could not be written; the damaged one is as it was.
    Write(sfs_core::Error),
}

impl fmt::Display for FsckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::NotSfs { instead: Some(name) } => write!(f, "not an SFS volume, but: {name}"),
            Self::NotSfs { instead: None } => f.write_str("not an SFS volume"),
            Self::Incompatible(reason) => write!(f, "{reason}: upgrade sfs"),
            Self::SuperblocksLost => f.write_str("both superblocks are damaged"),
            Self::Truncated { device, volume } => write!(
                f,
                "the device has {device} blocks and its volume {volume}: \
                 a truncated image, or the wrong partition table"
            ),
            Self::Cancelled => f.write_str("cancelled; nothing was changed"),
            Self::NotThere(what) => write!(f, "there is no such {what}"),
            Self::NoEnd => f.write_str(
                "the repair comes to no end; nothing was changed: please report it, with the output of \
                 sfs-fsck -n --json",
            ),
            Self::NoRoom => f.write_str(
                "too few segments are free to write the repaired tree; nothing was changed: \
                 copy the image to a larger device's file and repair that, or mount with -o ro and \
                 copy what can be read",
            ),
            Self::Write(error) => write!(f, "nothing was changed: {error}"),
        }
    }
}

impl std::error::Error for FsckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            Self::Incompatible(what) => Some(what),
            Self::Write(error) => Some(error),
            _ => None,
        }
    }
}

impl From<sfs_core::Error> for FsckError {
    fn from(error: sfs_core::Error) -> Self {
        match error {
            sfs_core::Error::NoSpace => Self::NoRoom,
            sfs_core::Error::Device(error) => Self::Device(error),
            sfs_core::Error::Incompatible(what) => Self::Incompatible(what),
            error => Self::Write(error),
        }
    }
}

impl From<DeviceError> for FsckError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
