//! Policies: the grouping of blocks that are written to the same segment, and the choice of the
//! segment that is cleaned next.
//!
//! A [`GroupingPolicy`] assigns a block to a group; each group has its own open segment. A
//! [`VictimPolicy`] scores a Sealed segment; the cleaner takes the one with the highest score.
//! [`grouping_policy`] and [`victim_policy`] make a policy from its name. A policy decides from its
//! arguments and its own state alone: it allocates memory only when it is made, takes no lock and
//! reads no clock. The volume and the laboratory run the same code.
//!
//! Time is in *ticks* of the write clock. A tick is a number of blocks that users write, so ages stand still
//! while the volume is idle.

mod grouping;
mod hotness;
mod names;
#[cfg(test)]
mod tests;
mod victim;

pub use grouping::{
    Candidate, Dac, Distance, Fast12, GroupingPolicy, Partition, Quantization, SepBit,
    SeparateCleaning, Sfs, SingleGroup,
};
pub use hotness::segment_hotness;
pub use names::{
    GROUPING_POLICIES, VICTIM_POLICIES, current_name, default_victim_policy, grouping_policy,
    victim_policy,
};
pub use victim::{
    CostAge, CostBenefit, CostBenefitSqrt, CostHotness, Greedy, Index, Tournament, VictimPolicy,
    full_scan,
};

use crate::format::POLICY_STATE_LEN_MAX;

/// Maximum number of groups that a grouping policy may have.
pub const GROUPS_MAX: u8 = 8;

/// Size of the state that a policy saves in a checkpoint, known at compile time.
pub trait SavedState {
    /// Maximum length of the saved state in bytes; 0 for a policy that saves nothing.
    const STATE_LEN_MAX: usize;
}

/// [`SavedState`] for trait objects. Every policy gets it from its [`SavedState`], with a compile-time check
/// against [`POLICY_STATE_LEN_MAX`].
pub trait StateBound {
    /// Maximum length of the saved state in bytes.
    fn state_len_max(&self) -> usize;
}

impl<P: SavedState> StateBound for P {
    fn state_len_max(&self) -> usize {
        const { assert!(P::STATE_LEN_MAX <= POLICY_STATE_LEN_MAX, "the saved state is too long") }
        P::STATE_LEN_MAX
    }
}

/// Returns the base-2 logarithm of the blocks in a tick, for a volume of `blocks` blocks: the
/// volume is 2^18 to 2^19 ticks long, or a tick is one block.
pub fn tick_blocks_log2(blocks: u64) -> u32 {
    blocks.max(1).ilog2().saturating_sub(18)
}
