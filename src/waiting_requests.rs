//! The kernel's count of requests that a FUSE daemon has not answered, from a mount of fusectl.
//!
//! Syncing a FUSE filesystem waits for the sync request, but not for data that the page cache
//! writes back. [`WaitingRequests::wait_for_none`] waits for both. The mount of fusectl is private,
//! and ends when [`WaitingRequests`] is dropped.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::mount::{fsconfig_create, fsmount, fsopen};
use sfs_system::mountinfo::DeviceNumber;

use crate::exit_error::ExitError;

const PAUSE: Duration = Duration::from_millis(1);

/// Longest wait: continuous reads can hide that no write is left.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Upper bound on the digits of the count.
const LEN_MAX: u64 = 32;

/// Bits of the minor number in the kernel's form of a device number.
const MINOR_BITS: u32 = 20;

/// The kernel's count of waiting requests of one filesystem.
pub(crate) struct WaitingRequests {
    /// Private mount of fusectl.
    root: OwnedFd,
    path: String,
}

impl WaitingRequests {
    /// Opens the count of the filesystem with device number `number`. Requires root.
    pub(crate) fn of(number: DeviceNumber) -> Result<Self, ExitError> {
        let device = u64::from(number.major) << MINOR_BITS | u64::from(number.minor);
        let opened = open_fusectl().and_then(|root| {
            let inflight = Self { root, path: format!("{device}/waiting") };
            inflight.count().map(|_| inflight)
        });
        opened.map_err(|error| {
            ExitError::system(format_args!(
                "cannot see when the kernel has written everything ({error}); unmount instead"
            ))
        })
    }

    /// Waits until the count is zero.
    pub(crate) fn wait_for_none(&self, dir: &Path) -> Result<(), ExitError> {
        let end = Instant::now() + WAIT_MAX;
        while self.count().map_err(|error| ExitError::system(format_args!("fusectl: {error}")))? > 0
        {
            if Instant::now() > end {
                return Err(ExitError::mount(format_args!(
                    "{}: read-only now, but too busy to see whether everything has been written; \
                     repeat the remount when fewer reads are in progress",
                    dir.display()
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn count(&self) -> io::Result<u64> {
        let file = openat(&self.root, &self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut digits = String::new();
        File::from(file).take(LEN_MAX).read_to_string(&mut digits)?;
        digits.trim().parse().map_err(io::Error::other)
    }
}

/// Mounts fusectl privately, because fusectl is not always mounted under /sys.
fn open_fusectl() -> io::Result<OwnedFd> {
    let filesystem = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&filesystem)?;
    let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY;
    Ok(fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, read_only)?)
}
