//! Reasons why a cache cannot be used.

use sfs_device::DeviceError;
use thiserror::Error;

/// Reason why a device is not the cache that was looked for, or cannot be used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// No block of the device has a header of a cache.
    #[error("no cache of SFS")]
    NotACache,
    /// The header is of a later format version.
    #[error("cache of format version {0}, which is newer than this program knows")]
    Newer(u32),
    /// The cache belongs to another volume.
    #[error("cache of another volume")]
    OtherVolume,
    /// The device is smaller than the header says.
    #[error("the device has fewer blocks than the cache")]
    Truncated,
    /// The cache has blocks that are nowhere else. No program of this version writes any.
    #[error("the cache has blocks that are not on the disk yet")]
    Dirty,
    /// The device is too small for the sections.
    #[error("too small for a cache: {0} blocks, and at least {1} are needed")]
    TooSmall(u64, u64),
    /// The device failed a request.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
