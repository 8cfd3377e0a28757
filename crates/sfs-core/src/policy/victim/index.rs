//! The index policy: scores a segment by the value of waiting for more of its blocks to die.
//!
//! The policy learns for each group how blocks die by the age of their segment. The score minimises the blocks that the
//! cleaner moves if the blocks of a segment die alike (`docs/lab.md` has the derivation).

mod death_rates;

use super::VictimPolicy;
use crate::format::{SegmentState, UsageEntry};
use crate::policy::{GROUPS_MAX, SavedState, tick_blocks_log2};
use death_rates::{AGES, DeathRates, age_class, class_end};

const GROUPS: usize = GROUPS_MAX as usize;

/// Weight of the group's rate against the segment's own deaths, as a part of the segment's blocks.
const GROUP_WEIGHT: f64 = 0.25;

/// Maximum number of counts of block-ticks while as many blocks are written as the volume has; one
/// count per segment in a volume of fewer segments.
const COUNTS_PER_SIZE: u64 = 1024;

/// Factor by which counts decay when a sixteenth of the volume has been written.
const DECAY: f64 = 0.85;

/// Cleans the segment with the largest ((1 - u) / u + ln u) / lambda.
///
/// Lambda is a rate of deaths per block and tick: the rate of the segment's group at this age and
/// the ages ahead, scaled by the segment's own deaths so far over the deaths expected of its group.
#[derive(Clone, Debug)]
pub struct Index {
    groups: Box<[DeathRates; GROUPS]>,
    /// The value (1 - u) / u + ln u for every number of live blocks.
    waiting: Box<[f64]>,
    /// Group whose rates were updated last.
    next: usize,
    /// Groups whose rates were updated since the last [`VictimPolicy::take_rescored`], a bit each.
    rescored: u16,
    /// Time of the last count of block-ticks.
    counted: u32,
    /// Time of the last decay of the counts.
    faded: u32,
    /// A sixteenth of the volume, in ticks.
    sixteenth: u32,
    /// Ticks between two counts of block-ticks, each of which looks at every segment.
    interval: u32,
}

/// Returns the ticks since the middle of the time in which the segment was written.
fn age(segment: &UsageEntry, now: u32) -> f64 {
    let end = if segment.state == SegmentState::Open { now } else { segment.sealed };
    let middle = f64::from(segment.opened).midpoint(f64::from(end));
    (f64::from(now) - middle).max(1.0)
}

/// Returns whether deaths in the segment count. An Open segment counts, too: the expected deaths of
/// a segment include the deaths from its first block on.
fn is_at_risk(segment: &UsageEntry) -> bool {
    matches!(segment.state, SegmentState::Open | SegmentState::Sealed)
}

impl Index {
    /// Returns the policy for a volume of `blocks` blocks in segments of `segment_blocks` blocks.
    pub fn new(blocks: u64, segment_blocks: u32) -> Self {
        let log2 = tick_blocks_log2(blocks);
        let size = blocks.max(1) >> log2;
        let u = |live: u32| f64::from(live) / f64::from(segment_blocks);
        let waiting = (0..=segment_blocks).map(|live| (1.0 - u(live)) / u(live) + u(live).ln());
        Self {
            groups: Box::new([DeathRates::none(); GROUPS]),
            waiting: waiting.collect(),
            next: 0,
            rescored: 0,
            counted: 0,
            faded: 0,
            sixteenth: (size / 16).max(1) as u32,
            interval: u64::from(segment_blocks >> log2).max(size / COUNTS_PER_SIZE).max(1) as u32,
        }
    }

    fn count(&mut self, segments: &[UsageEntry], now: u32) {
        let time = f64::from(now.saturating_sub(self.counted));
        self.counted = now;
        for segment in segments.iter().filter(|segment| is_at_risk(segment)) {
            if let Some(rates) = group_mut(&mut self.groups, segment) {
                rates.exposure[age_class(age(segment, now))] +=
                    f64::from(segment.live_blocks) * time;
            }
        }
        // One group at a time: rates change slowly.
        self.next = (self.next + 1) % GROUPS;
        self.groups[self.next].update_rates();
        self.rescored |= 1 << self.next;
    }

    /// Returns the expected deaths per block and tick in a segment.
    fn lambda(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
        let age = age(segment, now);
        let live = f64::from(segment.live_blocks);
        let all = f64::from(segment_blocks);
        let group = segment.data_group().and_then(|group| self.groups.get(group.index()));
        let Some(rates) = group else { return (all / live).ln() / age };
        let dead = all - live;
        let own = GROUP_WEIGHT * all;
        rates.coming(age) * (own + dead) / (own + rates.until(age) * (live + dead / 2.0))
    }
}

