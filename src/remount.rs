//! `-o remount`: changing the options of a mount.
//!
//! The daemon is asked first whether it allows the change, and then the kernel's mount is changed.
//! After a change to read-only all data is on the device, and nothing is written to it until a
//! change back or the unmount. Options of the daemon cannot be changed, and are refused by name.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::MsFlags;
use sfs_system::mountinfo::{self, MountRecord};

use crate::control::{ControlClient, ControlError, ControlReply, ControlRequest};
use crate::exit_error::{self, ExitError};
use crate::mount_options;
use crate::waiting_requests::WaitingRequests;

/// Longest wait for the daemon: that of sfs-umount for the slowest card.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(300);

/// Number of daemons that are asked, one after the death of the other.
const DAEMONS_ASKED: usize = 4;

/// Arguments of a remount.
#[derive(Clone, Copy, Debug)]
pub struct RemountRequest<'a> {
    /// Device or image file, as mount(8) passes it; a user need not name it.
    pub device: Option<&'a Path>,
    /// Mount point.
    pub dir: &'a Path,
    /// Comma list, with `remount` in it.
    pub options: &'a str,
    /// `true` if unknown options are skipped.
    pub sloppy: bool,
    /// `true` if everything is checked, but nothing is changed.
    pub fake: bool,
}

/// Changes the options of a mount to those of the list; other options stay.
///
/// # Errors
///
/// [`ExitError`] with a line that names the mount and the obstacle.
pub fn remount(request: &RemountRequest<'_>) -> Result<(), ExitError> {
    let mount = find(request)?;
    let list = if request.sloppy {
        mount_options::remount::known(request.options)
    } else {
        request.options.into()
    };
    ask(&mount, &ControlRequest::Allow(list.clone()))?;
    let flags = mount_options::remount::flags_after(&mount, &list);
    let inflight = match flags.contains(MsFlags::MS_RDONLY) {
        true => Some(WaitingRequests::of(mount.number)?),
        false => None,
    };
    if request.fake {
        return Ok(());
    }
    if let Err(failure) = write_and_change(&mount, flags) {
        if mount.is_read_only() {
            // The daemon may have begun to write for nothing.
            let _ = ask(&mount, &ControlRequest::Rest);
        }
        return Err(failure);
    }
    ask(&mount, &ControlRequest::Changed)?;
    if let Some(inflight) = inflight {
        inflight.wait_for_none(&mount.dir)?;
        ask(&mount, &ControlRequest::Rest)?;
    }
    Ok(())
}

/// Changes the kernel's mount, before which the daemon begins to write if the mount becomes writable.
fn write_and_change(mount: &MountRecord, flags: MsFlags) -> Result<(), ExitError> {
    if !flags.contains(MsFlags::MS_RDONLY) {
        ask(mount, &ControlRequest::BeginWriting)?;
    }
    change(mount, flags)
}

/// Asks the daemon of `mount`, or the one that goes on after its death.
fn ask(mount: &MountRecord, request: &ControlRequest) -> Result<(), ExitError> {
    let wait_max = Instant::now() + ANSWER_WAIT_MAX;
    let ask = || ControlClient::connect(mount)?.ask_until(request, wait_max);
    let mut reply = ask();
    for _ in 1..DAEMONS_ASKED {
        match reply {
            Err(ControlError::Silent(_)) if Instant::now() < wait_max => reply = ask(),
            _ => break,
        }
    }
    expect(mount, reply)
}

/// Finds the volume to remount, and checks that the caller may remount it.
fn find(request: &RemountRequest<'_>) -> Result<MountRecord, ExitError> {
    let shown = request.dir.display();
    let dir = request.dir.canonicalize().map_err(|error| {
        ExitError::mount(format_args!("{shown}: {}", exit_error::reason(&error)))
    })?;
    let mount = mountinfo::at(&dir)
        .map_err(|error| ExitError::system(format_args!("/proc/self/mountinfo: {error}")))?
        .ok_or_else(|| ExitError::mount(format_args!("{shown}: not a mount point")))?;
    if !mount.is_sfs() {
        return Err(ExitError::mount(format_args!("{shown}: not an SFS volume")));
    }
    if let Some(device) = request.device
        && mount.source != device.canonicalize().unwrap_or_else(|_| device.to_owned())
    {
        let device = device.display();
        return Err(ExitError::mount(format_args!("{shown}: {device} is not mounted there")));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(ExitError::usage(format_args!(
            "{shown}: only root can remount; unmount it and mount it again"
        )));
    }
    Ok(mount)
}

fn refused(mount: &MountRecord, trouble: &ControlError) -> ExitError {
    ExitError::mount(format_args!(
        "{}: cannot be remounted: {trouble}; unmount it and mount it again",
        mount.dir.display()
    ))
}

/// Checks that the daemon consents.
fn expect(mount: &MountRecord, reply: Result<ControlReply, ControlError>) -> Result<(), ExitError> {
    match reply {
        Ok(ControlReply::Allowed | ControlReply::Resting) => Ok(()),
        Ok(ControlReply::Failed { status, line }) => Err(ExitError::of_daemon(status, &line)),
        Ok(_) => Err(refused(mount, &ControlError::OtherVersion)),
        Err(trouble) => Err(refused(mount, &trouble)),
    }
}

/// Changes the kernel's mount. Before a change to read-only the kernel writes its cache back, and refuses while a
/// file is open for writing.
fn change(mount: &MountRecord, flags: MsFlags) -> Result<(), ExitError> {
    let none = None::<&str>;
    nix::mount::mount(none, &mount.dir, none, flags | MsFlags::MS_REMOUNT, none).map_err(|error| {
        let dir = mount.dir.display();
        match error {
            Errno::EBUSY => ExitError::mount(format_args!(
                "{dir}: files are open for writing; 'fuser -vm {dir}' lists the processes"
            )),
            error => ExitError::mount(format_args!("{dir}: {}", error.desc())),
        }
    })
}
