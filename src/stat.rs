//! `sfs-ctl stat`: the numbers of a volume.
//!
//! The daemon of a mount is asked through its control socket, never through the mount itself, which may not answer.
//! A device that is not mounted is opened for reading, and nothing is written to it.

use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, FileDevice, OpenErrorKind};
use sfs_system::mountinfo::MountRecord;

use crate::control::{ControlClient, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::mount;
use crate::stat_report::VolumeReport;
use crate::volume_path::{VolumePath, find};

/// Reports on the volume at `path`: a mount point or a device.
///
/// # Errors
///
/// [`ExitError`] with a line that states the kind of `path`, or the reason why the daemon cannot be
/// asked.
pub fn stat(path: &Path) -> Result<VolumeReport, ExitError> {
    match find(path)? {
        VolumePath::Mounted(mount) => of_mounted(&mount),
        VolumePath::Device(path) => of_device(&path),
    }
}

fn of_mounted(mount: &MountRecord) -> Result<VolumeReport, ExitError> {
    let shown = mount.dir.display();
    let client = ControlClient::connect(mount);
    match client.and_then(|client| client.ask(&ControlRequest::Status)) {
        Ok(ControlReply::Status(report)) => {
            let dir = mount.dir.to_string_lossy().into_owned();
            Ok(VolumeReport { mount_point: Some(dir), read_only: mount.is_read_only(), ..*report })
        }
        Ok(ControlReply::Failed { status, line }) => Err(ExitError::with_status(status, line)),
        Ok(_) => Err(ExitError::mount(format_args!("{shown}: its daemon sent an unknown reply"))),
        Err(trouble) => Err(ExitError::mount(format_args!("{shown}: {trouble}"))),
    }
}

fn of_device(path: &Path) -> Result<VolumeReport, ExitError> {
    let volume = open_unmounted(path)?;
    Ok(VolumeReport::of_device(&volume, &path.to_string_lossy()))
}

/// Opens the volume on the device `path` for reading; nothing is written to the device.
pub(crate) fn open_unmounted(path: &Path) -> Result<Volume, ExitError> {
    let device = FileDevice::open(path, Access::ReadOnly).map_err(|error| match error.kind {
        OpenErrorKind::Permission => ExitError::usage(&error),
        OpenErrorKind::Busy => ExitError::mount(format_args!(
            "{error}; if SFS is mounted in another namespace, run sfs-ctl there"
        )),
        _ => ExitError::mount(&error),
    })?;
    let device = Arc::new(device);
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    Volume::open(device.clone(), options, file_clock::now())
        .map_err(|error| mount::explain(&error, path, &device))
}
