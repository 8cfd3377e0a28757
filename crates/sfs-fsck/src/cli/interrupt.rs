//! Interrupts by the user: SIGINT and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Flag that an interrupt sets, instead of ending the program.
pub(crate) struct InterruptFlag(Arc<AtomicBool>);

impl InterruptFlag {
    /// Installs the signal handlers.
    ///
    /// # Errors
    ///
    /// Errors of sigaction(2).
    pub(crate) fn install() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Self(flag))
    }

    /// Returns whether there was an interrupt.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
