//! The clock of file times: the coarse clock that the kernel itself uses for file times.

use nix::time::{ClockId, clock_gettime};
use sfs_core::format::Timestamp;

/// Returns the current time, to the resolution of the kernel's timer tick. A clock before 1970 is not set at all
/// and reads as zero.
pub(crate) fn now() -> Timestamp {
    match clock_gettime(ClockId::CLOCK_REALTIME_COARSE) {
        Ok(now) if now.tv_sec() >= 0 => {
            Timestamp { secs: now.tv_sec(), nanos: now.tv_nsec() as u32 }
        }
        _ => Timestamp::default(),
    }
}
