//! What a simulation counts.
//!
//! Owns: the counters and what follows from them.
//! Promises: amplification and write cost as docs/lab.md defines them.
//! Never: counts the warm-up.

/// Bins of a histogram of utilizations.
pub const HISTOGRAM_BINS: usize = 10;

/// What happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Blocks that users wrote.
    pub user_writes: u64,
    /// Blocks that users wrote and that came to the log: the others were overwritten before.
    pub user_blocks: u64,
    /// Blocks that the cleaner moved.
    pub moved_blocks: u64,
    /// Blocks that the cleaner read.
    pub cleaning_reads: u64,
    /// Segments cleaned.
    pub victims: u64,
    /// Blocks under cleaning that had to be written at once, lest their only copy be overwritten.
    pub forced_blocks: u64,
    /// Syncs that found something waiting.
    pub syncs: u64,
    /// Heads that these wrote to, at least a chunk and a request each.
    pub sync_heads: u64,
    /// Segments by utilization when they were cleaned.
    pub histogram_cleaning: [u64; HISTOGRAM_BINS],
    /// Sealed segments by utilization, all samples together.
    pub histogram_volume: [u64; HISTOGRAM_BINS],
    /// Blocks written to each group, by users and by the cleaner.
    pub group_blocks: [u64; 8],
    /// Victims of each group, and the blocks that lived in them.
    pub group_victims: [(u64, u64); 8],
}

/// The bin of a segment with so many live blocks.
pub(super) fn bin(live: u32, segment_blocks: u32) -> usize {
    let bin = u64::from(live) * HISTOGRAM_BINS as u64 / u64::from(segment_blocks);
    (bin as usize).min(HISTOGRAM_BINS - 1)
}

impl Counters {
    /// Blocks written to the log over blocks that came to it from users.
    pub fn amplification_log(&self) -> f64 {
        (self.user_blocks + self.moved_blocks) as f64 / self.user_blocks.max(1) as f64
    }

    /// Blocks written to the log over blocks that users wrote: coalescing counts.
    pub fn amplification_user(&self) -> f64 {
        (self.user_blocks + self.moved_blocks) as f64 / self.user_writes.max(1) as f64
    }

    /// Part of the users' writes that never came to the log.
    pub fn coalesced(&self) -> f64 {
        1.0 - self.user_blocks as f64 / self.user_writes.max(1) as f64
    }

    /// The SFS paper's write cost on its SSD-M: (new + cleaning reads + cleaning writes) / new in
    /// time, with writes at 87 MB/s and reads at 10.6.
    pub fn write_cost(&self) -> f64 {
        let new = self.user_blocks.max(1) as f64;
        let reads = self.cleaning_reads as f64 * 87.0 / 10.6;
        (new + reads + self.moved_blocks as f64) / new
    }

    /// Heads that a sync writes to.
    pub fn heads_of_a_sync(&self) -> f64 {
        self.sync_heads as f64 / self.syncs.max(1) as f64
    }

    /// Mean live fraction of victims.
    pub fn victim_utilization(&self, segment_blocks: u32) -> f64 {
        self.cleaning_reads as f64 / (self.victims.max(1) as f64 * f64::from(segment_blocks))
    }
}
