//! A mount from its command line to its last checkpoint.
//!
//! [`run`] opens the device and the volume, mounts (`prepared`), and starts the threads (`serve`): those of the transport,
//! the background thread, the signal thread and the thread of the control socket. When the
//! transport's loop ends, the background thread is stopped and the volume is closed with its last
//! checkpoint. The first write to the device comes after all checks, and the last checkpoint comes
//! after the last request.

mod confinement;
mod initramfs;
mod needed_files;
mod own_mount;
mod prepared;
mod read_rings;
mod request;
mod serve;
mod source;
mod survives;
mod taken_mount;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prepared::prepare;
pub use request::MountRequest;
use sfs_core::read_superblock;
use sfs_system::mountinfo;
use survives::RootOfOthers;

use crate::control::ControlClient;
use crate::exit_error::{self, ExitError};
use crate::handover::taking::Beginning;
use crate::logging;
use crate::monitor::{Monitor, PrivateRoot, TakeOver};
use crate::mount::{OpenedDevice, explain, open_device, open_volume};
use crate::object_volume::credentials;
use crate::ready_pipe::{self, Detached, ReadyPipe};
use crate::timed_device::TimedDevice;
use crate::unsafe_calls;

/// Mounts the volume. Without `foreground`, the call returns when the mount answers, and another
/// process serves the mount.
///
/// # Errors
///
/// [`ExitError`] with the status that mount(8) defines, and a line for the user.
pub fn run(request: &MountRequest) -> Result<(), ExitError> {
    if let Some(take_over) = &request.take_over {
        return take_over_mount(request, take_over);
    }
    request.transport.check(&request.options)?;
    let dir = check_dir(&request.dir)?;
    request.check_survival(&dir)?;
    let path = request.device.canonicalize().unwrap_or_else(|_| request.device.clone());
    // The daemon has another working directory.
    let request = &with_absolute_cache(request);
    if request.fake && request.is_in_store() {
        return Err(ExitError::usage("--fake cannot look into an object store"));
    }
    if request.fake {
        let pipe = &mut ReadyPipe::foreground();
        let mut opened = open_device(&path, &request.options, pipe)?;
        refuse_newer(&opened)?;
        // A volume that is opened for writing has another epoch, and its cache would be empty.
        opened.options.volume.read_only = true;
        let timed = Arc::new(TimedDevice::new(opened.device.clone()));
        open_volume((opened.device.clone(), timed), &path, &opened.options, pipe)?;
        if opened.is_write_protected {
            ready_pipe::warn(&format!(
                "WARNING: {} is write-protected, would be mounted read-only",
                path.display()
            ));
        }
        return Ok(());
    }
    let mut pipe = if request.foreground {
        logging::to_terminal(request.verbose);
        ReadyPipe::foreground()
    } else {
        match ready_pipe::detach()? {
            Detached::Starter => return Ok(()),
            Detached::Daemon(pipe) => pipe,
        }
    };
    match serve(request, &path, &dir, &mut pipe, None) {
        Ok(()) => Ok(()),
        Err(failure) => match pipe.report_failure(failure) {
            Some(failure) => Err(failure),
            None => Ok(()),
        },
    }
}

/// Takes over a mount from the program that serves it, and serves it in this process.
fn take_over_mount(request: &MountRequest, take_over: &TakeOver) -> Result<(), ExitError> {
    logging::to_system();
    let beginning = Beginning::hello(take_over)?;
    let pipe = &mut ReadyPipe::foreground();
    serve(request, &request.device, &request.dir, pipe, Some(beginning))
}

/// Returns the request with an absolute path of the cache.
fn with_absolute_cache(request: &MountRequest) -> MountRequest {
    let mut request = request.clone();
    if let Some(path) = &mut request.options.cache_device {
        *path = path.canonicalize().unwrap_or_else(|_| path.clone());
    }
    if let Some(path) = &mut request.options.objects.cache_file {
        // The file may be missing.
        *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    }
    if let Some(path) = &mut request.options.objects.key_file {
        *path = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    }
    request
}

