//! Privileges of the process that sent a request, as far as the kernel does not check them itself.

use std::cell::Cell;

use crate::monitor::Monitor;

thread_local! {
    /// Whether the process that has sent the request of this thread keeps suid, sgid and capabilities of the file, if that is decided.
    static DECIDED: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Decision that was made for the request of this thread, as long as the value lives.
pub(super) struct Decision(());

/// Decides that the process that has sent the request of this thread keeps privileges of the file, or not.
pub(super) fn decide(keeps: bool) -> Decision {
    DECIDED.set(Some(keeps));
    Decision(())
}

/// Returns what was decided.
pub(super) fn decided() -> Option<bool> {
    DECIDED.get()
}

impl Drop for Decision {
    fn drop(&mut self) {
        DECIDED.set(None);
    }
}

/// Number of CAP_FSETID in capabilities(7).
const CAP_FSETID: u32 = 4;

/// Number of CAP_SYS_ADMIN in capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;

/// Number of CAP_LINUX_IMMUTABLE in capabilities(7).
const CAP_LINUX_IMMUTABLE: u32 = 9;

/// Returns whether the process, or thread, `pid` has CAP_SYS_ADMIN in the user namespace of this
/// process; `false` if the process cannot be looked at.
pub(super) fn is_admin(monitor: &Monitor, pid: u32) -> bool {
    has_capability(monitor, pid, CAP_SYS_ADMIN)
}

/// Returns whether the process, or thread, `pid` may make files immutable, as [`is_admin`] does.
pub(super) fn may_make_immutable(monitor: &Monitor, pid: u32) -> bool {
    has_capability(monitor, pid, CAP_LINUX_IMMUTABLE)
}

/// Returns whether the process, or thread, `pid` may change a file without clearing its suid and sgid; `false` if the
/// process cannot be looked at.
pub(super) fn may_keep_setid(monitor: &Monitor, pid: u32) -> bool {
    has_capability(monitor, pid, CAP_FSETID)
}

fn has_capability(monitor: &Monitor, pid: u32, number: u32) -> bool {
    monitor.capabilities(pid).is_some_and(|capabilities| capabilities & 1 << number != 0)
}
