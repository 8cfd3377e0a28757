//! A placement that knows when every block will be written next.
//!
//! Owns: the future.
//! Promises: what dies at about the same time goes to the same group; needs ticks of one block.
//! Never: is a bound. Its groups are fixed and its cleaner is greedy, so a policy that knows less can
//! do better; and it knows writes by their number, so it cannot be used with a write buffer.

use sfs_core::policy::{Candidate, GROUPS_MAX, Placement};

use crate::workload::Operation;

/// A time that never comes.
const NEVER: u32 = u32::MAX;

/// The placement.
pub struct FutureKnowledge {
    /// For each write, by its number from 1, when what it wrote dies.
    death: Vec<u32>,
    /// Remaining ticks of life below which a block belongs to each group.
    bounds: [u32; GROUPS_MAX as usize - 1],
}

impl FutureKnowledge {
    /// From all that users will do, in a volume of `blocks` blocks and segments of `segment_blocks`.
    pub fn new(operations: &[Operation], blocks: u32, segment_blocks: u32) -> Self {
        let mut next = vec![NEVER; blocks as usize];
        let mut now = operations.iter().filter(|op| !op.is_delete()).count() as u32;
        let mut death = vec![NEVER; now as usize + 1];
        for operation in operations.iter().rev() {
            let next = &mut next[operation.block() as usize];
            if operation.is_delete() {
                *next = now;
            } else {
                death[now as usize] = *next;
                *next = now;
                now -= 1;
            }
        }
        // From a few segments to a few volumes, in equal steps of the logarithm.
        let (first, last) = (f64::from(segment_blocks) * 4.0, f64::from(blocks) * 2.0);
        let ratio = (last / first).powf(1.0 / f64::from(GROUPS_MAX - 2));
        let bounds = std::array::from_fn(|group| (first * ratio.powi(group as i32)) as u32);
        Self { death, bounds }
    }
}

impl Placement for FutureKnowledge {
    fn name(&self) -> &'static str {
        "future-knowledge"
    }

    fn group_count(&self) -> u8 {
        GROUPS_MAX
    }

    fn group(&self, candidate: &Candidate, now: u32) -> u8 {
        let written = match candidate.history {
            Some(history) if candidate.cleaning => history.modified,
            _ => now,
        };
        let death = self.death.get(written as usize).copied().unwrap_or(NEVER);
        let left = death.saturating_sub(now);
        self.bounds.iter().map(|bound| u8::from(left >= *bound)).sum()
    }
}
