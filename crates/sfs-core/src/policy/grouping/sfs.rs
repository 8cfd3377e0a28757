//! The SFS policy with learned lifetimes: blocks that are expected to die at about the same time go
//! to the same group.
//!
//! As in the paper, hotness is that of a block, and comes from the number and times of its writes; groups are drawn
//! by iterative quantization. Hotness is a learned lifetime here: a block's history holds a digest of the intervals
//! between its writes (`digest`), and from writes, deletions and the passing of time the policy learns how long blocks of
//! each digest and age still live (`hazard`). Groups quantize the logarithm of the expected remaining lifetime
//! (`groups`); their number is the one with the least predicted write amplification (`amplification`). Blocks that are
//! overwritten in order have groups of their own (`neighbours`). The policy never scans the volume's blocks, and accepts
//! histories that another policy wrote.

mod ages;
mod amplification;
mod digest;
mod groups;
mod hazard;
mod histogram;
mod neighbours;
mod state;

use super::{Candidate, GroupingPolicy};
use crate::format::{Group, History, SegmentState, UsageEntry};
use crate::policy::{GROUPS_MAX, SavedState, tick_blocks_log2};
use amplification::Room;
use digest::{ROWS, row};
use groups::Groups;
use hazard::{Hazard, Table};
use histogram::{EMPTY, Histogram, bin};
use neighbours::{Neighbours, Times};

/// Number of updates of rates and groups while as many blocks are written as the volume has.
const DRAWS_PER_SIZE: f64 = 16.0;

/// Factor by which deaths and times at risk decay at each update.
const DEATHS_DECAY: f64 = 0.9;

/// Factor by which traffic decays at each update.
const TRAFFIC_DECAY: f64 = 0.7;

/// Number of segments written in the shortest lifetime that the policy distinguishes: shorter-lived
/// blocks are all dead before their segment is cleaned.
const SHORT: f64 = 4.0;

/// Minimum number of segments of the volume per group if there are more than two groups, so that
/// open segments leave room for others.
const SEGMENTS_PER_GROUP: u32 = 16;

/// Part of the segments that the cleaner keeps Clean.
const CLEAN_PART: f64 = 0.03;

/// Lowest utilization for which groups are drawn: an emptier volume may fill up before its blocks
/// are rewritten.
const UTILIZATION_MIN: f64 = 0.7;

/// The SFS policy: groups by expected remaining lifetime.
pub struct Sfs {
    hazard: Hazard,
    groups: Groups,
    neighbours: Neighbours,
    /// Number of blocks that users wrote, by row of the digest.
    written: [f64; ROWS],
    /// Number of blocks that the cleaner moved, by age and row.
    moved: Box<Table>,
    /// Group of a block that a user writes, by row.
    group_written: [u8; ROWS],
    /// Group of a block that the cleaner moves, by age and row.
    group_moved: Box<[[u8; ROWS]; ages::CELLS]>,
    /// Ticks between two updates.
    interval: u32,
    /// Time of the next update, in ticks.
    next_draw: u32,
}

impl Sfs {
    /// Returns the policy for a volume of `blocks` blocks in `segments` segments of
    /// `segment_blocks` blocks, with at most `groups` groups. More than two groups need at least 16
    /// segments per group.
    pub fn new(groups: Option<u8>, segments: u32, segment_blocks: u32, blocks: u64) -> Self {
        let tick = f64::from(tick_blocks_log2(blocks)).exp2();
        let size = (blocks.max(1) >> tick_blocks_log2(blocks)) as f64;
        let bearable = (segments / SEGMENTS_PER_GROUP).clamp(2, GROUPS_MAX.into()) as u8;
        let interval = (size / DRAWS_PER_SIZE).max(1.0) as u32;
        let count = groups.unwrap_or(GROUPS_MAX).clamp(1, bearable);
        let mut sfs = Self {
            hazard: Hazard::new(size, f64::from(segment_blocks) / tick * SHORT),
            groups: Groups::new(count),
            neighbours: Neighbours::new(size, count),
            written: [0.0; ROWS],
            moved: Box::new([[0.0; ROWS]; ages::CELLS]),
            group_written: [0; ROWS],
            group_moved: Box::new([[0; ROWS]; ages::CELLS]),
            interval,
            next_draw: interval,
        };
        sfs.number();
        sfs
    }

    /// Updates the expected lifetimes and the groups from the counts, and lets the counts decay.
    fn draw(&mut self, segments: &[UsageEntry], segment_blocks: u32) {
        self.hazard.predict();
        let segment_blocks = f64::from(segment_blocks);
        let usable = segments.iter().filter(|segment| may_hold_data(segment)).count() as f64;
        let blocks = usable * segment_blocks * (1.0 - CLEAN_PART);
        let data = segments.iter().filter(|segment| segment.data_group().is_some());
        let live_blocks: f64 = data.map(|segment| f64::from(segment.live_blocks)).sum();
        let live = self.hazard.live(live_blocks, blocks * UTILIZATION_MIN);
        self.groups.limit(self.neighbours.draw(self.written.iter().sum(), TRAFFIC_DECAY));
        self.groups.draw(&self.traffic(), &live, Room { blocks, segment_blocks });
        self.number();
        self.hazard.fade(DEATHS_DECAY);
        self.written.iter_mut().for_each(|weight| *weight *= TRAFFIC_DECAY);
        self.moved.as_flattened_mut().iter_mut().for_each(|weight| *weight *= TRAFFIC_DECAY);
    }

