//! Policies: which blocks belong together, and which segment to clean.
//!
//! Owns: the decisions, and what a policy has learned.
//! Promises: a policy decides by what it is shown and told, nothing else; it neither allocates (but
//! when it is made), nor locks, nor reads a clock. The volume and the laboratory run the same code.
//! Never: carries out what it decides.
//!
//! Time is in *ticks* of the write clock: it goes on by the blocks that users write, not by
//! seconds, so it stands still while the volume rests, and needs no clock that is set.

mod dac;
mod index;
mod lifetime;
mod names;
mod one;
#[cfg(test)]
mod properties;
mod quantization;
mod separate;
mod sepbit;
mod sfs;
mod victims;

pub use dac::Dac;
pub use index::Index;
pub use lifetime::Lifetime;
pub use names::{
    GROUPING_POLICIES, VICTIM_POLICIES, default_victim_policy, grouping_policy, victim_policy,
};
pub use one::One;
pub use quantization::{Partition, Quantization};
pub use separate::SeparateCleaning;
pub use sepbit::SepBit;
pub use sfs::{Distance, Sfs};
pub use victims::{CostAge, CostBenefit, CostBenefitSqrt, CostHotness, Greedy};

use crate::format::{History, POLICY_STATE_LEN_MAX, SegmentState, UsageEntry};

/// Most groups that a grouping policy may have.
pub const GROUPS_MAX: u8 = 8;

/// A block that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The file.
    pub ino: u64,
    /// Block of the file.
    pub block: u32,
    /// Its history before this write; `None` for a new block. Of a block that the cleaner moves:
    /// its history, which the move does not change.
    pub history: Option<History>,
    /// The group it is in now; `None` for a new block.
    pub group: Option<u8>,
    /// The cleaner moves it; its user did not write it.
    pub cleaning: bool,
    /// Blocks written to the file before this write (SFS, section 3.2: W_f).
    pub file_write_count: u64,
    /// Time of the last write to the file before this one, in ticks (T_f^m).
    pub file_modified: u32,
}

/// A policy that a checkpoint keeps state of, or nothing.
pub trait Kept {
    /// Bytes of its saved state at most.
    const STATE_LEN_MAX: usize;
}

/// [`Kept`] for policies whose type is not known. Every policy has it from there, and with it the check.
pub trait Bounded {
    /// Bytes of its saved state at most.
    fn state_len_max(&self) -> usize;
}

impl<P: Kept> Bounded for P {
    fn state_len_max(&self) -> usize {
        const { assert!(P::STATE_LEN_MAX <= POLICY_STATE_LEN_MAX, "a checkpoint has no room for it") }
        P::STATE_LEN_MAX
    }
}

/// Says which blocks belong into the same segment.
pub trait GroupingPolicy: Bounded + Send + Sync {
    /// Its name in options, and in checkpoints.
    fn name(&self) -> &'static str;

    /// Number of groups, 1..=[`GROUPS_MAX`].
    fn group_count(&self) -> u8;

    /// A segment writing begins (SFS, section 3.3): the groups may be drawn anew.
    fn begin(&mut self, _segments: &[UsageEntry], _segment_blocks: u32, _now: u32) {}

    /// The group of a block, `0..group_count`.
    fn group(&self, candidate: &Candidate, now: u32) -> u8;

    /// Centres of the groups, in the order of their numbers, where it has any: hotness, in writes a
    /// tick, or what else it goes by. Empty before the groups have been drawn.
    fn centres(&self) -> &[f64] {
        &[]
    }

    /// The history of a block that a user writes, from what it was before.
    fn history(&self, before: Option<History>, now: u32) -> History {
        let count = before.map_or(0, History::write_count);
        History::plain(count.saturating_add(1), now)
    }

    /// A user has written a block: `before` is what died by it, `after` what lives now. Deletion
    /// has no `after`. Moves by the cleaner are not told here.
    fn note_write(&mut self, _before: Option<History>, _after: Option<History>, _now: u32) {}

    /// The cleaner has moved a block; its history stays.
    fn note_move(&mut self, _history: History, _now: u32) {}

    /// A victim has been chosen and is about to be emptied.
    fn note_cleaning(&mut self, _segment: &UsageEntry, _now: u32) {}

    /// What a checkpoint keeps for the next mount: [`Kept::STATE_LEN_MAX`] bytes at most.
    fn save(&self, _state: &mut Vec<u8>) {}

    /// What a checkpoint kept; any bytes must be borne.
    fn restore(&mut self, _state: &[u8]) {}
}

/// Says which segment is cleaned next.
pub trait VictimPolicy: Bounded + Send + Sync {
    /// Its name in options, and in checkpoints.
    fn name(&self) -> &'static str;

    /// Victims are about to be chosen, or a segment writing begins.
    fn begin(&mut self, _segments: &[UsageEntry], _segment_blocks: u32, _now: u32) {}

    /// The worth of cleaning a Sealed segment of `segment_blocks`; the largest is cleaned first,
    /// none whose worth is not above zero.
    fn score(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64;

    /// A block of `segment` has been overwritten or deleted (not moved by the cleaner); `segment`
    /// is what it was before.
    fn note_death(&mut self, _segment: &UsageEntry, _now: u32) {}

    /// What a checkpoint keeps for the next mount: [`Kept::STATE_LEN_MAX`] bytes at most.
    fn save(&self, _state: &mut Vec<u8>) {}

    /// What a checkpoint kept; any bytes must be borne.
    fn restore(&mut self, _state: &[u8]) {}
}

/// Blocks of a tick, log2, in a volume of `blocks`: 2^18 to 2^19 ticks are its size, or a tick is
/// one block.
pub fn tick_blocks_log2(blocks: u64) -> u32 {
    blocks.max(1).ilog2().saturating_sub(18)
}

/// The Sealed segment that is most worth cleaning, of those that are `fit`; the first of equals.
pub(crate) fn best_victim(
    policy: &dyn VictimPolicy,
    entries: &[UsageEntry],
    segment_blocks: u32,
    now: u32,
    fit: impl Fn(u32) -> bool,
) -> Option<u32> {
    let mut best: Option<(f64, u32)> = None;
    for (segment, entry) in (0u32..).zip(entries) {
        if entry.state != SegmentState::Sealed {
            continue;
        }
        let worth = policy.score(entry, segment_blocks, now);
        if worth > 0.0 && best.is_none_or(|(most, _)| worth > most) && fit(segment) {
            best = Some((worth, segment));
        }
    }
    best.map(|(_, segment)| segment)
}
