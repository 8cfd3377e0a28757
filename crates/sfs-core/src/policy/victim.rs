//! Victim policies: the order in which segments are cleaned.
//!
//! [`Tournament`] finds the Sealed segment with the highest score for the cleaner. The formulas of the literature are
//! in `formulas`; `index` learns how the blocks of each group die.

mod formulas;
mod index;
mod tournament;

pub use formulas::{CostAge, CostBenefit, CostBenefitSqrt, CostHotness, Greedy};
pub use index::Index;
pub use tournament::Tournament;

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

    /// Returns the next time, after `now`, at which the score of a Sealed segment jumps although its entry stays the same;
    /// `None` if the score changes smoothly with the time.
    fn next_jump(&self, _segment: &UsageEntry, _now: u32) -> Option<u32> {
        None
    }

    /// Returns the groups, a bit each, whose segments have other scores since the last call because the
    /// policy has learned something: the entries and the time do not explain the difference.
    fn take_rescored(&mut self) -> u16 {
        0
    }

    /// Notes that a user overwrote or deleted a block of `segment`, which is the entry before the
    /// death. Moves by the cleaner are not reported.
    fn note_death(&mut self, _segment: &UsageEntry, _now: u32) {}

    /// Appends the state that a checkpoint saves for the next mount: at most
    /// [`SavedState::STATE_LEN_MAX`](super::SavedState::STATE_LEN_MAX) bytes.
    fn save(&self, _state: &mut Vec<u8>) {}

    /// Loads a saved state. The bytes come from a device: any content must be tolerated.
    fn restore(&mut self, _state: &[u8]) {}
}

/// Returns the score of a segment: zero unless the segment is Sealed.
fn score_of(policy: &dyn VictimPolicy, entry: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
    if entry.state == SegmentState::Sealed { policy.score(entry, segment_blocks, now) } else { 0.0 }
}

/// Returns the Sealed segment with the highest score above zero at the time `now` among those for which `is_fit` holds;
/// the lowest number among equals. Scores every segment.
pub fn full_scan(
    policy: &dyn VictimPolicy,
    entries: &[UsageEntry],
    (segment_blocks, now): (u32, u32),
    is_fit: impl Fn(u32) -> bool,
) -> Option<u32> {
    let mut best: Option<(f64, u32)> = None;
    for (segment, entry) in (0u32..).zip(entries) {
        let score = score_of(policy, entry, segment_blocks, now);
        if score > 0.0 && best.is_none_or(|(most, _)| score > most) && is_fit(segment) {
            best = Some((score, segment));
        }
    }
    best.map(|(_, segment)| segment)
}
