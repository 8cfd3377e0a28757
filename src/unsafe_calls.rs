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

/// Size in bytes from which on an allocation gets a mapping of its own.
const MAPPED_LEN_MIN: libc::c_int = 128 << 10;

/// Makes the allocator keep little beyond what is in use. Has to be called before there are threads.
///
/// One arena: with several, each keeps what its threads have freed, and reserves 64 MiB of addresses, which a limit of
/// the address space counts. Large allocations, such as the nodes of a checkpoint and the bytes of a delta, always get
/// a mapping of their own. By default glibc takes sizes up to 32 MiB from the arena once one of that size was freed,
/// and the small allocations that follow keep the holes from being returned.
pub(crate) fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls take no pointer, and set numbers that are read when a thread allocates.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_LEN_MIN);
    }
}

/// Returns the number of bytes that the allocator has free, those that it has returned to the system included.
pub(crate) fn free_memory_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and locks the arena while it counts.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    0
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
