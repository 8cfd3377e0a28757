//! Unmounting: umount2(2) for root, `fusermount3` for ordinary users.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::exit_error::ExitError;

/// Longest wait until a mount is no longer in use. A program that has just ended, or uses the mount
/// for a moment, does not prevent the unmount.
const USE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Unmounts the topmost filesystem at `dir`; tries for a second while it is in use.
pub(crate) fn detach(dir: &Path, flags: MntFlags) -> Result<(), ExitError> {
    let end = Instant::now() + USE_WAIT_MAX;
    loop {
        match try_detach(dir, flags) {
            Err(DetachRefusal::InUse) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(DetachRefusal::InUse) => {
                let dir = dir.display();
                let line = format_args!("{dir}: in use; 'fuser -vm {dir}' lists the processes");
                return Err(ExitError::mount(line));
            }
            Err(DetachRefusal::Failed(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
}

/// Reason why a filesystem was not unmounted.
enum DetachRefusal {
    /// A process uses the filesystem.
    InUse,
    Failed(ExitError),
}

impl From<ExitError> for DetachRefusal {
    fn from(error: ExitError) -> Self {
        Self::Failed(error)
    }
}

fn try_detach(dir: &Path, flags: MntFlags) -> Result<(), DetachRefusal> {
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
                    let is_busy = text.contains("busy");
                    Err(if is_busy { DetachRefusal::InUse } else { ExitError::mount(text).into() })
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(ExitError::system("fusermount3 is missing; install the package fuse3")
                        .into())
                }
                Err(error) => Err(ExitError::system(format_args!("fusermount3: {error}")).into()),
            }
        }
        Err(Errno::EBUSY) => Err(DetachRefusal::InUse),
        Err(error) => {
            Err(ExitError::mount(format_args!("{}: {}", dir.display(), error.desc())).into())
        }
    }
}
