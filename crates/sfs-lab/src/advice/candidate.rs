//! Settings of a volume, and what they cost.

use serde::Serialize;
use sfs_core::policy;

use crate::in_memory::TracedCounts;

/// Settings of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Grouping policy.
    pub policy: String,
    /// Victim policy.
    pub victim: String,
    /// Bytes in a segment.
    pub segment_bytes: u64,
    /// Bytes of the write buffer.
    pub write_buffer_bytes: u64,
}

impl Candidate {
    /// Returns the mount options that differ from those of `other`, as a comma list; the segment size is none of them.
    pub fn options(&self, other: &Self) -> String {
        let mut options = Vec::new();
        if self.policy != other.policy {
            options.push(format!("policy={}", self.policy));
        }
        let is_default = self.victim == policy::default_victim_policy(&self.policy);
        if self.victim != other.victim && !is_default {
            options.push(format!("victim={}", self.victim));
        }
        if self.write_buffer_bytes != other.write_buffer_bytes {
            options.push(format!("write_buffer={}M", self.write_buffer_bytes >> 20));
        }
        options.join(",")
    }
}

/// Cost of a candidate, in bytes on the device for each byte that programs write.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CandidateOutcome {
    /// Settings.
    pub candidate: Candidate,
    /// Write amplification: all bytes.
    pub amplification: f64,
    /// Data for the first time; below 1 where programs overwrite data that still waits in memory.
    pub data: f64,
    /// Data that cleaning moves.
    pub moved: f64,
    /// Tree nodes, checkpoints, summaries and deltas.
    pub metadata: f64,
    /// Times that a writer had to clean or to wait for a checkpoint.
    pub stalls: u64,
}

impl CandidateOutcome {
    pub(super) fn new(candidate: &Candidate, counts: &TracedCounts) -> Self {
        let counters = &counts.counters;
        let part = |bytes: u64| bytes as f64 / counts.written_bytes as f64;
        Self {
            candidate: candidate.clone(),
            amplification: part(counters.device_bytes_written),
            data: part(counters.data_bytes),
            moved: part(counters.cleaning_bytes),
            metadata: part(counters.metadata_bytes + counters.summary_bytes),
            stalls: counters.stalls,
        }
    }
}
