//! The device and the mount point of one mount.

use std::path::Path;

/// Device to mount, and the directory to mount it on.
pub(crate) struct MountTarget<'a> {
    /// Absolute path of the device or image file.
    pub(crate) device: &'a Path,
    /// `true` if the device is a block device.
    pub(crate) is_block_device: bool,
    /// Absolute path of the directory.
    pub(crate) dir: &'a Path,
}
