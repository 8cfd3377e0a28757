//! Times as the kernel encodes them: seconds since 1970, also negative ones, and nanoseconds.
//!
//! A time keeps its value in both directions; nanoseconds beyond a second are clamped.

use std::time::Duration;

/// Largest number of nanoseconds within a second.
const NANOS_MAX: u32 = 999_999_999;

/// Time of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970, rounded down.
    pub secs: i64,
    /// Nanoseconds after `secs`, less than a second.
    pub nanos: u32,
}

/// Time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Time at which the request is served.
    Now,
    /// Time that the request states.
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

/// Splits a caching time into seconds and nanoseconds.
pub(crate) fn ttl(ttl: Duration) -> (u64, u32) {
    (ttl.as_secs(), ttl.subsec_nanos())
}
