//! Times as the kernel says them.
//!
//! Owns: their two forms on the wire.
//! Promises: a time comes back as it was, before 1970 too; what the kernel could not take is cut.
//! Never: asks what time it is.

use std::time::Duration;

/// Nanoseconds in a second, less one.
const NANOS_MAX: u32 = 999_999_999;

/// A moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970, rounded down.
    pub secs: i64,
    /// And nanoseconds, less than a second.
    pub nanos: u32,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which it is set.
    Now,
    /// That one.
    At(Time),
}

impl Time {
    pub(crate) fn from_wire(secs: u64, nanos: u32) -> Self {
        Self { secs: secs.cast_signed(), nanos: nanos.min(NANOS_MAX) }
    }

    pub(crate) fn to_wire(self) -> (u64, u32) {
        (self.secs.cast_unsigned(), self.nanos.min(NANOS_MAX))
    }
}

/// How long something may be remembered: seconds and nanoseconds.
pub(crate) fn ttl(ttl: Duration) -> (u64, u32) {
    (ttl.as_secs(), ttl.subsec_nanos())
}
