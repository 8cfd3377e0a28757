//! Policies: which blocks belong together, and which segment to clean.
//!
//! Owns: the decisions.
//! Promises: a policy is a pure function of what it is shown.
//! Never: carries out what it decides.

use crate::format::{SegmentState, UsageEntry};

/// A block that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Writes of the block before this one.
    pub write_count: u16,
    /// Last write before this one, quarter seconds since the volume was made.
    pub modified: u32,
    /// The cleaner moves it; its user did not write it.
    pub cleaning: bool,
}

/// Says which blocks belong into the same segment.
pub trait Placement: Send + Sync {
    /// Number of groups, 1..=8.
    fn group_count(&self) -> u8;

    /// The group of a block, `0..group_count`. `now` is in quarter seconds since the volume was made.
    fn group(&self, candidate: &Candidate, now: u32) -> u8;
}

/// What users write apart from what the cleaner moves (SepGC).
#[derive(Clone, Copy, Debug, Default)]
pub struct SeparateCleaning;

impl Placement for SeparateCleaning {
    fn group_count(&self) -> u8 {
        2
    }

    fn group(&self, candidate: &Candidate, _now: u32) -> u8 {
        u8::from(candidate.cleaning)
    }
}

/// Says which segment is cleaned next.
pub trait VictimSelection: Send + Sync {
    /// The worth of cleaning a Sealed segment of `segment_blocks`; the largest is cleaned first,
    /// none whose worth is not above zero.
    fn worth(&self, usage: &UsageEntry, segment_blocks: u32, now: u32) -> f64;
}

/// The emptiest segment first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Greedy;

impl VictimSelection for Greedy {
    fn worth(&self, usage: &UsageEntry, segment_blocks: u32, _now: u32) -> f64 {
        1.0 - f64::from(usage.live_blocks) / f64::from(segment_blocks)
    }
}

/// The segments to clean, best first.
pub(crate) fn victims(
    policy: &dyn VictimSelection,
    entries: &[UsageEntry],
    segment_blocks: u32,
    now: u32,
) -> Vec<u32> {
    let mut worths: Vec<(f64, u32)> = (0u32..)
        .zip(entries)
        .filter(|(_, entry)| entry.state == SegmentState::Sealed)
        .map(|(segment, entry)| (policy.worth(entry, segment_blocks, now), segment))
        .filter(|(worth, _)| *worth > 0.0)
        .collect();
    worths.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    worths.into_iter().map(|(_, segment)| segment).collect()
}
