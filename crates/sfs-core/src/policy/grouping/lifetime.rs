//! Blocks that are expected to die at about the same time go to the same group.
//!
//! Owns: what was learned of lives, and the groups drawn from it.
//! Promises: a block's rhythm is in its own history (45 bits); what that means for its life is
//! learned while it runs. Histories that another policy wrote can be read.
//! Never: scans the volume.

mod ages;
mod digest;
mod groups;
mod hazard;
mod state;

use super::{Candidate, GroupingPolicy};
use crate::format::{History, UsageEntry};
use crate::policy::{GROUPS_MAX, SavedState, tick_blocks_log2};
use digest::{ROWS, row};
use groups::{Groups, NO_TRAFFIC, bin};
use hazard::{Hazard, Table};

/// Conclusions are drawn anew so many times while the volume's size is written.
const DRAWS_PER_SIZE: f64 = 16.0;

/// What is left of deaths and times at risk from one drawing to the next.
const LIVES_KEPT: f64 = 0.9;

/// What is left of traffic.
const TRAFFIC_KEPT: f64 = 0.7;

/// Lives shorter than the writing of so many segments are alike: the segment is empty when it is
/// looked at.
const SHORT: f64 = 4.0;

/// Every head is half empty, on average: a group costs half a segment. So many pay for it.
const SEGMENTS_PER_GROUP: u32 = 64;

/// GroupingPolicy by expected remaining life.
pub struct Lifetime {
    hazard: Hazard,
    groups: Groups,
    /// Blocks that users wrote, by row, and that the cleaner moved, by age and row.
    written: [f64; ROWS],
    moved: Box<Table>,
    /// Groups of the same.
    group_written: [u8; ROWS],
    group_moved: Box<[[u8; ROWS]; ages::CELLS]>,
    interval: u32,
    next_draw: u32,
}

impl Lifetime {
    /// For a volume of `segments` of `segment_blocks`, in all of `blocks`. At most `groups`, and no more than so many
    /// segments can bear.
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
            group_written: [0; ROWS],
            group_moved: Box::new([[0; ROWS]; ages::CELLS]),
            interval,
            next_draw: interval,
        };
        lifetime.number();
        lifetime
    }

    /// Draws the conclusions from what has been learned.
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
        self.hazard.fade(LIVES_KEPT);
        self.written.iter_mut().for_each(|weight| *weight *= TRAFFIC_KEPT);
        self.moved.as_flattened_mut().iter_mut().for_each(|weight| *weight *= TRAFFIC_KEPT);
    }

    /// Looks up the group of every row at every age.
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

    fn group(&self, candidate: &Candidate, now: u32) -> u8 {
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
        self.save_state(state);
    }

    fn restore(&mut self, state: &[u8]) {
        self.restore_state(state);
    }
}