    /// Returns the numbers of blocks that were written or moved, by expected remaining lifetime.
    fn traffic(&self) -> Histogram {
        let mut traffic = EMPTY;
        for (weight, remaining) in self.written.iter().zip(&self.hazard.fresh) {
            traffic[bin(*remaining)] += weight;
        }
        let moved = self.moved.as_flattened().iter();
        for (weight, remaining) in moved.zip(self.hazard.remaining.as_flattened()) {
            traffic[bin(*remaining)] += weight;
        }
        traffic
    }

    /// Returns the mean of the expected lifetimes of `count` neighbours, log2 of ticks; `None` if they are too few.
    fn lifetime_of_neighbours(
        &self,
        count: usize,
        histories: &mut dyn Iterator<Item = Option<History>>,
        now: u32,
    ) -> Option<f64> {
        if count < neighbours::COUNT_MIN {
            return None;
        }
        let mut sum = 0.0;
        let mut times = Times::default();
        for before in histories {
            sum += self.hazard.fresh[row(digest::written(before, now))];
            times.add(before);
        }
        times.are_together(now).then_some(sum / count as f64)
    }

    /// Stores the group of every row at every age.
    fn number(&mut self) {
        self.group_written = self.hazard.fresh.map(|remaining| self.groups.group(remaining));
        let groups = self.group_moved.as_flattened_mut().iter_mut();
        for (group, remaining) in groups.zip(self.hazard.remaining.as_flattened()) {
            *group = self.groups.group(*remaining);
        }
    }
}

/// Returns whether the segment holds data, or may hold some once it is Clean.
fn may_hold_data(segment: &UsageEntry) -> bool {
    matches!(segment.state, SegmentState::Clean | SegmentState::Drained)
        || segment.data_group().is_some()
}

impl SavedState for Sfs {
    const STATE_LEN_MAX: usize = state::LEN;
}

impl GroupingPolicy for Sfs {
    fn name(&self) -> &'static str {
        "sfs"
    }

    fn group_count(&self) -> u8 {
        self.neighbours.groups
    }

    fn group_of_neighbours(
        &self,
        count: usize,
        histories: &mut dyn Iterator<Item = Option<History>>,
        now: u32,
    ) -> Option<Group> {
        let lifetime = self.lifetime_of_neighbours(count, histories, now)?;
        self.neighbours.group(lifetime).map(Group)
    }

    fn note_neighbours(
        &mut self,
        count: usize,
        histories: &mut dyn Iterator<Item = Option<History>>,
        now: u32,
    ) {
        if let Some(lifetime) = self.lifetime_of_neighbours(count, histories, now) {
            self.neighbours.note(count, lifetime);
        }
    }

    fn is_in_use(&self, group: Group) -> bool {
        self.groups.is_in_use(group) || self.neighbours.are_kept_in(group.0)
    }

    fn begin(&mut self, segments: &[UsageEntry], segment_blocks: u32, now: u32) {
        if now >= self.next_draw && now < u32::MAX {
            self.hazard.advance(now);
            self.draw(segments, segment_blocks);
            self.next_draw = now.saturating_add(self.interval);
        }
    }

    fn group(&self, candidate: &Candidate, now: u32) -> Group {
        match candidate.history {
            Some(history) if candidate.cleaning => {
                Group(self.group_moved[self.hazard.ages.cell(history.modified, now)][row(history)])
            }
            before => Group(self.group_written[row(digest::written(before, now))]),
        }
    }

    fn lifetime(&self, candidate: &Candidate, now: u32) -> Option<f64> {
        Some(self.hazard.fresh[row(digest::written(candidate.history, now))])
    }

    fn history(&self, before: Option<History>, now: u32) -> History {
        digest::written(before, now)
    }

    fn note_write(&mut self, before: Option<History>, after: Option<History>, now: u32) {
        self.hazard.note(before, after, now);
        if let Some(after) = after {
            self.written[row(after)] += 1.0;
        }
    }

    fn note_move(&mut self, history: History, now: u32) {
        self.moved[self.hazard.ages.cell(history.modified, now)][row(history)] += 1.0;
    }

    fn save(&self, state: &mut Vec<u8>) {
        state::save(&self.hazard, &self.groups, self.next_draw, state);
    }

    fn restore(&mut self, state: &[u8]) {
        let restored = state::restore(&mut self.hazard, &mut self.groups, state);
        let Some(next_draw) = restored else { return };
        let begin = self.hazard.ages.time(self.hazard.epoch);
        let soon = begin.saturating_add(self.interval.saturating_mul(2));
        self.next_draw = next_draw.min(soon);
        self.hazard.predict();
        self.number();
    }
}
