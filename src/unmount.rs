//! Unmounting, until everything is on the device.
//!
//! Owns: `sfs-umount`, and how the daemon unmounts itself.
//! Promises: returns success only when the daemon has written its last checkpoint and has let go of
//! the device, and nothing was lost that no program knows of.
//! Never: unmounts what is not an SFS volume.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use sfs_device::{Access, FileDevice, OpenErrorKind};
use sfs_mkfs::output;

use crate::control::{Client, Reply, Request as ControlRequest, Trouble};
use crate::fuse::Missing;
use crate::mountinfo::{self, MountLine};
use crate::{Failure, mount};

/// Between two looks whether the daemon has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// A wait that is longer is explained.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longer than the slowest card needs for a full write buffer.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// What to unmount, and how.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it is mounted, or from what.
    pub path: &'a Path,
    /// Say what is done.
    pub verbose: bool,
    /// Take it out of the tree though it is in use, and do not wait.
    pub lazy: bool,
}

/// Unmounts a volume, and waits until everything is on its device.
pub fn unmount(request: &Request<'_>) -> Result<(), Failure> {
    let say = |text: std::fmt::Arguments<'_>| {
        if request.verbose {
            // What is unmounted is, whether or not it can be said.
            let _ = output::print(format_args!("sfs-umount: {text}\n"));
        }
    };
    let mount = find(request.path)?;
    let (dir, device) = (mount.dir.display(), mount.source.display());
    if request.lazy {
        detach(&mount.dir, MntFlags::MNT_DETACH)?;
        say(format_args!("{dir}: unmounted once nobody uses it; not waiting for {device}"));
        return Ok(());
    }
    let watch = watch(&mount);
    detach(&mount.dir, MntFlags::empty())?;
    say(format_args!("{dir}: unmounted"));
    let mut lost = None;
    match watch {
        Ok(daemon) => lost = Some(wait_for_word(&daemon, &mount)?),
        Err(Trouble::Dead) if !mount.is_read_only() => {
            return Err(Failure::mount(format_args!(
                "{dir}: unmounted, but its daemon had died before; what was written last may be \
                 lost; the next mount of {device} rolls forward"
            )));
        }
        Err(trouble) => say(format_args!("{dir}: waiting for {device} alone: {trouble}")),
    }
    wait_for_daemon(&mount)?;
    match lost {
        Some(Missing { bytes: 0, .. }) => say(format_args!("{dir}: everything is on {device}")),
        Some(lost) if lost.untold.is_empty() => {
            output::complain(format_args!("sfs-umount: WARNING: {device} {lost}"))
        }
        Some(lost) => {
            return Err(Failure::loss(format_args!("{dir}: unmounted, but {device} {lost}")));
        }
        None => say(format_args!("{dir}: its daemon has released {device}")),
    }
    Ok(())
}

/// The volume that is mounted on, or from, `path`.
fn find(path: &Path) -> Result<MountLine, Failure> {
    let shown = path.display();
    let path = path
        .canonicalize()
        .map_err(|error| Failure::usage(format_args!("{shown}: {}", mount::reason(&error))))?;
    let mounts = mountinfo::mounts()
        .map_err(|error| Failure::system(format_args!("/proc/self/mountinfo: {error}")))?;
    let is_from = |mount: &MountLine| mount.is_volume() && mount.source == path;
    let mut latest = mounts.into_iter().rev();
    let mount = latest.find(|mount| mount.dir == path || is_from(mount)).ok_or_else(|| {
        let is_dir = path.is_dir();
        let what = if is_dir { "not a mount point" } else { "not mounted" };
        Failure::mount(format_args!("{shown}: {what}"))
    })?;
    if mount.is_volume() {
        Ok(mount)
    } else {
        Err(Failure::mount(format_args!("{shown}: not an SFS volume; use umount")))
    }
}

/// Asks the daemon to say how its last checkpoint goes. To be asked while it is still mounted.
fn watch(mount: &MountLine) -> Result<Client, Trouble> {
    let daemon = Client::connect(mount)?;
    match daemon.ask(&ControlRequest::Watch)? {
        Reply::Watching => Ok(daemon),
        _ => Err(Trouble::Foreign),
    }
}

/// Takes the mount at `dir` out of the tree.
pub(crate) fn detach(dir: &Path, flags: MntFlags) -> Result<(), Failure> {
    let busy = || {
        let dir = dir.display();
        Failure::mount(format_args!("{dir}: in use; 'fuser -vm {dir}' shows by whom"))
    };
    match umount2(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::EPERM) => {
            let lazy = flags.contains(MntFlags::MNT_DETACH);
            let mut command = Command::new("fusermount3");
            command.args(if lazy { ["-u", "-z"].as_slice() } else { ["-u"].as_slice() });
            let output = command.arg("--").arg(dir).output();
            match output {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr);
                    if text.contains("busy") { Err(busy()) } else { Err(Failure::mount(text)) }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(Failure::system("fusermount3 is missing; install the package fuse3"))
                }
                Err(error) => Err(Failure::system(format_args!("fusermount3: {error}"))),
            }
        }
        Err(Errno::EBUSY) => Err(busy()),
        Err(error) => Err(Failure::mount(format_args!("{}: {}", dir.display(), error.desc()))),
    }
}

/// The daemon says how its last checkpoint went. Gives what was lost before, as the volume was full.
fn wait_for_word(daemon: &Client, mount: &MountLine) -> Result<Missing, Failure> {
    let device = mount.source.display();
    let begun = Instant::now();
    let mut word = daemon.listen(begun + PATIENCE);
    if is_late(&word) {
        explain_wait(mount);
        word = daemon.listen(begun + WAIT_MAX);
    }
    match word {
        Ok(Reply::Written) => Ok(Missing::default()),
        Ok(Reply::WrittenBut(bytes)) => Ok(Missing { bytes, ..Missing::default() }),
        Ok(Reply::WrittenUntold(lost)) => Ok(lost),
        Ok(Reply::Failed { line, .. }) => {
            Err(Failure::mount(format_args!("unmounted, but {line}")))
        }
        late if is_late(&late) => Err(too_long(mount)),
        _ => Err(Failure::mount(format_args!(
            "{device}: unmounted, but its daemon died before everything was on it; what was \
             written last may be lost"
        ))),
    }
}

fn is_late(word: &Result<Reply, Trouble>) -> bool {
    matches!(word, Err(Trouble::Silent(error)) if error.kind() == ErrorKind::TimedOut)
}

fn explain_wait(mount: &MountLine) {
    let device = mount.source.display();
    output::complain(format_args!(
        "sfs-umount: waiting until everything is on {device}; it is still being written, or mounted in \
         another namespace"
    ));
}

fn too_long(mount: &MountLine) -> Failure {
    let device = mount.source.display();
    let seconds = WAIT_MAX.as_secs();
    Failure::mount(format_args!(
        "{device}: unmounted, but still being written after {seconds} s, or mounted in another namespace"
    ))
}

/// The daemon holds its device until everything is on it.
fn wait_for_daemon(mount: &MountLine) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut explained = false;
    loop {
        match FileDevice::open(&mount.source, Access::ReadOnly) {
            Err(error) if matches!(error.kind, OpenErrorKind::Busy) => {}
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
