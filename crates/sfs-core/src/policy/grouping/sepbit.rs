//! SepBIT (FAST 2022): the lifespan of an overwritten block predicts the lifespan of the new block.
//!
//! The policy has the paper's six classes. The paper keeps a queue of recent addresses to learn whether a block
//! was written less than a lifespan ago; here the mapping has the time of the last write.

use super::{Candidate, GroupingPolicy};
use crate::format::{Group, History, UsageEntry};
use crate::policy::SavedState;

/// Number of cleaned segments of group 0 per update of the mean lifespan.
const SEGMENTS: u32 = 16;

/// The SepBIT policy. Groups 0 and 1 are the paper's classes 1 and 2, written by users; groups 2 to 5 are written
/// by the cleaner.
#[derive(Clone, Copy, Debug)]
pub struct SepBit {
    /// Mean lifespan of a segment of group 0, in ticks; infinite before the first mean.
    lifespan: f64,
    /// Sum and count of the lifespans since the last mean.
    sum: u64,
    count: u32,
}

impl Default for SepBit {
    fn default() -> Self {
        Self { lifespan: f64::INFINITY, sum: 0, count: 0 }
    }
}

impl SepBit {
    fn user_group(&self, before: Option<History>, now: u32) -> Group {
        let short = before
            .is_some_and(|history| f64::from(now.saturating_sub(history.modified)) < self.lifespan);
        Group((!short).into())
    }

    fn cleaned_group(&self, candidate: &Candidate, now: u32) -> Group {
        if candidate.group == Some(Group(0)) {
            return Group(2);
        }
        let modified = candidate.history.map_or(0, |history| history.modified);
        let age = f64::from(now.saturating_sub(modified));
        if age < 4.0 * self.lifespan {
            Group(3)
        } else if age < 16.0 * self.lifespan {
            Group(4)
        } else {
            Group(5)
        }
    }
}

impl SavedState for SepBit {
    const STATE_LEN_MAX: usize = size_of::<f64>();
}

impl GroupingPolicy for SepBit {
    fn name(&self) -> &'static str {
        "sepbit"
    }

    fn group_count(&self) -> u8 {
        6
    }

    fn group(&self, candidate: &Candidate, now: u32) -> Group {
        if candidate.cleaning {
            self.cleaned_group(candidate, now)
        } else {
            self.user_group(candidate.history, now)
        }
    }

    fn note_cleaning(&mut self, segment: &UsageEntry, now: u32) {
        if segment.data_group() != Some(Group(0)) {
            return;
        }
        self.sum += u64::from(now.saturating_sub(segment.opened));
        self.count += 1;
        if self.count == SEGMENTS {
            self.lifespan = self.sum as f64 / f64::from(SEGMENTS);
            (self.sum, self.count) = (0, 0);
        }
    }

    fn save(&self, state: &mut Vec<u8>) {
        state.extend_from_slice(&self.lifespan.to_le_bytes());
    }

    fn restore(&mut self, state: &[u8]) {
        if let Some(bytes) = state.first_chunk() {
            let lifespan = f64::from_le_bytes(*bytes);
            if lifespan >= 0.0 {
                *self = Self { lifespan, ..Self::default() };
            }
        }
    }
}
