//! Choice of the next victim: which Sealed segments are fit, and which of them is the best.

use std::cell::Cell;

use super::excluded::{ExcludedVictims, SegmentGeneration};
use super::watermarks::{Urgency, urgency};
use crate::format::{Layout, SegmentState, UsageEntry};
use crate::log::Batch;
use crate::metadata::Metadata;

/// Divisor of [`Candidates::dirty_nodes_max`]: while no more nodes than the quotient are dirty, any
/// victim is taken.
const NODES_PER_FIRST_VICTIM: usize = 4;

/// Divisor of a segment's blocks: the quotient is the garbage that a victim must have while a
/// better victim waits for a checkpoint. Moving a fuller segment would gain less than the better
/// victim gains afterwards.
const SEGMENTS_PER_GARBAGE: u32 = 8;

/// Divisor of a segment's blocks: the quotient is the garbage that a victim must have, unless segments
/// are short and no segment has as much. Moving a fuller segment would wear the device for little
/// gain.
const SEGMENTS_PER_LEAST_GARBAGE: u32 = 32;

/// Bounds of a better victim than the emptiest segment, and so of the wait of a thread that lacks segments: it gains at least one of
/// `GAIN_PARTS` parts as much, and has at most `COST_FACTOR` times as many live blocks and one of `COST_PARTS` parts of a segment more.
const GAIN_PARTS: usize = 2;
const COST_FACTOR: usize = 2;
const COST_PARTS: usize = 8;

/// Rule by which victims are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// By the victim policy, which looks ahead.
    Policy,
    /// For a thread that lacks segments: the emptiest, or a better one that costs little more, while the reserve of cleaning is left.
    Needed,
    /// The withheld segments of a volume that shrinks.
    Withheld,
    /// The least used segment, if the most used one has had this many erase cycles more.
    LeastUsed(u16),
}

/// State of the volume and of the cleaner in which a victim is chosen.
pub(super) struct Candidates<'a> {
    pub(super) layout: &'a Layout,
    pub(super) metadata: &'a Metadata,
    pub(super) excluded: &'a ExcludedVictims,
    /// Victims of the round so far.
    pub(super) victims: &'a [SegmentGeneration],
    /// Number of dirty nodes beyond which cleaning makes no more nodes dirty.
    pub(super) dirty_nodes_max: usize,
}

/// Result of a choice.
pub(super) struct Chosen {
    /// The best fit segment; `None` if no segment is worth cleaning now.
    pub(super) victim: Option<u32>,
    /// `true` if victims with nodes were left out, because too many nodes are dirty.
    pub(super) has_waiting: bool,
}

