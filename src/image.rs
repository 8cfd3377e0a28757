//! `sfs-ctl image`: copies of a volume that have its used segments only.
//!
//! [`save`] reads a volume that is not mounted, or is frozen meanwhile; the copy is a stream of checksummed records (`record`). [`restore`]
//! writes such a stream to a device, the superblocks last. Whatever goes wrong before that, the device has no volume.

mod record;
mod restore;
mod save;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::request::VolumeOptions;
use sfs_device::{Access, BLOCK_SIZE, FileDevice, OpenErrorKind};
use sfs_mkfs::signatures::{Ends, detect};
use sfs_system::mountinfo::MountRecord;

use crate::exit_error::{self, ExitError};
use crate::file_clock;
use crate::freeze::FREEZE_SECS_MAX;
use crate::freeze_command;
use crate::mount;
use crate::volume_path::{VolumePath, find};
pub use record::{Copied, ImageError};

/// Path that means the standard input or output.
const STANDARD: &str = "-";

/// Saves the volume at `path` to the file `target`, or to the standard output. A mounted volume is frozen meanwhile, for
/// at most [`FREEZE_SECS_MAX`].
///
/// # Errors
///
/// [`ExitError`] with the reason. A file that was begun is removed. The standard output has no end mark then, so that
/// nobody takes it for a whole image.
pub fn save(path: &Path, target: &Path, force: bool) -> Result<Copied, ExitError> {
    match find(path)? {
        VolumePath::Device(path) => {
            sfs_mkfs::refuse_in_use(&path).map_err(ExitError::mount)?;
            save_device(&path, open(&path, Access::ReadOnly)?, target, force, &mut || Ok(()))
        }
        VolumePath::Mounted(mount) => {
            refuse_inside(target, &mount)?;
            let device = FileDevice::open_shared(&mount.source, Access::ReadOnly);
            let device = device.map_err(|error| ExitError::mount(&error))?;
            freeze_command::freeze(&mount.dir, FREEZE_SECS_MAX)?;
            let mut is_frozen = true;
            let mut thaw = || {
                is_frozen = false;
                freeze_command::thaw(&mount.dir).map_err(|_| ImageError::Thawed)
            };
            let saved = save_device(&mount.source, device, target, force, &mut thaw);
            if is_frozen {
                // The failure of the copy is reported; a freeze ends by itself.
                let _ = freeze_command::thaw(&mount.dir);
            }
            saved
        }
    }
}

/// Refuses a `target` on the mount that is saved: writing to it would wait for the end of the freeze.
fn refuse_inside(target: &Path, mount: &MountRecord) -> Result<(), ExitError> {
    let parent =
        target.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let number = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let is_inside = [parent, target].into_iter().any(|path| {
        number(path).is_some_and(|number_of_path| Some(number_of_path) == number(&mount.dir))
    });
    if target != Path::new(STANDARD) && is_inside {
        let target = target.display();
        return Err(ExitError::usage(format_args!("{target}: is on the volume that is saved")));
    }
    Ok(())
}

/// Saves the volume on `device`. `before_end` is called when everything has been read.
fn save_device(
    path: &Path,
    device: FileDevice,
    target: &Path,
    force: bool,
    before_end: &mut dyn FnMut() -> Result<(), ImageError>,
) -> Result<Copied, ExitError> {
    let shown = path.display();
    let device = Arc::new(device);
    let options = VolumeOptions { read_only: true, ..VolumeOptions::default() };
    let volume = Volume::open(device.clone(), options, file_clock::now())
        .map_err(|error| mount::explain(&error, path, &device))?;
    let failed = |error: ImageError| {
        ExitError::system(format_args!("{shown} to {}: {error}", target.display()))
    };
    if target == Path::new(STANDARD) {
        if rustix::termios::isatty(io::stdout()) {
            return Err(ExitError::usage("an image is not for a terminal; redirect the output"));
        }
        let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
        let copied = save::save(&volume, &*device, &mut out, before_end).map_err(failed)?;
        out.flush().map_err(|error| failed(error.into()))?;
        return Ok(copied);
    }
    let file = match force {
        true => File::create(target),
        false => File::create_new(target),
    };
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            ExitError::usage(format_args!("{}: exists; give -f to overwrite", target.display()))
        }
        _ => {
            ExitError::system(format_args!("{}: {}", target.display(), exit_error::reason(&error)))
        }
    })?;
    let mut out = io::BufWriter::with_capacity(1 << 20, &file);
    let saved = save::save(&volume, &*device, &mut out, before_end).and_then(|copied| {
        out.flush()?;
        file.sync_all()?;
        Ok(copied)
    });
    if saved.is_err() {
        let _ = fs::remove_file(target);
    }
    saved.map_err(failed)
}

/// Restores the image `source`, or the standard input, to the device `target`, which must be at least as large as the
/// volume. A path that does not exist becomes an image file.
///
/// # Errors
///
/// [`ExitError`] with the reason, which says whether the device has been written to: then it holds no volume.
pub fn restore(source: &Path, target: &Path, force: bool) -> Result<Copied, ExitError> {
    let shown = source.display();
    let mut input: Box<dyn Read> = if source == Path::new(STANDARD) {
        Box::new(io::BufReader::with_capacity(1 << 20, io::stdin().lock()))
    } else {
        let of_file = |error: io::Error| {
            ExitError::usage(format_args!("{shown}: {}", exit_error::reason(&error)))
        };
        // A file is verified as a whole before the device is touched.
        let whole = File::open(source).map_err(of_file)?;
        restore::verify(&mut io::BufReader::with_capacity(1 << 20, whole))
            .map_err(|error| ExitError::mount(format_args!("{shown}: {error}")))?;
        let file = File::open(source).map_err(of_file)?;
        Box::new(io::BufReader::with_capacity(1 << 20, file))
    };
    let untouched = |error: ImageError| ExitError::mount(format_args!("{shown}: {error}"));
    let header = restore::read_header(&mut input).map_err(untouched)?;
    let is_new = fs::symlink_metadata(target).is_err();
    let device = match is_new {
        true => FileDevice::create(target, header.block_count * BLOCK_SIZE as u64)
            .map_err(ExitError::system)?,
        false => open_target(target, force)?,
    };
    let restored = restore::restore(&header, &mut input, &device, is_new);
    if restored.is_err() && is_new {
        let _ = fs::remove_file(target);
    }
    restored.map_err(|failure| {
        let remains = match (is_new, failure.has_written) {
            (true, _) => "nothing was restored",
            (_, true) => "the device holds no volume now",
            (_, false) => "the device is unchanged",
        };
        let (target, error) = (target.display(), failure.error);
        ExitError::mount(format_args!("{shown} to {target}: {error}; {remains}"))
    })
}

fn open(path: &Path, access: Access) -> Result<FileDevice, ExitError> {
    FileDevice::open(path, access).map_err(|error| match error.kind {
        OpenErrorKind::Permission => ExitError::usage(&error),
        _ => ExitError::mount(&error),
    })
}

/// Opens a device that exists, unless it is in use, or has content and `force` is not given.
fn open_target(target: &Path, force: bool) -> Result<FileDevice, ExitError> {
    let shown = target.display();
    sfs_mkfs::refuse_in_use(target).map_err(ExitError::mount)?;
    let device = open(target, Access::ReadWrite)?;
    let ends = Ends::read_device(&device)
        .map_err(|error| ExitError::system(format_args!("{shown}: {error}")))?;
    match detect(&ends).first() {
        Some(found) if !force => {
            Err(ExitError::usage(format_args!("{shown}: has {}; give -f to overwrite", found.name)))
        }
        _ => Ok(device),
    }
}
