//! Victim policies that are a formula of the usage entry, without state.
//!
//! An empty segment has an infinite score, a full one the score zero.

use super::VictimPolicy;
use crate::format::UsageEntry;
use crate::policy::SavedState;
use crate::policy::hotness::segment_hotness;

/// Returns the utilization: live blocks over all blocks, 0..=1.
fn utilization(segment: &UsageEntry, segment_blocks: u32) -> f64 {
    f64::from(segment.live_blocks) / f64::from(segment_blocks)
}

/// Returns the ticks since the segment was sealed, at least one.
fn age(segment: &UsageEntry, now: u32) -> f64 {
    f64::from(now.saturating_sub(segment.sealed).max(1))
}

macro_rules! formulas {
    ($($(#[$doc:meta])* $policy:ident, $name:literal: $score:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $policy;

        impl SavedState for $policy {
            const STATE_LEN_MAX: usize = 0;
        }

        impl VictimPolicy for $policy {
            fn name(&self) -> &'static str {
                $name
            }

            fn score(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
                let score: fn(f64, &UsageEntry, u32) -> f64 = $score;
                match segment.live_blocks {
                    0 => f64::INFINITY,
                    live if live >= segment_blocks => 0.0,
                    _ => score(utilization(segment, segment_blocks), segment, now),
                }
            }
        }
    )*};
}

formulas! {
    /// Cleans the emptiest segment first.
    Greedy, "greedy": |u, _, _| 1.0 - u;

    /// Scores by freed blocks times the age, over the cost of reading and moving (LFS).
    CostBenefit, "cost-benefit": |u, segment, now| (1.0 - u) / (2.0 * u) * age(segment, now);

    /// Scores by freed blocks times the square root of the age, over the moved blocks (SepBIT's
    /// simulator).
    CostBenefitSqrt, "cost-benefit-sqrt": |u, segment, now| (1.0 - u) / u * age(segment, now).sqrt();

    /// Scores by freed blocks over the cost of reading and moving times the hotness (SFS).
    CostHotness, "cost-hotness": |u, segment, now| {
        (1.0 - u) / (2.0 * u * segment_hotness(segment, now).max(1e-12))
    };

    /// Cleans the oldest segment first (NILFS2).
    CostAge, "cost-age": |_, segment, now| age(segment, now);
}
