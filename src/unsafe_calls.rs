//! System calls without a safe form: all unsafe code of this crate. Errors are the system's own.

#![warn(clippy::undocumented_unsafe_blocks)]

use std::fs;
use std::io;

use nix::unistd::{ForkResult, fork};

/// Number of the prctl(2) option, from `linux/prctl.h`; the libc crate lacks it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// Process in which [`split`] has returned.
pub(crate) enum ForkSide {
    /// Process that the user started.
    Parent,
    /// Process that stays.
    Child,
}

/// Forks.
///
/// # Panics
///
/// If this process has more than one thread: the child would have the locks of the others, but not the threads that
/// release them.
pub(crate) fn split() -> io::Result<ForkSide> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    assert_eq!(threads, 1, "fork before threads");
    // SAFETY: there is one thread, as just checked, so the child may do everything that the parent may.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(ForkSide::Parent),
        ForkResult::Child => Ok(ForkSide::Child),
    }
}

/// Marks this thread, and those that it starts, as one that serves write-back: the kernel must not reclaim memory
/// for it by writing back through this filesystem.
pub(crate) fn become_io_flusher() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
