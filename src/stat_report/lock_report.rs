//! Waiting times and holding times of locks since the daemon began, in builds that record them
//! (feature `lock-times`, debug builds).

use serde::{Deserialize, Serialize};
use sfs_core::{DurationHistogram, LockTimes};

/// Times of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockReport {
    /// Name of the lock, as the table in `lock_rank.rs` has it.
    pub name: String,
    /// Times until threads got the lock.
    pub waits: DurationsReport,
    /// Times for which threads held the lock.
    pub holds: DurationsReport,
}

/// Durations of one kind. Quantiles are upper ends of octaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationsReport {
    /// Number of durations.
    pub count: u64,
    /// Nanoseconds that 99 % of the durations do not exceed.
    pub p99_ns: u64,
    /// Nanoseconds that 99.9 % of the durations do not exceed.
    pub p999_ns: u64,
    /// Longest duration in nanoseconds.
    pub longest_ns: u64,
}

impl From<LockTimes> for LockReport {
    fn from(times: LockTimes) -> Self {
        let LockTimes { name, waits, holds } = times;
        Self { name: name.to_owned(), waits: waits.into(), holds: holds.into() }
    }
}

impl From<DurationHistogram> for DurationsReport {
    fn from(histogram: DurationHistogram) -> Self {
        Self {
            count: histogram.counts.iter().sum(),
            p99_ns: histogram.quantile_ns(0.99),
            p999_ns: histogram.quantile_ns(0.999),
            longest_ns: histogram.longest_ns,
        }
    }
}
