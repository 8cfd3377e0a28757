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

/// Makes the allocator use one arena. With several, each keeps what its threads have freed, and reserves 64 MiB of
/// addresses, which a limit of the address space counts. Has to be called before there are threads.
pub(crate) fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and sets a number that is read when a thread allocates for the first time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns the memory that the allocator has free to the system.
pub(crate) fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and locks the arena for as long as it changes it.
    unsafe {
        libc::malloc_trim(0);
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
