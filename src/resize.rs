//! `sfs-ctl resize`: changes the size of a volume.
//!
//! The daemon of a mount does it through its control socket, while the mount is used. A device that is not mounted is
//! opened as for a mount, and closed with a last checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, FileDevice, OpenErrorKind};

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::mount;
use crate::resize_report;
pub use crate::resize_report::ResizeReport;
use crate::volume_path::{VolumePath, find};

/// Longest wait for a daemon that resizes its volume.
const RESIZE_WAIT_MAX: Duration = Duration::from_secs(600);

/// Resizes the volume at `path`, a mount point or a device, to `bytes` bytes, or to the size of its device.
///
/// # Errors
///
/// [`ExitError`] with the reason; the volume then has its old size unless the line says that the device failed.
pub fn resize(path: &Path, bytes: Option<u64>) -> Result<ResizeReport, ExitError> {
    match find(path)? {
        VolumePath::Mounted(mount) => {
            let request = ControlRequest::Resize { bytes };
            match control::ask_within(&mount, &request, RESIZE_WAIT_MAX)? {
                ControlReply::Resized(report) => Ok(report),
                _ => Err(control::unknown_reply(&mount)),
            }
        }
        VolumePath::Device(path) => of_device(&path, bytes),
    }
}

fn of_device(path: &Path, bytes: Option<u64>) -> Result<ResizeReport, ExitError> {
    sfs_mkfs::refuse_in_use(path).map_err(ExitError::mount)?;
    let device = FileDevice::open(path, Access::ReadWrite).map_err(|error| match error.kind {
        OpenErrorKind::Permission => ExitError::usage(&error),
        _ => ExitError::mount(&error),
    })?;
    let device = Arc::new(device);
    let options = VolumeOptions::default();
    let volume = Volume::open(device.clone(), options, file_clock::now())
        .map_err(|error| mount::explain(&error, path, &device))?;
    let shown = path.display();
    let resized = resize_report::resize(&volume, bytes)
        .map_err(|error| ExitError::mount(format_args!("{shown}: {error}")));
    let closed = volume.close();
    let resized = resized?;
    closed.map_err(|error| ExitError::mount(format_args!("{shown}: {error}; run sfs-fsck")))?;
    Ok(resized)
}
