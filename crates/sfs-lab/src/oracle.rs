//! A grouping and a victim selection that know when every block will be written next.
//!
//! Owns: the future.
//! Promises: what dies at about the same time goes to the same group, and a victim's worth is taken
//! from when its blocks will really die. Its histories have the time of death in the place of the last
//! write. Needs ticks of one block.
//! Never: is a bound: eight heads and one victim at a time are what the other policies have, too.

use std::sync::Arc;

use sfs_core::format::UsageEntry;
use sfs_core::policy::{Candidate, GROUPS_MAX, GroupingPolicy, SavedState, VictimPolicy};

use crate::workload::Operation;

/// Lives longer than so many volumes are alike.
const SIZES_MAX: u32 = 16;

/// When every block is written or deleted.
#[derive(Debug)]
pub struct Future {
    /// Where the times of each block begin; one more is the end.
    starts: Vec<u32>,
    times: Vec<u32>,
    longest: u32,
}

impl Future {
    /// Of all that users will do, to `blocks` blocks.
    pub fn new(operations: &[Operation], blocks: u32) -> Self {
        let mut starts = vec![0u32; blocks as usize + 1];
        for operation in operations {
            starts[operation.block() as usize + 1] += 1;
        }
        for block in 0..blocks as usize {
            starts[block + 1] += starts[block];
        }
        let mut places = starts.clone();
        let mut times = vec![0; operations.len()];
        let mut now = 0;
        for operation in operations {
            now += u32::from(!operation.is_delete());
            let place = &mut places[operation.block() as usize];
            times[*place as usize] = now;
            *place += 1;
        }
        Self { starts, times, longest: blocks.saturating_mul(SIZES_MAX) }
    }

    /// When what `block` holds `now` dies.
    pub fn death(&self, block: u32, now: u32) -> u32 {
        let range = self.starts[block as usize] as usize..self.starts[block as usize + 1] as usize;
        let times = &self.times[range];
        let next = times.get(times.partition_point(|time| *time <= now)).copied();
        next.unwrap_or(u32::MAX).min(now.saturating_add(self.longest))
    }
}

/// The grouping.
pub struct FutureKnowledge {
    future: Arc<Future>,
    /// Remaining ticks of life below which a block belongs to each group.
    bounds: [u32; GROUPS_MAX as usize - 1],
}

impl FutureKnowledge {
    /// For a volume of `blocks` blocks and segments of `segment_blocks`.
    pub fn new(future: Arc<Future>, blocks: u32, segment_blocks: u32) -> Self {
        // From a few segments to a few volumes, in equal steps of the logarithm.
        let (first, last) = (f64::from(segment_blocks) * FIRST, f64::from(blocks) * LAST);
        let ratio = (last / first).powf(1.0 / f64::from(GROUPS_MAX - 2));
        let bounds = std::array::from_fn(|group| (first * ratio.powi(group as i32)) as u32);
        Self { future, bounds }
    }
}

/// The lowest bound in segments, and the highest in sizes of the volume.
const FIRST: f64 = 8.0;
const LAST: f64 = 4.0;

impl SavedState for FutureKnowledge {
    const STATE_LEN_MAX: usize = 0;
}

impl GroupingPolicy for FutureKnowledge {
    fn name(&self) -> &'static str {
        "future-knowledge"
    }

    fn group_count(&self) -> u8 {
        GROUPS_MAX
    }

    fn group(&self, candidate: &Candidate, now: u32) -> u8 {
        let death = match candidate.history {
            Some(history) if candidate.cleaning => history.modified,
            _ => self.future.death(candidate.block, now),
        };
        let left = death.saturating_sub(now);
        self.bounds.iter().map(|bound| u8::from(left >= *bound)).sum()
    }
}

/// The victim selection: the index of waiting, with the rate that the live blocks really have.
pub struct FutureIndex;

impl SavedState for FutureIndex {
    const STATE_LEN_MAX: usize = 0;
}

impl VictimPolicy for FutureIndex {
    fn name(&self) -> &'static str {
        "future-index"
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
