//! `sfs-umount`: unmounting an SFS volume, until everything is on its device.
//!
//! Success means that the daemon has written its last checkpoint and closed the device, and that no data was lost
//! without a report to a program. Other filesystems are refused.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::mount::MntFlags;
use sfs_device::{Access, FileDevice, OpenErrorKind};
use sfs_system::mountinfo::{self, MountRecord};
use sfs_system::output;

use crate::control::{ControlClient, ControlError, ControlReply, ControlRequest};
use crate::exit_error::{self, ExitError};
use crate::fuse::LossReport;
use crate::mount;
use crate::remount::{self, RemountRequest};

/// Pause between two checks whether the daemon has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Time after which a wait is explained to the user.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait: more than the slowest card needs for a full write buffer.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Arguments of `sfs-umount`.
#[derive(Clone, Copy, Debug)]
pub struct UnmountRequest<'a> {
    /// Mount point or device.
    pub path: &'a Path,
    /// `true` if each step is printed.
    pub verbose: bool,
    /// `true` if a mount in use is detached, without waiting.
    pub lazy: bool,
    /// `true` if the daemon is not waited for, even if it does not answer: requests under way fail.
    pub force: bool,
    /// `true` if a mount in use becomes read-only instead.
    pub read_only: bool,
    /// `true` if umount(8) has called this program. Other mount points of the same filesystem are no error then.
    pub is_helper: bool,
}

/// Unmounts a volume and, unless the unmount is lazy, waits until everything is on its device.
///
/// # Errors
///
/// [`ExitError`] with a line that names the failure or the lost data.
pub fn unmount(request: &UnmountRequest<'_>) -> Result<(), ExitError> {
    let say = |text: std::fmt::Arguments<'_>| {
        if request.verbose {
            // An error of printing does not change the outcome.
            let _ = output::print(format_args!("sfs-umount: {text}\n"));
        }
    };
    let mount = find(request.path)?;
    let (dir, device) = (mount.dir.display(), mount.source.display());
    if request.lazy {
        mount::detach(&mount.dir, MntFlags::MNT_DETACH)?;
        say(format_args!("{dir}: unmounted once no process uses it; not waiting for {device}"));
        return Ok(());
    }
    let (flags, watch) = match request.force {
        true => (MntFlags::MNT_FORCE, None),
        false => (MntFlags::empty(), Some(watch(&mount))),
    };
    if let Err(failure) = mount::detach(&mount.dir, flags) {
        return if request.read_only { make_read_only(&mount) } else { Err(failure) };
    }
    say(format_args!("{dir}: unmounted"));
    let Some(watch) = watch else { return Ok(()) };
    match refuse_to_wait_for_others(&mount) {
        Err(_) if request.is_helper => return Ok(()),
        outcome => outcome?,
    }
    let mut lost = None;
    match watch {
        Ok(daemon) => lost = Some(wait_for_report(&daemon, &mount)?),
        Err(ControlError::Dead) if !mount.is_read_only() => {
            return Err(ExitError::mount(format_args!(
                "{dir}: unmounted, but its daemon had died before; the data written last may be \
                 lost; the next mount of {device} rolls forward"
            )));
        }
        // The store says nothing about the daemon.
        Err(trouble) if sfs_object::is_store_url(mount.source.as_os_str()) => {
            return Err(ExitError::mount(format_args!(
                "{dir}: unmounted, but its daemon does not say when everything is in {device}: {trouble}; wait until that sfs-mount \
                 has ended"
            )));
        }
        Err(trouble) => {
            say(format_args!("{dir}: waiting for the daemon to release {device}: {trouble}"));
        }
    }
    wait_for_daemon(&mount)?;
    report_outcome(lost, &mount, say)
}

/// Makes a mount read-only that cannot be unmounted.
fn make_read_only(mount: &MountRecord) -> Result<(), ExitError> {
    let options = "remount,ro";
    let request =
        RemountRequest { device: None, dir: &mount.dir, options, sloppy: false, fake: false };
    remount::remount(&request)
}

