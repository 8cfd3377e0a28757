//! The result of a measurement: throughput by size, the answer, or the reason why there is none.

use std::fmt;

use serde::Serialize;

use crate::Human;

/// Throughput of requests of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThroughputRow {
    /// Size of a request, in bytes.
    pub size: u64,
    /// Throughput of sequential writes, in kB/s (1000 bytes).
    pub sequential_kb_per_s: u64,
    /// Throughput of random writes that do not overlap, in kB/s.
    pub random_kb_per_s: u64,
}

/// Result of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Measurement {
    /// Throughput in the order of measurement; a size that looked slow occurs more than once.
    pub rows: Vec<ThroughputRow>,
    /// Size from which random writes are as fast as sequential ones, in bytes. `None` if there is
    /// no such size, or the time ran out.
    pub segment_size: Option<u64>,
    /// Reason why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unclear: Option<Unclear>,
    /// Number of bytes written.
    pub written_bytes: u64,
    /// Device time, in milliseconds.
    pub elapsed_ms: u64,
}

/// Reason why a measurement has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Unclear {
    /// The device is too small for a few requests.
    TooSmall,
    /// The time ran out before random writes of `size` bytes were judged; larger ones are as fast as sequential ones.
    TimeRanOut {
        /// Size of the requests that were, or would have been, next.
        size: u64,
    },
    /// The device maps pages, and is too slow for whole passes in the time; or it is very slow.
    TooSlow,
    /// The device maps pages, and its sequential writes take uneven times: it cleans up older writes, so its log does not
    /// begin with an erase block.
    Unsettled,
    /// Random writes are slower than sequential ones even at the largest size.
    AlwaysSlow,
    /// Random writes are as fast as sequential ones at every size.
    NeverSlow,
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall => f.write_str("the device is too small to measure"),
            Self::TimeRanOut { size } => write!(
                f,
                "the time ran out at requests of {}; allow more with --measure-time",
                Human(*size)
            ),
            Self::TooSlow => f.write_str(
                "the device is too slow to be written often enough; allow more with --measure-time",
            ),
            Self::Unsettled => f.write_str(
                "sequential writes take uneven times, as on a device that still cleans up older ones",
            ),
            Self::AlwaysSlow => f.write_str("random writes are slower at every size"),
            Self::NeverSlow => f.write_str("random writes are as fast at every size"),
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  request    sequential    random     (MB/s)")?;
        for row in &self.rows {
            let mb = |kb_per_s: u64| kb_per_s as f64 / 1000.0;
            let size = Human(row.size).to_string();
            let (sequential, random) = (mb(row.sequential_kb_per_s), mb(row.random_kb_per_s));
            writeln!(f, "  {size:<10} {sequential:>10.1} {random:>9.1}")?;
        }
        let written = Human(self.written_bytes);
        write!(f, "  {written} written in {:.1} s: ", self.elapsed_ms as f64 / 1000.0)?;
        match self.segment_size {
            Some(size) => {
                write!(f, "random writes are as fast as sequential ones from {} on", Human(size))
            }
            None => match self.unclear {
                Some(reason) => write!(f, "found no erase block size: {reason}"),
                None => f.write_str("found no erase block size"),
            },
        }
    }
}
