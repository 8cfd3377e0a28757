//! Opening of a device and of the volume on it, and explanations of failures.
//!
//! A device that is used through a loop device is refused, and a write-protected device is opened
//! for reading. The first write to the device comes after the check of the volume.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sfs_core::format::{CorruptionKind, LOCATOR_ADDRESS, Structure};
use sfs_core::{Error, Volume};
use sfs_device::{Access, Device, FileDevice, OpenError, OpenErrorKind};
use sfs_mkfs::signatures;

use super::holder;
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::mount::open_progress::OpenProgressText;
use crate::mount_options::MountOptions;
use crate::ready_pipe::ReadyPipe;

/// Device that is open, and the options that it can be mounted with.
pub(crate) struct OpenedDevice {
    /// The device, locked against other users.
    pub(crate) device: Arc<FileDevice>,
    /// The options as given, or read-only ones for a write-protected device.
    pub(crate) options: MountOptions,
    /// `true` if the device is mounted read-only though the options asked for writing.
    pub(crate) is_write_protected: bool,
}

/// Opens the device at `path`, for writing unless the options or its write protection forbid that. mount(8) treats a
/// write-protected device the same way. A wait for the daemon of an earlier mount is reported through `pipe`.
pub(crate) fn open_device(
    path: &Path,
    options: &MountOptions,
    pipe: &mut ReadyPipe,
) -> Result<OpenedDevice, ExitError> {
    sfs_mkfs::refuse_in_use_by_loop(path).map_err(ExitError::mount)?;
    let mut options = options.clone();
    let mut is_write_protected = false;
    let access = if options.volume.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let mut device = holder::open_when_released(path, access, pipe);
    if let Err(OpenError { kind: OpenErrorKind::WriteProtected, .. }) = device {
        options = options.read_only();
        is_write_protected = true;
        device = holder::open_when_released(path, Access::ReadOnly, pipe);
    }
    pipe.end_progress();
    let device = device.map_err(|error| match error.kind {
        OpenErrorKind::Permission => ExitError::usage(&error),
        _ => ExitError::mount(&error),
    })?;
    Ok(OpenedDevice { device: Arc::new(device), options, is_write_protected })
}

/// Opens the volume on `device`, which it uses as `used`. Steps that take long are reported through `pipe`.
pub(crate) fn open_volume(
    (device, used): (Arc<FileDevice>, Arc<dyn Device>),
    path: &Path,
    options: &MountOptions,
    pipe: &mut ReadyPipe,
) -> Result<Arc<Volume>, ExitError> {
    let mut text = OpenProgressText::begin(path, Instant::now());
    let mut report = |progress| {
        if let Some(text) = text.text(progress, Instant::now()) {
            pipe.report_progress(&text);
        }
    };
    let (options, now) = (options.volume.clone(), file_clock::now());
    let opened = Volume::open_with_progress(used, options, now, &mut report);
    pipe.end_progress();
    match opened {
        Ok(volume) => Ok(Arc::new(volume)),
        Err(error) => Err(explain(&error, path, &device)),
    }
}

/// Opens the volume on `device`, which it uses as `used`, to which nothing is written before [`Volume::begin_writing`].
pub(crate) fn open_to_write_later(
    (device, used): (Arc<FileDevice>, Arc<dyn Device>),
    path: &Path,
    options: &MountOptions,
) -> Result<Arc<Volume>, ExitError> {
    let (options, now) = (options.volume.clone(), file_clock::now());
    let opened = Volume::open_to_write_later(used, options, now, &mut |_| {});
    opened.map(Arc::new).map_err(|error| explain(&error, path, &device))
}

/// Converts the error of opening a volume to a line that states the content of the device and the remedy.
pub(crate) fn explain(error: &Error, path: &Path, device: &FileDevice) -> ExitError {
    let shown = path.display();
    match error {
        Error::Corrupt(what)
            if what.structure == Structure::Superblock && what.kind == CorruptionKind::Magic =>
        {
            let found = signatures::Ends::read_device(device).map(|ends| signatures::detect(&ends));
            match found.ok().and_then(|found| found.into_iter().next()) {
                Some(found) if found.name == signatures::SFS => ExitError::mount(format_args!(
                    "{shown}: both superblocks of the SFS volume on it are damaged"
                )),
                Some(found) => ExitError::mount(format_args!(
                    "{shown}: not an SFS volume but {}; mount it with that type",
                    found.name
                )),
                None => ExitError::mount(format_args!(
                    "{shown}: not an SFS volume; 'sfs-mkfs {shown}' makes one"
                )),
            }
        }
        Error::Corrupt(_) => {
            ExitError::mount(format_args!("{shown}: {error}; run 'sfs-fsck -n {shown}'"))
        }
        Error::Incompatible(reason) if reason.allows_reading() => ExitError::mount(format_args!(
            "{shown}: {error}; mount it with '-o ro', or upgrade sfs"
        )),
        Error::Incompatible(_) => ExitError::mount(format_args!("{shown}: {error}; upgrade sfs")),
        Error::DeviceTooSmall { volume, .. } if *volume <= LOCATOR_ADDRESS + 1 => {
            ExitError::mount(format_args!("{shown}: too small for an SFS volume"))
        }
        Error::DeviceTooSmall { .. } => ExitError::mount(format_args!(
            "{shown}: {error}; the device was truncated, or is not the one that was formatted"
        )),
        error => ExitError::mount(format_args!("{shown}: {error}")),
    }
}
