//! A mount that is taken over from another program: its device, its volume, its session with the kernel, and its first write.

use std::path::Path;
use std::sync::Arc;

use sfs_core::Volume;
use sfs_core::format::FORMAT_VERSION;
use sfs_device::FileDevice;
use sfs_system::mountinfo::MountTable;

use super::own_mount::{OwnMount, no_table, table};
use crate::exit_error::ExitError;
use crate::file_clock;
use crate::fuse::FuseShell;
use crate::handover::taking::Taken;
use crate::monitor::Monitor;
use crate::mount::{OpenedDevice, open_to_write_later};
use crate::mount_options::MountOptions;
use crate::mount_options::remount::access_times_of;
use crate::timed_device::TimedDevice;
use crate::transport::Serving;

/// Returns the device of a mount that another program hands over.
pub(super) fn device(
    taken: &mut Taken,
    path: &Path,
    options: &MountOptions,
) -> Result<OpenedDevice, ExitError> {
    let device = Arc::new(taken.device(path)?);
    let is_write_protected = taken.is_write_protected();
    let options = options.clone();
    let options = if is_write_protected { options.read_only() } else { options };
    Ok(OpenedDevice { device, options, is_write_protected })
}

/// Goes on with the session of a mount that another program hands over.
pub(super) fn session(
    taken: &mut Taken,
    (shell, threads): (FuseShell, usize),
    monitor: Arc<Monitor>,
    name: &str,
) -> Result<(Serving, OwnMount), ExitError> {
    let table = taken.take_mounts().map_or_else(table, Ok)?;
    let own = if shell.survives() {
        // The monitor knows the mount, and the table does not name it any more while an unmount writes back.
        OwnMount::noted(taken.number, Arc::new(table), monitor, name.into())
    } else {
        own_of_table(taken, table, monitor, name)?
    };
    let channels = taken.take_channels();
    let serving = Serving::resume(channels, taken.agreed, (shell, threads), taken.reason());
    Ok((serving.map_err(ExitError::system)?, own))
}

/// Returns the mount in `table` that another program hands over.
fn own_of_table(
    taken: &Taken,
    table: MountTable,
    monitor: Arc<Monitor>,
    name: &str,
) -> Result<OwnMount, ExitError> {
    let found = table.of_number(taken.number).map_err(|error| no_table(&error))?;
    let mount = found.ok_or_else(|| ExitError::mount("the mount is gone"))?;
    OwnMount::of(&mount, table, monitor, name.into()).map_err(|error| no_table(&error))
}

/// Opens the volume of a mount that is taken over, without a write. One that is written since a remount is read as for writing.
///
/// # Errors
///
/// The first write would raise the volume's format, and the program before could not go on if this one failed then.
pub(super) fn volume(
    both: (Arc<FileDevice>, Arc<TimedDevice>),
    path: &Path,
    options: &MountOptions,
    taken: &Taken,
) -> Result<Arc<Volume>, ExitError> {
    let mut options = options.clone();
    options.volume.read_only &= taken.is_read_only();
    let (device, timed) = both;
    let volume = open_to_write_later((device, timed), path, &options)?;
    let version = volume.superblock().version;
    if version < FORMAT_VERSION && !options.volume.read_only {
        return Err(ExitError::mount(format_args!(
            "{}: the new program would raise the volume's format from version {version} to {FORMAT_VERSION}, and the program \
             before could not go on after a failure; unmount it and mount it again",
            path.display()
        )));
    }
    Ok(volume)
}

/// Begins to write to a volume that was taken over, unless nothing was written since it was mounted read-only, or its mount is
/// read-only and the volume rests. After a failure it is served read-only, as after any failed write: no other program could do more.
pub(super) fn begin_writing(
    volume: &Volume,
    (is_read_only, is_resting): (bool, bool),
    own: &OwnMount,
    name: &str,
) {
    let mount = own.table().of_number(own.number()).ok().flatten();
    if let Some(mount) = &mount {
        volume.set_access_times(access_times_of(mount));
    }
    // A program may have remounted without the daemon, so both must be known.
    let rests = is_resting && mount.is_some_and(|mount| mount.is_read_only());
    if is_read_only || rests {
        return;
    }
    if let Err(error) = volume.begin_writing(file_clock::now(), &mut |_| {}) {
        tracing::error!("{name}: {error}; the volume is read-only from now on");
    }
}
