//! `sfs-ctl stat`: the numbers of a volume.
//!
//! The daemon of a mount is asked through its control socket, never through the mount itself, which may not answer.
//! A device that is not mounted is opened for reading, and nothing is written to it.

use std::path::Path;
use std::time::Duration;

use sfs_system::mountinfo::MountRecord;

use crate::control::{self, ControlReply, ControlRequest};
use crate::exit_error::ExitError;
use crate::mount;
use crate::stat_report::VolumeReport;
use crate::volume_path::{VolumePath, find};

/// Longest wait for the daemon.
const WAIT_MAX: Duration = Duration::from_secs(5);

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
    match control::ask_within(mount, &ControlRequest::Status, WAIT_MAX)? {
        ControlReply::Status(report) => {
            let dir = mount.dir.to_string_lossy().into_owned();
            Ok(VolumeReport { mount_point: Some(dir), read_only: mount.is_read_only(), ..*report })
        }
        _ => Err(control::unknown_reply(mount)),
    }
}

fn of_device(path: &Path) -> Result<VolumeReport, ExitError> {
    let volume = mount::open_for_reading(path)?;
    Ok(VolumeReport::of_device(&volume, &path.to_string_lossy()))
}
