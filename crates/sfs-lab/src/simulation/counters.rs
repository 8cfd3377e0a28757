//! Counters of a simulation, and the figures that follow from them: write amplification and write cost
//! as `docs/lab.md` defines them.

/// Number of bins in a histogram of utilizations.
pub const HISTOGRAM_BINS: usize = 10;

/// Counts since the end of the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SimulationCounters {
    /// Number of blocks that users wrote.
    pub user_writes: u64,
    /// Number of blocks of users that reached the log. The other blocks were overwritten in the
    /// buffer.
    pub user_blocks: u64,
    /// Number of blocks that the cleaner moved.
    pub moved_blocks: u64,
    /// Number of blocks that the cleaner read.
    pub cleaning_reads: u64,
    /// Number of segments that were cleaned.
    pub victims: u64,
    /// Number of blocks that were written early, because a segment with the only copy of the block
    /// was about to be opened.
    pub forced_blocks: u64,
    /// Number of syncs that found blocks in the buffer.
    pub syncs: u64,
    /// Number of heads to which these syncs wrote, with at least a chunk and a request each.
    pub sync_heads: u64,
    /// Number of victims by utilization.
    pub histogram_cleaning: [u64; HISTOGRAM_BINS],
    /// Number of Sealed segments by utilization, over all samples.
    pub histogram_volume: [u64; HISTOGRAM_BINS],
    /// Number of blocks written to each group, by users and by the cleaner.
    pub group_blocks: [u64; 8],
    /// Number of victims of each group, and of live blocks in these victims.
    pub group_victims: [(u64, u64); 8],
    /// Number of blocks of clean segments and of unwritten blocks of open segments, over all
    /// samples.
    pub withheld_blocks: u64,
    /// Number of samples.
    pub samples: u64,
}

/// Returns the bin of a segment with `live_blocks`.
pub(super) fn bin(live_blocks: u32, segment_blocks: u32) -> usize {
    let bin = u64::from(live_blocks) * HISTOGRAM_BINS as u64 / u64::from(segment_blocks);
    (bin as usize).min(HISTOGRAM_BINS - 1)
}

impl SimulationCounters {
    /// Returns blocks written to the log over users' blocks that reached the log.
    pub fn amplification_log(&self) -> f64 {
        (self.user_blocks + self.moved_blocks) as f64 / self.user_blocks.max(1) as f64
    }

    /// Returns blocks written to the log over blocks that users wrote, so that coalescing counts.
    pub fn amplification_user(&self) -> f64 {
        (self.user_blocks + self.moved_blocks) as f64 / self.user_writes.max(1) as f64
    }

    /// Returns the part of the users' writes, 0..=1, that never reached the log.
    pub fn coalesced(&self) -> f64 {
        1.0 - self.user_blocks as f64 / self.user_writes.max(1) as f64
    }

    /// Returns the SFS paper's write cost on its SSD-M: (new + cleaning reads + cleaning writes) / new in
    /// time, with writes at 87 MB/s and reads at 10.6.
    pub fn write_cost(&self) -> f64 {
        let new = self.user_blocks.max(1) as f64;
        let reads = self.cleaning_reads as f64 * 87.0 / 10.6;
        (new + reads + self.moved_blocks as f64) / new
    }

    /// Returns the mean number of blocks without data: the blocks of clean segments, and the
    /// unwritten blocks of open segments.
    pub fn withheld(&self) -> f64 {
        self.withheld_blocks as f64 / self.samples.max(1) as f64
    }

    /// Returns the mean number of heads to which a sync writes.
    pub fn heads_per_sync(&self) -> f64 {
        self.sync_heads as f64 / self.syncs.max(1) as f64
    }

    /// Returns the mean live fraction of victims, 0..=1.
    pub fn victim_utilization(&self, segment_blocks: u32) -> f64 {
        self.cleaning_reads as f64 / (self.victims.max(1) as f64 * f64::from(segment_blocks))
    }
}
