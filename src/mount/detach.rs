//! Unmounting: umount2(2) for root, `fusermount3` for ordinary users.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::exit_error::ExitError;

/// Unmounts the topmost filesystem at `dir`.
pub(crate) fn detach(dir: &Path, flags: MntFlags) -> Result<(), ExitError> {
    let busy = || {
        let dir = dir.display();
        ExitError::mount(format_args!("{dir}: in use; 'fuser -vm {dir}' shows by whom"))
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
                    if text.contains("busy") { Err(busy()) } else { Err(ExitError::mount(text)) }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(ExitError::system("fusermount3 is missing; install the package fuse3"))
                }
                Err(error) => Err(ExitError::system(format_args!("fusermount3: {error}"))),
            }
        }
        Err(Errno::EBUSY) => Err(busy()),
        Err(error) => Err(ExitError::mount(format_args!("{}: {}", dir.display(), error.desc()))),
    }
}
