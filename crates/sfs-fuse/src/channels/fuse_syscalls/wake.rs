//! A signal that ends the wait of a thread in a system call.

use std::io;

/// Signal that ends the wait of a thread for a request. By default it is ignored, so a stray one does no harm.
const WAKING: libc::c_int = libc::SIGURG;

/// Lets [`wake`] end system calls of this thread, and of the threads that it will start.
pub(crate) fn can_be_woken() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: zeroes are a valid `sigaction`: no flags, and no signals to block. Without SA_RESTART a call ends with EINTR.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, so it may run at any time; `action` outlives the call.
    if unsafe { libc::sigaction(WAKING, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroes are a valid set of signals for `sigemptyset` to begin from; both calls are given a set that outlives them.
    let error = unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        libc::sigaddset(&raw mut signals, WAKING);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Returns the number of this thread.
pub(crate) fn thread_number() -> libc::pid_t {
    // SAFETY: no memory is passed.
    unsafe { libc::gettid() }
}

/// Ends a system call in which thread `number` of this process waits. Does nothing to a thread that runs.
pub(crate) fn wake(number: libc::pid_t) {
    // SAFETY: no memory is passed. The signal has a handler that does nothing, or is ignored.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, WAKING) };
}
