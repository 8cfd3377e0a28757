//! The volume that a path on a command line means: a mount, or a device that is not mounted.

use std::path::{Path, PathBuf};

use sfs_system::mountinfo::{self, MountRecord};

use crate::exit_error::{self, ExitError};

/// A volume on a command line.
pub(crate) enum VolumePath {
    /// A mount of SFS, found by its mount point or its device.
    Mounted(MountRecord),
    /// A block device or an image file without a mount in this namespace.
    Device(PathBuf),
}

/// Finds the volume at `path`.
///
/// # Errors
///
/// [`ExitError`] if the path does not exist, or is neither a mount of SFS nor a device.
pub(crate) fn find(path: &Path) -> Result<VolumePath, ExitError> {
    let shown = path.display();
    let path = path.canonicalize().map_err(|error| {
        ExitError::usage(format_args!("{shown}: {}", exit_error::reason(&error)))
    })?;
    let mounts = mountinfo::mounts()
        .map_err(|error| ExitError::system(format_args!("/proc/self/mountinfo: {error}")))?;
    let is_it = |mount: &MountRecord| {
        mount.dir == path || mount.kind.starts_with("fuse") && mount.source == path
    };
    match mounts.into_iter().rev().find(is_it) {
        Some(mount) if mount.is_sfs() => Ok(VolumePath::Mounted(mount)),
        Some(_) => Err(ExitError::mount(format_args!("{shown}: not an SFS volume"))),
        None if path.is_dir() => Err(ExitError::usage(format_args!("{shown}: not a mount point"))),
        None => Ok(VolumePath::Device(path)),
    }
}
