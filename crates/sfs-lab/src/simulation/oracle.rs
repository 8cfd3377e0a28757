//! Policies that know when every block will be written next, for comparison.
//!
//! [`OracleGrouping`] puts blocks that die at about the same time into the same group, and
//! [`OracleVictims`] scores a victim by the times at which its blocks will die. Histories have the time
//! of death in place of the last write, and a tick is one block. The result is no bound, because these
//! policies too have eight heads and clean one victim at a time.

use std::sync::Arc;

use sfs_core::format::{Group, UsageEntry};
use sfs_core::policy::{Candidate, GROUPS_MAX, GroupingPolicy, SavedState, VictimPolicy};

use crate::workload::BlockOperation;

/// Name of the grouping policy, which only the laboratory has.
pub const ORACLE: &str = "future-knowledge";

/// Name of the victim policy that belongs to [`ORACLE`].
pub const ORACLE_VICTIMS: &str = "future-index";

/// Upper bound of a lifetime, in sizes of the volume; longer lifetimes count as this bound.
const SIZES_MAX: u32 = 16;

/// The times at which every block is written or deleted.
#[derive(Debug)]
pub struct WriteSchedule {
    /// Index of the first time of each block in `times`. The last entry is the length of `times`.
    starts: Vec<u32>,
    times: Vec<u32>,
    /// Upper bound of a lifetime, in ticks.
    lifetime_max: u32,
}

impl WriteSchedule {
    /// Returns the schedule of all operations on `blocks` blocks.
    pub fn new(operations: &[BlockOperation], blocks: u32) -> Self {
        let mut starts = vec![0u32; blocks as usize + 1];
        for operation in operations {
            starts[operation.block() as usize + 1] += 1;
        }
        for block in 0..blocks as usize {
            starts[block + 1] += starts[block];
        }
        let mut indices = starts.clone();
        let mut times = vec![0; operations.len()];
        let mut now = 0;
        for operation in operations {
            now += u32::from(!operation.is_delete());
            let index = &mut indices[operation.block() as usize];
            times[*index as usize] = now;
            *index += 1;
        }
        Self { starts, times, lifetime_max: blocks.saturating_mul(SIZES_MAX) }
    }

    /// Returns the tick at which the content that `block` has `now` dies.
    pub fn death(&self, block: u32, now: u32) -> u32 {
        let range = self.starts[block as usize] as usize..self.starts[block as usize + 1] as usize;
        let times = &self.times[range];
        let next = times.get(times.partition_point(|time| *time <= now)).copied();
        next.unwrap_or(u32::MAX).min(now.saturating_add(self.lifetime_max))
    }
}

/// The grouping policy that groups blocks by remaining lifetime.
pub struct OracleGrouping {
    schedule: Arc<WriteSchedule>,
    /// Remaining ticks below which a block belongs to each group.
    bounds: [u32; GROUPS_MAX as usize - 1],
}

impl OracleGrouping {
    /// Returns the policy for a volume of `blocks` blocks with segments of `segment_blocks`.
    pub fn new(schedule: Arc<WriteSchedule>, blocks: u32, segment_blocks: u32) -> Self {
        // From a few segments to a few volumes, in equal steps of the logarithm.
        let (first, last) = (f64::from(segment_blocks) * FIRST, f64::from(blocks) * LAST);
        let ratio = (last / first).powf(1.0 / f64::from(GROUPS_MAX - 2));
        let bounds = std::array::from_fn(|group| (first * ratio.powi(group as i32)) as u32);
        Self { schedule, bounds }
    }
}

/// Lowest bound between groups, in segments.
const FIRST: f64 = 8.0;

/// Highest bound between groups, in sizes of the volume.
const LAST: f64 = 4.0;

impl SavedState for OracleGrouping {
    const STATE_LEN_MAX: usize = 0;
}

impl GroupingPolicy for OracleGrouping {
    fn name(&self) -> &'static str {
        ORACLE
    }

    fn group_count(&self) -> u8 {
        GROUPS_MAX
    }

    fn group(&self, candidate: &Candidate, now: u32) -> Group {
        let death = match candidate.history {
            Some(history) if candidate.cleaning => history.modified,
            _ => self.schedule.death(candidate.block, now),
        };
        let left = death.saturating_sub(now);
        Group(self.bounds.iter().map(|bound| u8::from(left >= *bound)).sum())
    }
}

/// The victim policy: the index of waiting (docs/lab.md), with the times at which the live blocks
/// will die.
pub struct OracleVictims;

impl SavedState for OracleVictims {
    const STATE_LEN_MAX: usize = 0;
}

impl VictimPolicy for OracleVictims {
    fn name(&self) -> &'static str {
        ORACLE_VICTIMS
    }

    fn score(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
        if segment.live_blocks == 0 {
            return f64::INFINITY;
        }
        let live = f64::from(segment.live_blocks);
        let u = live / f64::from(segment_blocks);
        let left = (segment.modified_sum as f64 / live - f64::from(now)).max(1.0);
        if u < 1.0 { ((1.0 - u) / u + u.ln()) * left } else { 0.0 }
    }
}
