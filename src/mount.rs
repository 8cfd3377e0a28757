//! The kernel's tree of mounts: putting a volume into it and taking it out.
//!
//! Root mounts by mount(2), an ordinary user through the set-uid program `fusermount3`
//! ([`fusermount`]). The source of a mount is the path of its device, so that tools find one from
//! the other. A block device that root mounts has the type `fuseblk`, for which the kernel also
//! sends SYNCFS and DESTROY. [`open_volume`](mod@open_volume) opens the device before the mount.

mod detach;
mod fusermount;
mod holder;
mod mount_target;
mod open_progress;
mod open_volume;
pub(crate) mod syncfs;
mod unmounted;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use sfs_system::mountinfo;

use crate::exit_error::ExitError;
use crate::mount_options::MountOptions;

pub(crate) use detach::detach;
pub(crate) use holder::refuse_cache_in_use;
pub(crate) use mount_target::MountTarget;
pub(crate) use open_volume::{
    OpenedDevice, explain, open_device, open_to_write_later, open_volume,
};
pub(crate) use unmounted::open_for_reading;

/// Device file of the kernel's FUSE.
pub(crate) const FUSE_DEVICE: &str = "/dev/fuse";

/// Number of threads beside one for each core: a handler waits for the device.
const THREADS_MORE: usize = 2;

/// Number of threads for a volume in an object store: one that waits for the store keeps others from what the cache has.
const THREADS_IN_STORE: usize = 32;

/// Mounts `target` and returns the open `/dev/fuse` that its requests come through.
pub(crate) fn mount(target: &MountTarget<'_>, options: &MountOptions) -> Result<File, ExitError> {
    let channel = open_fuse_device()?;
    if !nix::unistd::geteuid().is_root() {
        // fusermount3 opens the device itself, but explains a missing permission worse than the open above.
        return fusermount::mount(target, options);
    }
    mount_as_root(&channel, target, options)?;
    Ok(channel)
}

/// Number of threads that serve requests: the option's, or one for each core (2 to 14) and [`THREADS_MORE`], or [`THREADS_IN_STORE`].
pub(crate) fn threads(options: &MountOptions, is_in_store: bool) -> usize {
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    let of_device = || cores().clamp(2, 14) + THREADS_MORE;
    options.threads.unwrap_or_else(|| if is_in_store { THREADS_IN_STORE } else { of_device() })
}

fn open_fuse_device() -> Result<File, ExitError> {
    OpenOptions::new().read(true).write(true).open(FUSE_DEVICE).map_err(|error| {
        match error.kind() {
            ErrorKind::PermissionDenied => ExitError::usage(format_args!(
                "{FUSE_DEVICE}: permission denied; mount as root, or let users open it: chmod 666 {FUSE_DEVICE}"
            )),
            ErrorKind::NotFound => {
                ExitError::system(format_args!("{FUSE_DEVICE} is missing; try: modprobe fuse"))
            }
            _ => ExitError::system(format_args!("{FUSE_DEVICE}: {error}")),
        }
    })
}

/// Mounts by mount(2), which only root may call.
fn mount_as_root(
    channel: &File,
    target: &MountTarget<'_>,
    options: &MountOptions,
) -> Result<(), ExitError> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        channel.as_raw_fd()
    );
    let kind = if target.is_block_device {
        // With blocks smaller than a page Linux 7.3 reads the missing blocks of a page, and zeroes the others.
        data.push_str(&format!(",blksize={}", rustix::param::page_size()));
        mountinfo::TYPE_OF_BLOCK_DEVICE
    } else {
        mountinfo::TYPE
    };
    let flags = options.flags;
    nix::mount::mount(Some(target.device), target.dir, Some(kind), flags, Some(data.as_str()))
        .map_err(|error| {
            let (device, dir) = (target.device.display(), target.dir.display());
            match error {
                Errno::EBUSY => ExitError::mount(format_args!("{device} or {dir} is busy")),
                Errno::ENODEV => ExitError::system("the kernel has no FUSE; try: modprobe fuse"),
                error => ExitError::mount(format_args!("{device} on {dir}: {}", error.desc())),
            }
        })
}
