//! Waiting for a device: for a daemon whose mount is gone and that still writes its last checkpoint, and for a program that inspects
//! the device.

use std::fs;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use sfs_device::{Access, FileDevice, OpenError, OpenErrorKind};
use sfs_system::mountinfo;

use crate::exit_error::ExitError;
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
    daemons().any(|number| has_open(number, path, true))
}

/// Returns the numbers of the other processes that serve mounts.
fn daemons() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        (number != process::id() && name.trim_end() == DAEMON).then_some(number)
    })
}

/// Returns whether a process has the file at `path` open; `unknown` if its descriptors cannot be read.
fn has_open(process: u32, path: &Path, unknown: bool) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else { return unknown };
    descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == path))
}

/// Refuses a local cache that a visible mount of an object store uses: its daemon will not release it.
pub(crate) fn refuse_cache_in_use(path: &Path) -> Result<(), ExitError> {
    let Ok(path) = path.canonicalize() else { return Ok(()) };
    let holders = daemons().filter(|number| has_open(*number, &path, false));
    let mounts = mountinfo::mounts().unwrap_or_default();
    for holder in holders {
        let words = fs::read(format!("/proc/{holder}/cmdline")).unwrap_or_default();
        let has = |word: &Path| {
            words.split(|byte| *byte == 0).any(|it| it == word.as_os_str().as_encoded_bytes())
        };
        let of_holder = |mount: &&mountinfo::MountRecord| mount.is_sfs() && has(&mount.source);
        let mut candidates = mounts.iter().filter(of_holder);
        let mount = candidates.clone().find(|mount| has(&mount.dir)).or_else(|| candidates.next());
        if let Some(mount) =
            mount.filter(|mount| sfs_object::is_store_url(mount.source.as_os_str()))
        {
            return Err(ExitError::mount(format_args!(
                "{}: is the local cache of {}, which is mounted on {} (process {holder}); give another one, or unmount that first",
                path.display(),
                sfs_object::shown_url(&mount.source.to_string_lossy()),
                mount.dir.display()
            )));
        }
    }
    Ok(())
}
