//! Latencies of the requests of a mount, by kind of operation.

use serde::{Deserialize, Serialize};

use crate::fuse::{Latencies, LatencySnapshot};

/// Latencies of the requests of one kind since the mount: the time for which the daemon worked on each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Name of the operation in the FUSE protocol; `"other"` for those that the kernel is told not to send again.
    pub operation: String,
    /// Number of requests.
    pub count: u64,
    /// Microseconds that half of the requests did not exceed, rounded up; at most an eighth too high.
    pub p50_us: u64,
    /// Microseconds that 99 % of the requests did not exceed, likewise.
    pub p99_us: u64,
    /// Longest request in microseconds, rounded up.
    pub longest_us: u64,
    /// Sum of all requests in microseconds.
    pub total_us: u64,
    /// Number of requests by octave: those of less than 1.024 microseconds, then those below twice as much, and so on up
    /// to the last octave that has any.
    pub octaves: Vec<u64>,
}

impl LatencyReport {
    /// Reports on the operations of which there were requests.
    pub(crate) fn of(latencies: &Latencies) -> Vec<Self> {
        latencies.snapshot().map(|(name, snapshot)| Self::new(name, &snapshot)).collect()
    }

    fn new(operation: &str, snapshot: &LatencySnapshot) -> Self {
        let micros = |ns: u64| ns.div_ceil(1000);
        Self {
            operation: operation.to_owned(),
            count: snapshot.count(),
            p50_us: micros(snapshot.quantile_ns(0.5)),
            p99_us: micros(snapshot.quantile_ns(0.99)),
            longest_us: micros(snapshot.longest_ns),
            total_us: micros(snapshot.total_ns),
            octaves: snapshot.octaves(),
        }
    }
}