impl Candidates<'_> {
    /// Returns the number of `segment`, and the stamp that it has until it is written anew.
    pub(super) fn generation(&self, segment: u32) -> SegmentGeneration {
        (segment, self.metadata.usage.entry(segment).stamp)
    }

    /// Chooses a victim by the victim policy. The caller has updated the scores of the segments.
    pub(super) fn best(&self) -> Chosen {
        let has_waiting = Cell::new(false);
        let is_fit =
            |segment: u32| !self.excluded.is_taken(segment) && self.is_fit(segment, &has_waiting);
        let has_garbage = |segment: u32| !self.is_nearly_full(segment, SEGMENTS_PER_LEAST_GARBAGE);
        let best_among = |is_fit: &dyn Fn(u32) -> bool| {
            self.metadata.best_victim(self.layout.segment_blocks, is_fit)
        };
        let is_short = urgency(self.layout, self.metadata) >= Urgency::Steady;
        let best = best_among(&|segment| is_fit(segment) && has_garbage(segment))
            .or_else(|| if is_short { best_among(&is_fit) } else { None });
        let has_waiting = has_waiting.get();
        let is_worthwhile =
            |victim: &u32| !has_waiting || !self.is_nearly_full(*victim, SEGMENTS_PER_GARBAGE);
        Chosen { victim: best.filter(is_worthwhile), has_waiting }
    }

    /// Chooses the emptiest segment. A thread that lacks segments does not wait for other rounds: a block in two rounds is
    /// moved once.
    pub(super) fn emptiest(&self) -> Chosen {
        let has_waiting = Cell::new(false);
        let is_fit = |segment: u32| {
            !self.victims.contains(&self.generation(segment)) && self.is_fit(segment, &has_waiting)
        };
        let victim = self.metadata.emptiest_victim(self.layout.segment_blocks, is_fit);
        Chosen { victim, has_waiting: has_waiting.get() }
    }

    /// Chooses a better victim than `emptiest` for a thread that lacks segments, if both hold data: the victim policy's choice among
    /// those that cost little more. What dies soon is not moved then. The caller has updated the scores of the
    /// segments.
    pub(super) fn better_than(&self, emptiest: u32) -> Option<u32> {
        let entry = |segment: u32| self.metadata.usage.entry(segment);
        let holds_data = |segment: u32| entry(segment).data_group().is_some();
        let segment_data_blocks = Batch::segment_data_blocks(self.layout);
        let live = |segment: u32| entry(segment).live_blocks as usize;
        let gain = |segment: u32| segment_data_blocks.saturating_sub(live(segment));
        let live_max = COST_FACTOR * live(emptiest) + segment_data_blocks / COST_PARTS;
        let is_fit = |segment: u32| {
            let generation = self.generation(segment);
            holds_data(segment)
                && GAIN_PARTS * gain(segment) >= gain(emptiest)
                && live(segment) <= live_max
                && !self.excluded.contains(&generation)
                && !self.victims.contains(&generation)
        };
        if gain(emptiest) == 0 || !holds_data(emptiest) {
            return None;
        }
        self.metadata.best_victim(self.layout.segment_blocks, is_fit)
    }

    /// Chooses a withheld segment that still has live blocks.
    pub(super) fn withheld(&self) -> Chosen {
        let has_waiting = Cell::new(false);
        let is_fit = |(segment, entry): &(u32, &UsageEntry)| {
            entry.state == SegmentState::Sealed
                && !self.victims.contains(&self.generation(*segment))
                && self.is_fit(*segment, &has_waiting)
        };
        let victim = self.metadata.usage.withheld_in_use().find(is_fit);
        Chosen { victim: victim.map(|(segment, _)| segment), has_waiting: has_waiting.get() }
    }

    /// Chooses the least used segment that holds data, if its erase cycles are more than `bound` behind those of the most used
    /// segment. The segment that is opened next must have had half as many more: data that is moved to a block as little
    /// used would only be moved again.
    pub(super) fn least_used(&self, bound: u16) -> Chosen {
        let has_waiting = Cell::new(false);
        let entries = self.metadata.usage.entries();
        let most = entries.iter().map(|entry| entry.erases).max().unwrap_or(0);
        let next = self.metadata.usage.clean().next();
        let next = next.map_or(0, |segment| self.metadata.usage.entry(segment).erases);
        let is_behind = |entry: &UsageEntry| {
            most - entry.erases > bound && next.saturating_sub(entry.erases) > bound / 2
        };
        let fit = (0..).zip(entries).filter(|(segment, entry)| {
            entry.state == SegmentState::Sealed
                && is_behind(entry)
                && !self.excluded.is_taken(*segment)
                && self.is_fit(*segment, &has_waiting)
        });
        let victim = fit.min_by_key(|(_, entry)| entry.erases).map(|(segment, _)| segment);
        Chosen { victim, has_waiting: has_waiting.get() }
    }

    /// Returns whether `segment` is neither excluded nor waiting for a checkpoint. Sets
    /// `has_waiting` if the segment waits.
    fn is_fit(&self, segment: u32, has_waiting: &Cell<bool>) -> bool {
        if self.excluded.contains(&self.generation(segment)) {
            return false;
        }
        let waits = self.waits(self.metadata.usage.entry(segment));
        has_waiting.set(has_waiting.get() || waits);
        !waits
    }

    /// Returns whether the segment of `entry` has to wait for a checkpoint: its live nodes would
    /// become dirty, and stay in memory until then. After a checkpoint no victim waits, however
    /// many nodes it has.
    fn waits(&self, entry: &UsageEntry) -> bool {
        let dirty_nodes = self.metadata.tree.dirty_count();
        entry.data_group().is_none()
            && dirty_nodes > self.dirty_nodes_max / NODES_PER_FIRST_VICTIM
            && dirty_nodes + entry.live_blocks as usize > self.dirty_nodes_max
    }

    /// Returns whether less than one of `segments_per_garbage` parts of `segment` is garbage: moving its live blocks would
    /// gain little.
    fn is_nearly_full(&self, segment: u32, segments_per_garbage: u32) -> bool {
        let segment_blocks = self.layout.segment_blocks;
        let garbage_blocks = segment_blocks - self.metadata.usage.entry(segment).live_blocks;
        u64::from(garbage_blocks) * u64::from(segments_per_garbage) < u64::from(segment_blocks)
    }
}
