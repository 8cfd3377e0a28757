//! Putting a filesystem into the kernel's tree.
//!
//! Owns: the ways to mount: by hand for root, through fusermount3 for others.
//! Promises: the mount's source is the device's path, so that tools find one from the other; for
//! root on a block device the kernel knows that there is one (`fuseblk`).
//! Never: serves a request.

mod helper;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;

use crate::options::MountOptions;
use crate::{Failure, mountinfo};

/// The kernel's door to FUSE.
const DOOR: &str = "/dev/fuse";

/// Threads beside one for each core: handlers wait for the device.
const THREADS_MORE: usize = 2;

/// What is mounted where.
pub(crate) struct Place<'a> {
    /// The device's path, absolute.
    pub(crate) device: &'a Path,
    pub(crate) is_block_device: bool,
    /// The directory, absolute.
    pub(crate) dir: &'a Path,
}

/// Mounts; gives the door that the kernel's requests come through.
pub(crate) fn mount(place: &Place<'_>, options: &MountOptions) -> Result<File, Failure> {
    let door = open_door()?;
    if !nix::unistd::geteuid().is_root() {
        // fusermount3 opens its own; without ours it would only say that something was denied.
        return helper::mount(place, options);
    }
    mount_by_hand(&door, place, options)?;
    Ok(door)
}

/// Threads that serve requests.
pub(crate) fn threads(options: &MountOptions) -> usize {
    let cores = || std::thread::available_parallelism().map_or(2, usize::from);
    options.threads.unwrap_or_else(|| cores().clamp(2, 14) + THREADS_MORE)
}

fn open_door() -> Result<File, Failure> {
    OpenOptions::new().read(true).write(true).open(DOOR).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => Failure::usage(format_args!(
            "{DOOR}: permission denied; mount as root, or let users open it"
        )),
        ErrorKind::NotFound => {
            Failure::system(format_args!("{DOOR} is missing; try: modprobe fuse"))
        }
        _ => Failure::system(format_args!("{DOOR}: {error}")),
    })
}

/// mount(2), as only root can.
fn mount_by_hand(door: &File, place: &Place<'_>, options: &MountOptions) -> Result<(), Failure> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        door.as_raw_fd()
    );
    let kind = if place.is_block_device {
        // Of a page with several blocks Linux 7.3 reads those that it lacks, and clears the others.
        data.push_str(&format!(",blksize={}", rustix::param::page_size()));
        mountinfo::TYPE_OF_BLOCK_DEVICE
    } else {
        mountinfo::TYPE
    };
    let flags = options.flags;
    nix::mount::mount(Some(place.device), place.dir, Some(kind), flags, Some(data.as_str()))
        .map_err(|error| {
            let (device, dir) = (place.device.display(), place.dir.display());
            match error {
                Errno::EBUSY => Failure::mount(format_args!("{device} or {dir} is busy")),
                Errno::ENODEV => Failure::system("the kernel has no FUSE; try: modprobe fuse"),
                error => Failure::mount(format_args!("{device} on {dir}: {}", error.desc())),
            }
        })
}

/// What the system says, without the number behind it.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}
