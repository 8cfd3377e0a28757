//! System calls without a safe form: all unsafe code of this crate. Errors are those of the system.

#![warn(clippy::undocumented_unsafe_blocks)]

pub(crate) mod uring;
pub(crate) mod wake;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `FUSE_DEV_IOC_CLONE` of <linux/fuse.h>.
const CLONE: libc::Ioctl = libc::_IOR::<u32>(229, 0);

/// Connects `new`, a /dev/fuse that was just opened, to the mount of `old`.
pub(crate) fn attach(new: &File, old: &File) -> io::Result<()> {
    let descriptor = old.as_raw_fd().cast_unsigned();
    // SAFETY: the call reads one u32, from `descriptor`, which outlives the call. Both descriptors
    // are open as long as their files are borrowed.
    match unsafe { libc::ioctl(new.as_raw_fd(), CLONE, &raw const descriptor) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
