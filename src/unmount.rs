//! Unmounting, until everything is on the device.
//!
//! Owns: `sfs-umount`, and how the daemon unmounts itself.
//! Promises: returns success only when the daemon has let go of the device.
//! Never: unmounts what is not an SFS volume.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use sfs_core::format::{SUPERBLOCK_ADDRESS, Superblock};
use sfs_device::{Access, Block, Device, FileDevice, OpenErrorKind};

use crate::{Failure, mountinfo};

/// Between two looks whether the daemon has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Longer than the slowest card needs for a full write buffer.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Unmounts the volume at `dir`, and waits until everything is on its device.
pub fn unmount(dir: &Path) -> Result<(), Failure> {
    let shown = dir.display();
    let dir = dir.canonicalize().map_err(|error| {
        Failure::usage(format_args!("{shown}: {}", crate::mount::reason(&error)))
    })?;
    let mount = mountinfo::at(&dir)
        .map_err(|error| Failure::system(format_args!("/proc/self/mountinfo: {error}")))?
        .ok_or_else(|| Failure::mount(format_args!("{shown}: not a mount point")))?;
    if !mount.kind.starts_with("fuse") || !is_volume(&mount.source) {
        return Err(Failure::mount(format_args!("{shown}: not an SFS volume; use umount")));
    }
    detach(&dir, MntFlags::empty())?;
    wait_for_daemon(&mount.source)
}

/// Whether the device at `path` carries an SFS superblock.
fn is_volume(path: &Path) -> bool {
    let Ok(device) = FileDevice::open_shared(path, Access::ReadOnly) else { return false };
    let mut blocks = Block::zeroed(1);
    let read = device.read(SUPERBLOCK_ADDRESS, &mut blocks);
    read.is_ok() && Superblock::recognize(Block::bytes_of(&blocks))
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

/// The daemon holds its device until everything is on it.
fn wait_for_daemon(device: &Path) -> Result<(), Failure> {
    let end = Instant::now() + WAIT_MAX;
    loop {
        match FileDevice::open(device, Access::ReadOnly) {
            Err(error) if matches!(error.kind, OpenErrorKind::Busy) => {}
            _ => return Ok(()),
        }
        if Instant::now() > end {
            let device = device.display();
            return Err(Failure::mount(format_args!(
                "{device}: unmounted, but still being written after {} s",
                WAIT_MAX.as_secs()
            )));
        }
        std::thread::sleep(PAUSE);
    }
}
