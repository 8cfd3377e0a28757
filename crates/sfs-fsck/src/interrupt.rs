//! Whether the user wants to stop.

use std::sync::atomic::{AtomicBool, Ordering};

static HEARD: AtomicBool = AtomicBool::new(false);

extern "C" fn hear(_: libc::c_int) {
    HEARD.store(true, Ordering::Relaxed);
}

/// From now on an interrupt is remembered instead of ending the program.
pub(crate) fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler does nothing but store to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, hear as *const () as libc::sighandler_t) };
    }
}

/// Whether there was one.
pub(crate) fn heard() -> bool {
    HEARD.load(Ordering::Relaxed)
}
