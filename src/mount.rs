//! Putting a filesystem into the kernel's tree.
//!
//! Owns: the ways to mount: by hand for root, through fusermount3 for others.
//! Promises: the mount's source is the device's path, so that tools find one from the other; for
//! root on a block device the kernel knows that there is one (`fuseblk`).
//! Never: serves a request.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::MsFlags;
use sfs_device::BLOCK_SIZE;

use crate::Failure;
use crate::options::MountOptions;

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

/// Mounts, and shakes hands with the kernel.
pub(crate) fn mount<FS: Filesystem>(
    filesystem: FS,
    place: &Place<'_>,
    options: &MountOptions,
) -> Result<Session<FS>, Failure> {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.clone_fd = true;
    config.n_threads = Some(options.threads.unwrap_or_else(threads));
    if !nix::unistd::geteuid().is_root() {
        return mount_as_user(filesystem, place, options, config);
    }
    let door = open_door()?;
    mount_by_hand(&door, place, options)?;
    Session::from_fd(filesystem, OwnedFd::from(door), SessionACL::All, config).map_err(|error| {
        let _ = nix::mount::umount2(place.dir, nix::mount::MntFlags::MNT_DETACH);
        Failure::mount(format_args!("the kernel does not agree with us about FUSE: {error}"))
    })
}

fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    cores.clamp(2, 14) + THREADS_MORE
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
        data.push_str(&format!(",blksize={BLOCK_SIZE}"));
        "fuseblk.sfs"
    } else {
        "fuse.sfs"
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

/// Through fusermount3, which is set-uid.
fn mount_as_user<FS: Filesystem>(
    filesystem: FS,
    place: &Place<'_>,
    options: &MountOptions,
    mut config: Config,
) -> Result<Session<FS>, Failure> {
    // fusermount3 would only say that something was denied.
    drop(open_door()?);
    config.mount_options = vec![
        MountOption::FSName(place.device.display().to_string()),
        MountOption::Subtype("sfs".into()),
        MountOption::DefaultPermissions,
    ];
    if !options.allow_other {
        config.acl = SessionACL::Owner;
    }
    let flags = [
        (MsFlags::MS_RDONLY, MountOption::RO),
        (MsFlags::MS_NOEXEC, MountOption::NoExec),
        (MsFlags::MS_NOATIME, MountOption::NoAtime),
        (MsFlags::MS_SYNCHRONOUS, MountOption::Sync),
    ];
    let wanted = flags.into_iter().filter(|(flag, _)| options.flags.contains(*flag));
    config.mount_options.extend(wanted.map(|(_, option)| option));
    Session::new(filesystem, place.dir, &config).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::system(
            "fusermount3 or /dev/fuse is missing; install the package fuse3, or mount as root",
        ),
        _ => Failure::mount(format_args!("{}: {error}", place.dir.display())),
    })
}

/// What the system says, without the number behind it.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => error.to_string(),
    }
}