/// Prints the outcome of the unmount; returns an error if data was lost without a report to a
/// program.
fn report_outcome(
    lost: Option<LossReport>,
    mount: &MountRecord,
    say: impl Fn(std::fmt::Arguments<'_>),
) -> Result<(), ExitError> {
    let (dir, device) = (mount.dir.display(), mount.source.display());
    match lost {
        Some(LossReport { bytes: 0, .. }) => say(format_args!("{dir}: everything is on {device}")),
        Some(lost) if lost.unreported.is_empty() => {
            output::complain(format_args!("sfs-umount: WARNING: {device} {lost}"))
        }
        Some(lost) => {
            return Err(ExitError::loss(format_args!("{dir}: unmounted, but {device} {lost}")));
        }
        None => say(format_args!("{dir}: its daemon has released {device}")),
    }
    Ok(())
}

/// Returns an error if the filesystem of `mount`, which is unmounted, has other mount points, such
/// as a bind mount. In this case its daemon goes on, and the device must not be removed.
fn refuse_to_wait_for_others(mount: &MountRecord) -> Result<(), ExitError> {
    let Ok(mounts) = mountinfo::mounts() else { return Ok(()) };
    let Some(other) = mounts.iter().find(|other| other.is_of_same_filesystem(mount)) else {
        return Ok(());
    };
    let (dir, device) = (mount.dir.display(), mount.source.display());
    let other = other.dir.display();
    Err(ExitError::mount(format_args!(
        "{dir}: unmounted, but {device} is still mounted on {other} and must not be removed; 'sfs-umount \
         {other}' ends that mount, too"
    )))
}

/// Finds the volume that is mounted on, or from, `path`.
fn find(path: &Path) -> Result<MountRecord, ExitError> {
    let shown = path.display();
    let mounts = mountinfo::mounts()
        .map_err(|error| ExitError::system(format_args!("/proc/self/mountinfo: {error}")))?;
    let path = match mountinfo::mount_point(path, &mounts) {
        Some(dir) => dir,
        None => path.canonicalize().map_err(|error| {
            ExitError::usage(format_args!("{shown}: {}", exit_error::reason(&error)))
        })?,
    };
    let is_from = |mount: &MountRecord| mount.is_sfs() && mount.source == path;
    let mut latest = mounts.into_iter().rev();
    let mount = latest.find(|mount| mount.dir == path || is_from(mount)).ok_or_else(|| {
        let is_dir = path.is_dir();
        let what = if is_dir { "not a mount point" } else { "not mounted" };
        ExitError::mount(format_args!("{shown}: {what}"))
    })?;
    if mount.is_sfs() {
        Ok(mount)
    } else {
        Err(ExitError::mount(format_args!("{shown}: not an SFS volume; use umount")))
    }
}

/// Asks the daemon to report the outcome of its last checkpoint. The request must come before the unmount.
fn watch(mount: &MountRecord) -> Result<ControlClient, ControlError> {
    let daemon = ControlClient::connect(mount)?;
    match daemon.ask(&ControlRequest::Watch)? {
        ControlReply::Watching => Ok(daemon),
        _ => Err(ControlError::OtherVersion),
    }
}

/// Waits for the daemon's report on its last checkpoint. Returns the report of data that was lost
/// before because the volume was full.
fn wait_for_report(daemon: &ControlClient, mount: &MountRecord) -> Result<LossReport, ExitError> {
    let device = mount.source.display();
    let begun = Instant::now();
    let mut report = daemon.listen(begun + PATIENCE);
    if is_late(&report) {
        explain_wait(mount);
        report = daemon.listen(begun + WAIT_MAX);
    }
    match report {
        Ok(ControlReply::Written) => Ok(LossReport::default()),
        Ok(ControlReply::WrittenExcept(bytes)) => Ok(LossReport { bytes, ..LossReport::default() }),
        Ok(ControlReply::WrittenUnreported(lost)) => Ok(lost),
        Ok(ControlReply::Failed { status, line }) => {
            let failure = ExitError::of_daemon(status, &line);
            Err(ExitError::mount(format_args!("unmounted, but {failure}")))
        }
        late if is_late(&late) => Err(too_long(mount)),
        _ => Err(ExitError::mount(format_args!(
            "{device}: unmounted, but its daemon died before everything was on it; the data \
             written last may be lost"
        ))),
    }
}

fn is_late(report: &Result<ControlReply, ControlError>) -> bool {
    matches!(report, Err(ControlError::Silent(error)) if error.kind() == ErrorKind::TimedOut)
}

fn explain_wait(mount: &MountRecord) {
    let device = mount.source.display();
    output::complain(format_args!(
        "sfs-umount: waiting until everything is on {device}; it is still being written, or mounted in \
         another namespace"
    ));
}

fn too_long(mount: &MountRecord) -> ExitError {
    let device = mount.source.display();
    let seconds = WAIT_MAX.as_secs();
    if sfs_object::is_store_url(mount.source.as_os_str()) {
        return ExitError::mount(format_args!(
            "{device}: unmounted, but still being uploaded after {seconds} s; it goes on: wait until the sfs-mount of it has ended"
        ));
    }
    ExitError::mount(format_args!(
        "{device}: unmounted, but still being written after {seconds} s, or mounted in another namespace"
    ))
}

/// Waits until the daemon closes its device, after everything is written.
fn wait_for_daemon(mount: &MountRecord) -> Result<(), ExitError> {
    let begun = Instant::now();
    let mut explained = false;
    loop {
        match FileDevice::open(&mount.source, Access::ReadOnly) {
            Err(error) if matches!(error.kind, OpenErrorKind::Busy | OpenErrorKind::Locked) => {}
            _ => return Ok(()),
        }
        if begun.elapsed() > WAIT_MAX {
            return Err(too_long(mount));
        }
        if begun.elapsed() > PATIENCE && !explained {
            explain_wait(mount);
            explained = true;
        }
        std::thread::sleep(PAUSE);
    }
}
