//! Reasons why a volume cannot be checked or repaired.
//!
//! Damage is a finding and not an error, with one exception: [`FsckError::SuperblocksLost`].

use sfs_core::format::Incompatibility;
use sfs_device::DeviceError;
use thiserror::Error;

/// Reason why a volume cannot be checked, repaired or shown.
#[derive(Debug, Error)]
pub enum FsckError {
    /// The device failed a request without which the work cannot continue.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// The device holds no SFS volume.
    #[error("not an SFS volume{}", .instead.map(|name| format!("; found: {name}")).unwrap_or_default())]
    NotSfs {
        /// Name of the format found instead, if it is known.
        instead: Option<&'static str>,
    },
    /// The volume needs a newer program.
    #[error("{0}: upgrade sfs")]
    Incompatible(#[source] Incompatibility),
    /// Both superblocks are damaged.
    #[error("both superblocks are damaged")]
    SuperblocksLost,
    /// The device is smaller than its volume.
    #[error(
        "the device has {device} blocks, but its volume has {volume}: \
         the image is truncated, or the partition table is wrong"
    )]
    Truncated {
        /// Number of blocks of the device.
        device: u64,
        /// Number of blocks of the volume.
        volume: u64,
    },
    /// The caller cancelled before anything was written.
    #[error("cancelled; nothing was changed")]
    Cancelled,
    /// The volume does not have the requested structure, which is of this kind.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The fixes of a repair do not converge.
    #[error(
        "the repair does not converge; nothing was changed: please report it, with the output of \
         sfs-fsck -n --json"
    )]
    NotConverging,
    /// Too few segments are Clean to write the repaired tree beside the damaged one.
    #[error(
        "too few segments are free to write the repaired tree; nothing was changed: \
         mount the volume with -o ro and copy the readable files"
    )]
    NoSpace,
    /// The repaired volume could not be written. The damaged volume is unchanged.
    #[error("nothing was changed: {0}")]
    Write(#[source] sfs_core::Error),
}

impl From<sfs_core::Error> for FsckError {
    fn from(error: sfs_core::Error) -> Self {
        match error {
            sfs_core::Error::NoSpace => Self::NoSpace,
            sfs_core::Error::Device(error) => Self::Device(error),
            sfs_core::Error::Incompatible(reason) => Self::Incompatible(reason),
            error => Self::Write(error),
        }
    }
}
