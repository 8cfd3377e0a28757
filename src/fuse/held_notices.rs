//! Notifications of changed attributes that wait until their change is recorded.
//!
//! The changes of a mount that survives its daemon are executed one at a time. A notification is a system call, for which the next
//! change need not wait: it is sent once the change is recorded, and before the reply. A daemon that dies in between leaves it to the
//! next one (`repeated_notices`).

use std::cell::RefCell;

#[derive(Default)]
struct Held {
    is_holding: bool,
    inodes: Vec<u64>,
}

thread_local! {
    /// Inodes of the change that this thread executes.
    static HELD: RefCell<Held> = RefCell::default();
}

/// Hold on the notifications of this thread, as long as the value lives.
pub(super) struct HeldNotices(());

impl HeldNotices {
    /// Holds the notifications of the change that this thread is about to execute.
    pub(super) fn begin() -> Self {
        HELD.with_borrow_mut(|held| held.is_holding = true);
        Self(())
    }

    /// Passes the inodes that were held to `send`.
    pub(super) fn send(self, send: impl Fn(u64)) {
        drop(self);
        // The memory is used again.
        let mut inodes = HELD.with_borrow_mut(|held| std::mem::take(&mut held.inodes));
        inodes.drain(..).for_each(send);
        HELD.with_borrow_mut(|held| held.inodes = inodes);
    }
}

impl Drop for HeldNotices {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| held.is_holding = false);
    }
}

/// Holds the notification of inode `ino`, if those of this thread are held. Returns whether they are.
pub(super) fn hold(ino: u64) -> bool {
    HELD.with_borrow_mut(|held| {
        if held.is_holding && !held.inodes.contains(&ino) {
            held.inodes.push(ino);
        }
        held.is_holding
    })
}
