//! Waiting for a device: for a daemon whose mount is gone and that still writes its last checkpoint, and for a program that inspects
//! the device.

use std::fs;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use sfs_device::{Access, FileDevice, OpenError, OpenErrorKind};
use sfs_system::mountinfo;

use crate::ready_pipe::ReadyPipe;

/// Name of the program that serves a mount.
const DAEMON: &str = "sfs-mount";

/// Pause between two attempts to open a device.
const PAUSE: Duration = Duration::from_millis(20);

/// Time after which a wait is explained to the user.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait for a daemon. A daemon whose mount is in another namespace does not end.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Opens `path`. While the daemon of an earlier mount holds the device, waits until that daemon has
/// ended; while another program has a block device locked, waits for that. A long wait is explained through `pipe`.
pub(super) fn open_when_released(
    path: &Path,
    access: Access,
    pipe: &mut ReadyPipe,
) -> Result<FileDevice, OpenError> {
    let begun = Instant::now();
    let mut is_explained = false;
    loop {
        let opened = FileDevice::open(path, access);
        let awaited = opened.as_ref().err().and_then(|error| awaited(&error.kind, path));
        let Some((holder, wait_max)) = awaited else { return opened };
        if begun.elapsed() > wait_max {
            return opened;
        }
        if begun.elapsed() > PATIENCE && !is_explained {
            pipe.report_progress(&format!("waiting for {holder}"));
            is_explained = true;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns who holds the device at `path`, for the user, if the holder will release the device, and the longest wait for that.
/// `kind` is the error of the open.
fn awaited(kind: &OpenErrorKind, path: &Path) -> Option<(String, Duration)> {
    let device = path.display();
    match kind {
        OpenErrorKind::Busy | OpenErrorKind::Locked if is_being_released(path) => Some((
            format!("the daemon of an earlier mount of {device}, which still writes"),
            WAIT_MAX,
        )),
        OpenErrorKind::Locked => {
            let holder = format!("another program, such as udev, that has {device} locked");
            Some((holder, FileDevice::LOCK_WAIT_MAX))
        }
        _ => None,
    }
}

/// Returns whether a daemon holds the device at `path`, and no mount of the device is visible.
fn is_being_released(path: &Path) -> bool {
    let is_mounted = mountinfo::mounts()
        .is_ok_and(|mounts| mounts.iter().any(|mount| mount.is_sfs() && mount.source == path));
    !is_mounted && is_held_by_daemon(path)
}

/// Returns whether another process that serves a mount has the file at `path` open. A process whose
/// descriptors cannot be read counts: the process may have ended, and the next attempt to open may
/// succeed.
fn is_held_by_daemon(path: &Path) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|entry| {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number.filter(|number| *number != process::id()) else { return false };
        let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        name.trim_end() == DAEMON && has_open(number, path)
    })
}

fn has_open(process: u32, path: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else { return true };
    descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == path))
}
