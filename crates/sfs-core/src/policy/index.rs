//! Victims by the value of waiting: what would still die in a segment if it were left alone.
//!
//! Owns: the death rate of each group.
//! Promises: minimises what the cleaner moves if the blocks of a segment die alike (docs/lab.md has
//! the derivation).
//! Never: looks at single blocks.

use super::victims::utilization;
use super::{GROUPS_MAX, VictimSelection, tick_blocks_log2};
use crate::format::{SegmentState, UsageEntry};

const GROUPS: usize = GROUPS_MAX as usize;

/// The weight of the group's rate against what the segment itself shows, in expected deaths of a
/// block.
const GROUP_WEIGHT: f64 = 0.1;

/// What is left of deaths and times at risk when the sixteenth of the volume has been written.
const KEPT: f64 = 0.85;

/// Blocks at risk, and those that died.
#[derive(Clone, Copy, Debug, Default)]
struct Lives {
    deaths: f64,
    /// Block-ticks.
    exposure: f64,
}

/// Cleans the segment with the largest ((1 - u) / u + ln u) / lambda.
///
/// Lambda, deaths per block and tick, is what the segment has shown since it was written, -ln u over
/// its age, drawn towards the mean of its group.
#[derive(Clone, Debug)]
pub struct Index {
    groups: [Lives; GROUPS],
    /// When times at risk were counted last, and when they faded.
    counted: u32,
    faded: u32,
    /// A sixteenth of the volume, in ticks.
    sixteenth: u32,
}

/// Ticks since the middle of the time in which a segment was written.
fn age(segment: &UsageEntry, now: u32) -> f64 {
    let middle = f64::from(segment.opened).midpoint(f64::from(segment.sealed));
    (f64::from(now) - middle).max(1.0)
}

impl Index {
    /// For a volume of so many blocks in all.
    pub fn new(blocks: u64) -> Self {
        let size = blocks.max(1) >> tick_blocks_log2(blocks);
        let sixteenth = (size / 16).max(1) as u32;
        Self { groups: [Lives::default(); GROUPS], counted: 0, faded: 0, sixteenth }
    }

    fn count(&mut self, segments: &[UsageEntry], now: u32) {
        let time = f64::from(now.saturating_sub(self.counted));
        self.counted = now;
        for segment in segments.iter().filter(|segment| segment.state == SegmentState::Sealed) {
            if let Some(lives) = group_mut(&mut self.groups, segment) {
                lives.exposure += f64::from(segment.live_blocks) * time;
            }
        }
    }

    /// Deaths per block and tick that are expected of a segment with this live fraction.
    fn lambda(&self, segment: &UsageEntry, u: f64, now: u32) -> f64 {
        let seen = (-u.ln(), age(segment, now));
        match segment.data_group().and_then(|group| self.groups.get(usize::from(group))) {
            Some(lives) if lives.deaths >= 1.0 => {
                let expected = GROUP_WEIGHT * lives.exposure / lives.deaths;
                (GROUP_WEIGHT + seen.0) / (expected + seen.1)
            }
            _ => seen.0 / seen.1,
        }
    }
}

/// The lives of the group that `segment` is of.
fn group_mut<'a>(groups: &'a mut [Lives; GROUPS], segment: &UsageEntry) -> Option<&'a mut Lives> {
    groups.get_mut(usize::from(segment.data_group()?))
}

impl VictimSelection for Index {
    fn name(&self) -> &'static str {
        "index"
    }

    fn begin(&mut self, segments: &[UsageEntry], _segment_blocks: u32, now: u32) {
        if now.saturating_sub(self.counted) > self.sixteenth / 64 {
            self.count(segments, now);
        }
        if now.saturating_sub(self.faded) > self.sixteenth {
            self.faded = now;
            for lives in &mut self.groups {
                lives.deaths *= KEPT;
                lives.exposure *= KEPT;
            }
        }
    }

    fn worth(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
        if segment.live_blocks == 0 {
            return f64::INFINITY;
        }
        if segment.live_blocks >= segment_blocks {
            return 0.0;
        }
        let u = utilization(segment, segment_blocks);
        ((1.0 - u) / u + u.ln()) / self.lambda(segment, u, now)
    }

    fn note_death(&mut self, segment: &UsageEntry, _now: u32) {
        if segment.state == SegmentState::Sealed
            && let Some(lives) = group_mut(&mut self.groups, segment)
        {
            lives.deaths += 1.0;
        }
    }

    fn save(&self, state: &mut Vec<u8>) {
        for lives in &self.groups {
            state.extend_from_slice(&lives.deaths.to_le_bytes());
            state.extend_from_slice(&lives.exposure.to_le_bytes());
        }
        state.extend_from_slice(&self.counted.to_le_bytes());
    }

    fn restore(&mut self, state: &[u8]) {
        let Some((groups, counted)) = state.split_last_chunk() else { return };
        let (numbers, []) = groups.as_chunks() else { return };
        let number = |bytes: &[u8; 8]| f64::from_le_bytes(*bytes);
        let sane = |value: f64| value.is_finite() && value >= 0.0;
        if numbers.len() != 2 * GROUPS || !numbers.iter().all(|bytes| sane(number(bytes))) {
            return;
        }
        self.counted = u32::from_le_bytes(*counted);
        self.faded = self.counted;
        for (lives, pair) in self.groups.iter_mut().zip(numbers.as_chunks::<2>().0) {
            *lives = Lives { deaths: number(&pair[0]), exposure: number(&pair[1]) };
        }
    }
}
