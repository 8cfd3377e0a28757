//! Victim policies: the order in which segments are cleaned.
//!
//! [`best_victim`] scores every Sealed segment for the cleaner. The formulas of the literature are
//! in `formulas`; `index` learns how the blocks of each group die.

mod formulas;
mod index;

pub use formulas::{CostAge, CostBenefit, CostBenefitSqrt, CostHotness, Greedy};
pub use index::Index;

use super::StateBound;
use crate::format::{SegmentState, UsageEntry};

/// Scores segments for cleaning.
pub trait VictimPolicy: StateBound + Send + Sync {
    /// Returns the name of the policy in mount options and checkpoints.
    fn name(&self) -> &'static str;

    /// Begins to write a batch: the policy may look at all segments and update its state.
    fn begin(&mut self, _segments: &[UsageEntry], _segment_blocks: u32, _now: u32) {}

    /// Returns the score of a Sealed segment of `segment_blocks`. The highest score is cleaned first; a
    /// segment whose score is not above zero is not cleaned.
    fn score(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64;

    /// Notes that a user overwrote or deleted a block of `segment`, which is the entry before that. Moves by
    /// the cleaner are not reported.
    fn note_death(&mut self, _segment: &UsageEntry, _now: u32) {}

    /// Appends the state that a checkpoint saves for the next mount: at most
    /// [`SavedState::STATE_LEN_MAX`](super::SavedState::STATE_LEN_MAX) bytes.
    fn save(&self, _state: &mut Vec<u8>) {}

    /// Loads a saved state. The bytes come from a device: any content must be tolerated.
    fn restore(&mut self, _state: &[u8]) {}
}

/// Returns the Sealed segment with the highest score above zero among those for which `is_fit` holds; the
/// lowest number among equals.
pub(crate) fn best_victim(
    policy: &dyn VictimPolicy,
    entries: &[UsageEntry],
    segment_blocks: u32,
    now: u32,
    is_fit: impl Fn(u32) -> bool,
) -> Option<u32> {
    let mut best: Option<(f64, u32)> = None;
    for (segment, entry) in (0u32..).zip(entries) {
        if entry.state != SegmentState::Sealed {
            continue;
        }
        let score = policy.score(entry, segment_blocks, now);
        if score > 0.0 && best.is_none_or(|(most, _)| score > most) && is_fit(segment) {
            best = Some((score, segment));
        }
    }
    best.map(|(_, segment)| segment)
}
