//! `sfs-ctl freeze` and `sfs-ctl thaw`.

use std::fs::File;
use std::path::Path;

use sfs_system::mountinfo::{self, MountRecord};

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::{self, ExitError};

/// Freezes the volume that is mounted at `dir` for at most `secs` seconds. On return everything written before is on the
/// device, and a copy of the device is a clean volume.
///
/// # Errors
///
/// [`ExitError`] with a line that names the mount and the obstacle.
pub fn freeze(dir: &Path, secs: u64) -> Result<(), ExitError> {
    let mount = find(dir)?;
    let shown = mount.dir.display();
    // The kernel's cache comes first: what is in it when the mount is frozen waits there.
    let flushed = File::open(&mount.dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    flushed.map_err(|error| {
        ExitError::mount(format_args!("{shown}: {}", exit_error::reason(&error)))
    })?;
    match control::ask(&mount, &ControlRequest::Freeze(secs))? {
        ControlReply::Frozen => Ok(()),
        _ => Err(control::unknown_reply(&mount)),
    }
}

/// Thaws the volume that is mounted at `dir`.
///
/// # Errors
///
/// [`ExitError`] as [`freeze`]; also if the volume is not frozen any more.
pub fn thaw(dir: &Path) -> Result<(), ExitError> {
    let mount = find(dir)?;
    match control::ask(&mount, &ControlRequest::Thaw)? {
        ControlReply::Thawed => Ok(()),
        _ => Err(control::unknown_reply(&mount)),
    }
}

pub(crate) fn find(dir: &Path) -> Result<MountRecord, ExitError> {
    let shown = dir.display();
    let dir = dir.canonicalize().map_err(|error| {
        ExitError::usage(format_args!("{shown}: {}", exit_error::reason(&error)))
    })?;
    let mount = mountinfo::at(&dir)
        .map_err(|error| ExitError::system(format_args!("/proc/self/mountinfo: {error}")))?
        .ok_or_else(|| ExitError::usage(format_args!("{shown}: not a mount point")))?;
    if mount.is_sfs() {
        Ok(mount)
    } else {
        Err(ExitError::mount(format_args!("{shown}: not an SFS volume")))
    }
}
