//! Calls to the system that have no safe form.
//!
//! Owns: all unsafe code of this crate.
//! Promises: safe functions, whose errors are the system's own.
//! Never: retries, or decides what an error means.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::fs;
use std::io;

use nix::unistd::{ForkResult, fork};

/// From `linux/prctl.h`; the libc crate does not have it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// What [`split`] returned in.
pub(crate) enum ForkSide {
    /// The process that the user started.
    Parent,
    /// The one that stays.
    Child,
}

/// Forks.
///
/// # Panics
///
/// When this process has more than one thread: the child would have the locks of the others and
/// not the threads that open them.
pub(crate) fn split() -> io::Result<ForkSide> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    assert_eq!(threads, 1, "fork before threads");
    // SAFETY: there is one thread, as just seen, so the child may do anything the parent may.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(ForkSide::Parent),
        ForkResult::Child => Ok(ForkSide::Child),
    }
}

/// Tells the kernel that memory for this thread, and for those it starts, must not be had by
/// writing back through ourselves.
pub(crate) fn become_io_flusher() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
