//! The table of policies: the names that mount options and checkpoints use, and how each policy is made.
//!
//! To add a policy:
//! 1. Write it in `grouping/` or `victim/`: the trait's methods, and `SavedState` for its checkpoint state. A victim
//!    policy that is a formula is one entry of `formulas!` in `victim/formulas.rs`; a victim policy that learns, or whose
//!    score jumps with time, also implements `take_rescored` and `next_jump`.
//! 2. Export it from `grouping.rs` or `victim.rs`, and from `policy.rs`.
//! 3. Import it here, and add its line to the table below: name, for a grouping policy its default victim policy, and
//!    constructor. Mount options, tests and the laboratory read the table.
//! 4. Run `cargo test -p sfs-core policy` and `--test policies`: both commands test every name of the table.
//! 5. Compare it with the others in `docs/lab.md`.

use super::{
    CostAge, CostBenefit, CostBenefitSqrt, CostHotness, Dac, Distance, Fast12, Greedy,
    GroupingPolicy, Index, Partition, SepBit, SeparateCleaning, Sfs, SingleGroup, VictimPolicy,
};

/// The arguments of a policy's constructor.
struct Parameters {
    /// Number of groups that the user chose.
    groups: Option<u8>,
    /// Number of segments of the volume.
    segments: u32,
    /// Number of blocks in a segment.
    segment_blocks: u32,
    /// Number of blocks of the volume.
    blocks: u64,
}

fn fast12(volume: &Parameters, distance: Distance, partition: Partition) -> Fast12 {
    Fast12::new(distance, partition, volume.groups.unwrap_or(Fast12::GROUPS), volume.segments)
}

/// Makes the list, the constructor and the default victim policies from a table of grouping
/// policies. Unlisted policies are for experiments: a volume accepts their names, but no list
/// contains them.
macro_rules! grouping_policies {
    (
        $($name:literal, $victim:literal: $new:expr;)*
        unlisted: $($other:literal, $other_victim:literal: $other_new:expr;)*
    ) => {
        /// Names of the grouping policies.
        pub const GROUPING_POLICIES: [&str; [$($name),*].len()] = [$($name),*];

        fn make_grouping(name: &str, volume: &Parameters) -> Option<Box<dyn GroupingPolicy>> {
            match name {
                $($name => Some(boxed_grouping(volume, $new)),)*
                $($other => Some(boxed_grouping(volume, $other_new)),)*
                _ => None,
            }
        }

        /// Returns the name of the victim policy that goes with a grouping policy unless the user chooses
        /// another one.
        pub fn default_victim_policy(grouping: &str) -> &'static str {
            match current_name(grouping) {
                $($name => $victim,)*
                $($other => $other_victim,)*
                _ => "greedy",
            }
        }
    };
}

/// Makes the list and the constructor from a table of victim policies.
macro_rules! victim_policies {
    ($($name:literal: $new:expr;)*) => {
        /// Names of the victim policies.
        pub const VICTIM_POLICIES: [&str; [$($name),*].len()] = [$($name),*];

        fn make_victim(name: &str, volume: &Parameters) -> Option<Box<dyn VictimPolicy>> {
            match name {
                $($name => Some(boxed_victim(volume, $new)),)*
                _ => None,
            }
        }
    };
}

grouping_policies! {
    "sfs", "index": |volume| {
        Sfs::new(volume.groups, volume.segments, volume.segment_blocks, volume.blocks)
    };
    "sfs-fast12", "cost-hotness": |volume| fast12(volume, Distance::Linear, Partition::Iterative);
    "sfs-log", "cost-benefit": |volume| fast12(volume, Distance::Log, Partition::Iterative);
    "none", "greedy": |_| SingleGroup;
    "sep-gc", "cost-benefit": |_| SeparateCleaning;
    "dac", "cost-benefit-sqrt": |volume| Dac::new(volume.groups.unwrap_or(Dac::GROUPS));
    "sepbit", "cost-benefit-sqrt": |_| SepBit::default();
    unlisted:
    "sfs-equal-width", "cost-hotness": |volume| {
        fast12(volume, Distance::Linear, Partition::EqualWidth)
    };
    "sfs-equal-count", "cost-hotness": |volume| {
        fast12(volume, Distance::Linear, Partition::EqualCount)
    };
}

/// Earlier names of policies, in mount options and checkpoints, with the present ones.
const OLD_NAMES: [(&str, &str); 1] = [("lifetime", "sfs")];

/// Returns the present name of a policy.
pub fn current_name(name: &str) -> &str {
    OLD_NAMES.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| *new)
}

victim_policies! {
    "greedy": |_| Greedy;
    "cost-benefit": |_| CostBenefit;
    "cost-benefit-sqrt": |_| CostBenefitSqrt;
    "cost-hotness": |_| CostHotness;
    "cost-age": |_| CostAge;
    "index": |volume| Index::new(volume.blocks, volume.segment_blocks);
}

fn boxed_grouping<P: GroupingPolicy + 'static>(
    volume: &Parameters,
    new: impl FnOnce(&Parameters) -> P,
) -> Box<dyn GroupingPolicy> {
    Box::new(new(volume))
}

fn boxed_victim<P: VictimPolicy + 'static>(
    volume: &Parameters,
    new: impl FnOnce(&Parameters) -> P,
) -> Box<dyn VictimPolicy> {
    Box::new(new(volume))
}

/// Returns the grouping policy `name` for a volume of `blocks` blocks in `segments` segments of
/// `segment_blocks` blocks; `None` for an unknown name. Policies with a fixed number of groups
/// ignore `groups`.
pub fn grouping_policy(
    name: &str,
    groups: Option<u8>,
    segments: u32,
    segment_blocks: u32,
    blocks: u64,
) -> Option<Box<dyn GroupingPolicy>> {
    make_grouping(current_name(name), &Parameters { groups, segments, segment_blocks, blocks })
}

/// Returns the victim policy `name` for a volume of `blocks` blocks in `segments` segments of
/// `segment_blocks` blocks; `None` for an unknown name.
pub fn victim_policy(
    name: &str,
    segments: u32,
    segment_blocks: u32,
    blocks: u64,
) -> Option<Box<dyn VictimPolicy>> {
    make_victim(name, &Parameters { groups: None, segments, segment_blocks, blocks })
}
