//! Victims by a formula of their usage entry.
//!
//! Owns: nothing; each is a formula.
//! Promises: an empty segment is worth more than any other, a full one nothing.
//! Never: learns.

use super::VictimPolicy;
use crate::format::UsageEntry;
use crate::policy::SavedState;
use crate::policy::hotness::segment_hotness;

/// Live blocks over all, 0..=1.
fn utilization(segment: &UsageEntry, segment_blocks: u32) -> f64 {
    f64::from(segment.live_blocks) / f64::from(segment_blocks)
}

/// Ticks since the last append, at least one.
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
    /// The emptiest segment first.
    Greedy, "greedy": |u, _, _| 1.0 - u;

    /// What is freed, times how long it has been stable, for what is moved (LFS).
    CostBenefit, "cost-benefit": |u, segment, now| (1.0 - u) / (2.0 * u) * age(segment, now);

    /// The same with the square root of the age (SepBIT's simulator).
    CostBenefitSqrt, "cost-benefit-sqrt": |u, segment, now| (1.0 - u) / u * age(segment, now).sqrt();

    /// What is freed for what is moved, and the coldest first (SFS).
    CostHotness, "cost-hotness": |u, segment, now| {
        (1.0 - u) / (2.0 * u * segment_hotness(segment, now).max(1e-12))
    };

    /// The oldest segment first (NILFS2).
    CostAge, "cost-age": |_, segment, now| age(segment, now);
}
