//! The clock of file times: the coarse clock that the kernel itself uses for file times.

use std::cell::Cell;

use nix::time::{ClockId, clock_gettime};
use sfs_core::format::Timestamp;

thread_local! {
    /// Time that this thread uses instead of the clock.
    static FIXED: Cell<Option<Timestamp>> = const { Cell::new(None) };
}

/// Fixed time of this thread, as long as the value lives, and the one that was fixed before.
pub(crate) struct FixedTime(Option<Timestamp>);

/// Lets [`now`] return `time` in this thread.
pub(crate) fn fix(time: Timestamp) -> FixedTime {
    FixedTime(FIXED.replace(Some(time)))
}

impl Drop for FixedTime {
    fn drop(&mut self) {
        FIXED.set(self.0);
    }
}

/// Returns the current time, to the resolution of the kernel's timer tick. A clock before 1970 is not set at all
/// and reads as zero.
pub(crate) fn now() -> Timestamp {
    if let Some(fixed) = FIXED.get() {
        return fixed;
    }
    match clock_gettime(ClockId::CLOCK_REALTIME_COARSE) {
        Ok(now) if now.tv_sec() >= 0 => {
            Timestamp { secs: now.tv_sec(), nanos: now.tv_nsec() as u32 }
        }
        _ => Timestamp::default(),
    }
}
