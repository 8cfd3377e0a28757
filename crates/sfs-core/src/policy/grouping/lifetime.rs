//! The lifetime policy: blocks that are expected to die at about the same time go to the same group.
//!
//! A block's history holds a digest of the intervals between its writes (`digest`). From writes, deletions and
//! the passing of time the policy learns how long blocks of each digest and age still live (`hazard`), and draws
//! groups by the expected remaining lifetime (`groups`). It never scans the volume, and accepts histories that
//! another policy wrote.

mod ages;
mod digest;
mod groups;
mod hazard;
mod state;

use super::{Candidate, GroupingPolicy};
use crate::format::{Group, History, UsageEntry};
use crate::policy::{GROUPS_MAX, SavedState, tick_blocks_log2};
use digest::{ROWS, row};
use groups::{Groups, NO_TRAFFIC, bin};
use hazard::{Hazard, Table};

/// Updates of rates and groups per write of the volume's size.
const DRAWS_PER_SIZE: f64 = 16.0;

/// Factor by which deaths and times at risk decay at each update.
const DEATHS_DECAY: f64 = 0.9;

/// Factor by which traffic decays at each update.
const TRAFFIC_DECAY: f64 = 0.7;

/// Segments written in the shortest lifetime that is told apart: shorter-lived blocks are all dead before
/// their segment is cleaned.
const SHORT: f64 = 4.0;

/// Segments of the volume for each group. The open segment of a group is half empty on average, so a group
/// costs half a segment.
const SEGMENTS_PER_GROUP: u32 = 64;

/// The lifetime policy: groups by expected remaining lifetime.
pub struct Lifetime {
    hazard: Hazard,
    groups: Groups,
    /// Blocks that users wrote, by row of the digest.
    written: [f64; ROWS],
    /// Blocks that the cleaner moved, by age and row.
    moved: Box<Table>,
    /// Group of a block that a user writes, by row.
    group_written: [Group; ROWS],
    /// Group of a block that the cleaner moves, by age and row.
    group_moved: Box<[[Group; ROWS]; ages::CELLS]>,
    /// Ticks between two updates.
    interval: u32,
    /// Time of the next update, in ticks.
    next_draw: u32,
}

impl Lifetime {
    /// Returns the policy for a volume of `blocks` in `segments` of `segment_blocks`, with at most `groups` groups
    /// and at least 64 segments for each beyond the second.
    pub fn new(groups: Option<u8>, segments: u32, segment_blocks: u32, blocks: u64) -> Self {
        let tick = f64::from(tick_blocks_log2(blocks)).exp2();
        let size = (blocks.max(1) >> tick_blocks_log2(blocks)) as f64;
        let bearable = (segments / SEGMENTS_PER_GROUP).clamp(2, GROUPS_MAX.into()) as u8;
        let interval = (size / DRAWS_PER_SIZE).max(1.0) as u32;
        let count = groups.unwrap_or(GROUPS_MAX).clamp(1, bearable);
        let mut lifetime = Self {
            hazard: Hazard::new(size, f64::from(segment_blocks) / tick * SHORT),
            groups: Groups::new(count),
            written: [0.0; ROWS],
            moved: Box::new([[0.0; ROWS]; ages::CELLS]),
            group_written: [Group(0); ROWS],
            group_moved: Box::new([[Group(0); ROWS]; ages::CELLS]),
            interval,
            next_draw: interval,
        };
        lifetime.number();
        lifetime
    }

    /// Updates the expected lifetimes and the groups from the counts, and lets the counts decay.
    fn draw(&mut self) {
        self.hazard.predict();
        let mut traffic = NO_TRAFFIC;
        for (weight, remaining) in self.written.iter().zip(&self.hazard.fresh) {
            traffic[bin(*remaining)] += weight;
        }
        let moved = self.moved.as_flattened().iter();
        for (weight, remaining) in moved.zip(self.hazard.remaining.as_flattened()) {
            traffic[bin(*remaining)] += weight;
        }
        self.groups.draw(&traffic);
        self.number();
        self.hazard.fade(DEATHS_DECAY);
        self.written.iter_mut().for_each(|weight| *weight *= TRAFFIC_DECAY);
        self.moved.as_flattened_mut().iter_mut().for_each(|weight| *weight *= TRAFFIC_DECAY);
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

impl SavedState for Lifetime {
    const STATE_LEN_MAX: usize = state::LEN;
}

impl GroupingPolicy for Lifetime {
    fn name(&self) -> &'static str {
        "lifetime"
    }

    fn group_count(&self) -> u8 {
        self.groups.count_max
    }

    fn begin(&mut self, _segments: &[UsageEntry], _segment_blocks: u32, now: u32) {
        if now >= self.next_draw {
            self.hazard.advance(now);
            self.draw();
            self.next_draw = now.saturating_add(self.interval);
        }
    }

    fn group(&self, candidate: &Candidate, now: u32) -> Group {
        match candidate.history {
            Some(history) if candidate.cleaning => {
                self.group_moved[self.hazard.ages.cell(history.modified, now)][row(history)]
            }
            before => self.group_written[row(digest::written(before, now))],
        }
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
        self.groups.assign();
        self.hazard.predict();
        self.number();
    }
}