/// Returns the rates of the group of `segment`.
fn group_mut<'a>(
    groups: &'a mut [DeathRates; GROUPS],
    segment: &UsageEntry,
) -> Option<&'a mut DeathRates> {
    groups.get_mut(segment.data_group()?.index())
}

impl SavedState for Index {
    const STATE_LEN_MAX: usize = 2 * AGES * GROUPS + size_of::<u32>();
}

impl VictimPolicy for Index {
    fn name(&self) -> &'static str {
        "index"
    }

    fn begin(&mut self, segments: &[UsageEntry], _segment_blocks: u32, now: u32) {
        if now.saturating_sub(self.counted) >= self.interval {
            self.count(segments, now);
        }
        if now.saturating_sub(self.faded) > self.sixteenth {
            self.faded = now;
            self.groups.iter_mut().for_each(|rates| rates.fade(DECAY));
        }
    }

    fn score(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
        if segment.live_blocks == 0 {
            return f64::INFINITY;
        }
        if segment.live_blocks >= segment_blocks {
            return 0.0;
        }
        self.waiting[segment.live_blocks as usize] / self.lambda(segment, segment_blocks, now)
    }

    /// Returns the end of the segment's age class. The score jumps there if the blocks of the group
    /// die at a known age.
    fn next_jump(&self, segment: &UsageEntry, now: u32) -> Option<u32> {
        let age = age(segment, now);
        let wait = (class_end(age_class(age)) - age).ceil().max(1.0);
        Some(now.saturating_add(wait as u32))
    }

    fn take_rescored(&mut self) -> u16 {
        std::mem::take(&mut self.rescored)
    }

    fn note_death(&mut self, segment: &UsageEntry, now: u32) {
        if is_at_risk(segment)
            && let Some(rates) = group_mut(&mut self.groups, segment)
        {
            rates.deaths[age_class(age(segment, now))] += 1.0;
        }
    }

    fn save(&self, state: &mut Vec<u8>) {
        for rates in self.groups.iter() {
            state.extend(rates.counts().map(encode));
        }
        state.extend_from_slice(&self.counted.to_le_bytes());
    }

    fn restore(&mut self, state: &[u8]) {
        let Some((counts, counted)) = state.split_last_chunk() else { return };
        if counts.len() != 2 * AGES * GROUPS {
            return;
        }
        self.counted = u32::from_le_bytes(*counted);
        self.faded = self.counted;
        for (rates, codes) in self.groups.iter_mut().zip(counts.chunks_exact(2 * AGES)) {
            rates.counts_mut().zip(codes).for_each(|(count, code)| *count = decode(*code));
            rates.update_rates();
        }
    }
}

/// Codes per octave of a saved count; code 0 is zero.
const STEPS: f64 = 5.0;

fn encode(count: f64) -> u8 {
    if count < 0.5 { 0 } else { ((count.log2() + 1.0) * STEPS + 1.0).round().min(255.0) as u8 }
}

fn decode(code: u8) -> f64 {
    if code == 0 { 0.0 } else { ((f64::from(code) - 1.0) / STEPS - 1.0).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Group, Head};

    const BLOCKS: u32 = 512;

    fn segment(group: u8, live_blocks: u32, sealed: u32) -> UsageEntry {
        let state = SegmentState::Sealed;
        let head = Head::of(Group(group));
        UsageEntry { live_blocks, state, head, opened: sealed, sealed, ..UsageEntry::NEW }
    }

    /// A segment whose group dies at a known age is not cleaned just before that age.
    #[test]
    fn a_segment_about_to_die_is_left_alone() {
        let mut index = Index::new(1 << 18, BLOCKS);
        for now in (BLOCKS..1 << 16).step_by(BLOCKS as usize) {
            let young = now.saturating_sub(1 << 14);
            let segments = [segment(0, BLOCKS / 2, young), segment(1, BLOCKS / 2, 0)];
            index.begin(&segments, BLOCKS, now);
            (0..BLOCKS / 2).for_each(|_| index.note_death(&segment(0, BLOCKS, young), now));
            index.note_death(&segment(1, BLOCKS, 0), now);
        }
        let now = 1 << 16;
        let score = |group| index.score(&segment(group, BLOCKS / 2, now - 10_000), BLOCKS, now);
        assert!(score(1) > 2.0 * score(0), "{} {}", score(0), score(1));
    }

    #[test]
    fn saved_counts_are_exact_within_a_step() {
        assert_eq!(decode(encode(0.0)), 0.0);
        for count in [1.0, 77.0, 1e6, 1e12] {
            assert!((decode(encode(count)) / count).log2().abs() <= 0.5 / STEPS, "{count}");
        }
    }
}