/// Refuses a volume with a feature that this program must know to write, unless it is mounted read-only.
fn refuse_newer(opened: &OpenedDevice) -> Result<(), ExitError> {
    // Another error is met again when the volume is opened, and explained there.
    let Ok(superblock) = read_superblock(&*opened.device) else { return Ok(()) };
    match superblock.write_incompatibility().filter(|_| !opened.options.volume.read_only) {
        None => Ok(()),
        Some(reason) => {
            let error = sfs_core::Error::Incompatible(reason);
            Err(explain(&error, opened.device.path(), &opened.device))
        }
    }
}

/// Returns the absolute path of the mount point, unless it is no directory or already has a FUSE mount.
fn check_dir(dir: &Path) -> Result<PathBuf, ExitError> {
    let shown = dir.display();
    let mounts = mountinfo::mounts().unwrap_or_default();
    let mounted = mountinfo::mount_point(dir, &mounts);
    let at = |absolute: &Path| mounts.iter().rev().find(|mount| mount.dir == absolute);
    if let Some(mount) = mounted.as_deref().and_then(at).filter(|mount| mount.is_sfs())
        && ControlClient::is_dead(mount)
    {
        return Err(ExitError::mount(format_args!(
            "{shown}: the daemon of an earlier mount has died; 'sfs-umount {shown}' removes that mount"
        )));
    }
    let absolute = dir.canonicalize().map_err(|error| {
        ExitError::mount(format_args!("{shown}: mount point: {}", exit_error::reason(&error)))
    })?;
    if !absolute.is_dir() {
        return Err(ExitError::mount(format_args!("{shown}: mount point is not a directory")));
    }
    match at(&absolute) {
        Some(mount) if mount.kind.starts_with("fuse") => Err(ExitError::mount(format_args!(
            "{shown}: {} is mounted there already",
            mount.source.display()
        ))),
        _ => Ok(absolute),
    }
}

/// Serves the mount in this process, from opening the device to the last checkpoint. With `beginning` another program hands it
/// over.
fn serve(
    request: &MountRequest,
    path: &Path,
    dir: &Path,
    pipe: &mut ReadyPipe,
    beginning: Option<Beginning>,
) -> Result<(), ExitError> {
    unsafe_calls::limit_allocator();
    let _ = unsafe_calls::become_io_flusher();
    // If the daemon is killed, dirty data of the kernel's cache is lost with it. Only root may set
    // the value.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let RootOfOthers { root, obstacle } = request.root_of_others(dir)?;
    let (monitor, mut taken) = match beginning {
        Some(beginning) if request.take_over.as_ref().is_some_and(|over| over.after_death) => {
            let mut taken = beginning.receive()?;
            let monitor = taken.take_monitor();
            (Arc::new(monitor.ok_or_else(|| ExitError::system("no monitor"))?), Some(taken))
        }
        beginning => {
            let monitor = start_monitor(request, (path, dir), pipe, root);
            let monitor = monitor.inspect_err(|failure| {
                beginning.iter().for_each(|beginning| beginning.fail(failure));
            })?;
            (Arc::new(monitor), beginning.map(Beginning::receive).transpose()?)
        }
    };
    let prepared = prepare((request, obstacle), path, dir, pipe, (monitor, &mut taken));
    let prepared = prepared.inspect_err(|failure| {
        taken.iter().for_each(|taken| taken.fail(failure));
    })?;
    prepared.serve(request, dir, pipe, taken.as_ref()).inspect_err(|failure| {
        let before_it = taken.iter().filter(|taken| !taken.has_mount());
        before_it.for_each(|taken| taken.fail(failure));
    })
}

/// Starts the process that keeps the privileges which the sandbox takes from this one.
fn start_monitor(
    request: &MountRequest,
    (path, dir): (&Path, &Path),
    pipe: &mut ReadyPipe,
    root: Option<PrivateRoot>,
) -> Result<Monitor, ExitError> {
    let spec = request.start_spec(path, dir);
    if !request.options.sandbox {
        return Ok(Monitor::in_process(spec));
    }
    let monitor = Monitor::start(pipe, spec, root).map_err(|error| {
        ExitError::system(format_args!("cannot start the monitor: {error}; see -o nosandbox"))
    })?;
    if request.is_in_store() {
        // The monitor starts the program that needs them.
        credentials::forget().map_err(|error| {
            ExitError::system(format_args!("cannot forget credentials: {error}; see -o nosandbox"))
        })?;
    }
    Ok(monitor)
}
