//! The turns of a handover and of an unmount that this program asks for.
//!
//! An unmount waits for an answer, and holds the monitor up meanwhile; in the pause of a handover nobody answers. So an unmount by a
//! signal waits for the end of a handover, which gives up while it can.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// One of the two at a time.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_end_wanted: AtomicBool,
    taken: Mutex<()>,
}

impl Turn {
    /// Waits for the turn of a handover.
    pub(super) fn of_handover(&self) -> MutexGuard<'_, ()> {
        self.taken.lock()
    }

    /// Returns whether an unmount waits for its turn.
    pub(super) fn is_end_wanted(&self) -> bool {
        self.is_end_wanted.load(Ordering::SeqCst)
    }

    /// Unmounts in its turn.
    pub(crate) fn unmount<T>(&self, unmount: impl FnOnce() -> T) -> T {
        self.is_end_wanted.store(true, Ordering::SeqCst);
        let taken = self.taken.lock();
        let outcome = unmount();
        self.is_end_wanted.store(false, Ordering::SeqCst);
        drop(taken);
        outcome
    }
}
