//! Policies by the names that options and checkpoints know them by.
//!
//! Owns: the names.
//! Promises: a policy made by a name answers to it.
//! Never: decides which policy is used.

use super::{
    CostAge, CostBenefit, CostBenefitSqrt, CostHotness, Dac, Distance, Greedy, GroupingPolicy,
    Index, Lifetime, Partition, SepBit, SeparateCleaning, Sfs, SingleGroup, VictimPolicy,
};

/// Names of grouping policies.
pub const GROUPING_POLICIES: [&str; 7] =
    ["sfs", "sfs-log", "none", "sep-gc", "dac", "sepbit", "lifetime"];

/// Names of victim selections.
pub const VICTIM_POLICIES: [&str; 6] =
    ["greedy", "cost-benefit", "cost-benefit-sqrt", "cost-hotness", "cost-age", "index"];

/// The grouping of this name, with `groups` if it lets them be chosen, for a volume of `segments`
/// of `segment_blocks`, in all of `blocks`.
pub fn grouping_policy(
    name: &str,
    groups: Option<u8>,
    segments: u32,
    segment_blocks: u32,
    blocks: u64,
) -> Option<Box<dyn GroupingPolicy>> {
    let sfs = |distance, partition| {
        Box::new(Sfs::new(distance, partition, groups.unwrap_or(Sfs::GROUPS), segments))
    };
    Some(match name {
        "sfs" => sfs(Distance::Linear, Partition::Iterative),
        "sfs-log" => sfs(Distance::Log, Partition::Iterative),
        "sfs-equal-width" => sfs(Distance::Linear, Partition::EqualWidth),
        "sfs-equal-count" => sfs(Distance::Linear, Partition::EqualCount),
        "none" => Box::new(SingleGroup),
        "sep-gc" => Box::new(SeparateCleaning),
        "dac" => Box::new(Dac::new(groups.unwrap_or(Dac::GROUPS))),
        "sepbit" => Box::new(SepBit::default()),
        "lifetime" => Box::new(Lifetime::new(groups, segments, segment_blocks, blocks)),
        _ => return None,
    })
}

/// The victim selection of this name.
pub fn victim_policy(
    name: &str,
    _segments: u32,
    segment_blocks: u32,
    blocks: u64,
) -> Option<Box<dyn VictimPolicy>> {
    Some(match name {
        "greedy" => Box::new(Greedy),
        "cost-benefit" => Box::new(CostBenefit),
        "cost-benefit-sqrt" => Box::new(CostBenefitSqrt),
        "cost-hotness" => Box::new(CostHotness),
        "cost-age" => Box::new(CostAge),
        "index" => Box::new(Index::new(blocks, segment_blocks)),
        _ => return None,
    })
}

/// The victim selection that goes with this grouping if nothing else is asked for.
pub fn default_victim_policy(grouping: &str) -> &'static str {
    match grouping {
        "sfs" | "sfs-equal-width" | "sfs-equal-count" => "cost-hotness",
        "sfs-log" | "sep-gc" => "cost-benefit",
        "lifetime" => "index",
        "dac" | "sepbit" => "cost-benefit-sqrt",
        _ => "greedy",
    }
}
