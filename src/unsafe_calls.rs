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
    /// Process that stays as the daemon.
    Child,
}

/// Forks.
///
/// # Panics
///
/// If this process has more than one thread: the child would have the locks of the other threads,
/// but not the threads that release the locks.
pub(crate) fn split() -> io::Result<ForkSide> {
    assert_eq!(thread_count()?, 1, "fork before threads");
    // SAFETY: there is one thread, as just checked, so the child may do everything that the parent may.
    match unsafe { fork() }? {
        ForkResult::Parent { .. } => Ok(ForkSide::Parent),
        ForkResult::Child => Ok(ForkSide::Child),
    }
}

/// Size in bytes from which on an allocation gets a mapping of its own.
#[cfg(target_env = "gnu")]
const MAPPED_LEN_MIN: libc::c_int = 128 << 10;

/// Makes the allocator keep little memory beyond the memory in use. Must be called before there are
/// threads.
///
/// There is one arena: each of several arenas would keep the memory that its threads have freed,
/// and reserve 64 MiB of addresses, which a limit of the address space counts. Large allocations,
/// such as the nodes of a checkpoint and the bytes of a delta, always get a mapping of their own.
/// By default glibc takes sizes up to 32 MiB from the arena once an allocation of that size was
/// freed, and later small allocations in the holes keep the holes from being returned.
pub(crate) fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the calls take no pointer, and set numbers that are read when a thread allocates.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_LEN_MIN);
    }
}

/// Returns the number of free bytes of the allocator, including the bytes that the allocator has
/// returned to the system.
pub(crate) fn free_memory_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and locks the arena while it counts.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Returns the free memory of the allocator to the system.
pub(crate) fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no pointer, and locks the arena during the change.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Marks this thread, and the threads that it starts, as serving write-back: the kernel must not
/// reclaim memory for these threads by writing back through this filesystem.
pub(crate) fn become_io_flusher() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Restricts the system calls of this thread, and of the threads that it starts, by the filter `program`. With `is_logged` the
/// kernel logs the calls that it refuses. Needs `no_new_privs` or privileges.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) fn filter_system_calls(
    program: &[seccompiler::sock_filter],
    is_logged: bool,
) -> io::Result<()> {
    let of_libc = |code: &seccompiler::sock_filter| libc::sock_filter {
        code: code.code,
        jt: code.jt,
        jf: code.jf,
        k: code.k,
    };
    let mut program: Vec<libc::sock_filter> = program.iter().map(of_libc).collect();
    let len = program.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let whole = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // The daemon runs no code of others, which is the case that older kernels slow a filtered process down for.
    let log = if is_logged { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 };
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW | log;
    let set = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel reads `len` instructions from `filter`, which outlive the call, and checks them.
    match unsafe { libc::syscall(libc::SYS_seccomp, set, flags, &raw const whole) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the number of threads of this process.
pub(crate) fn thread_count() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}
