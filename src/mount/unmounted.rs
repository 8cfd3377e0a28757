//! A volume that is not mounted, opened for reading by a program of its administrator.

use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, FileDevice, OpenErrorKind};

use super::open_volume::explain;
use crate::exit_error::ExitError;
use crate::file_clock;

/// Opens the volume on `path`, to which nothing is written.
pub(crate) fn open_for_reading(path: &Path) -> Result<Volume, ExitError> {
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
        .map_err(|error| explain(&error, path, &device))
}
