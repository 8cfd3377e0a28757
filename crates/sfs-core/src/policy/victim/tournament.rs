//! A tournament of segments: finds the best victim of a large volume without scoring every segment for each choice.
//!
//! A binary tree holds the last known score of every segment in its leaves, and the higher of two
//! scores above them. Before a choice [`Tournament::refresh`] scores the segments that have
//! changed, those about which the policy has learned something, and those whose age has grown by a
//! 256th, because a score depends on the time, too. [`Tournament::best`] walks down from the
//! highest scores, and scores the best few anew. With segments of all ages up to n, about 256 ln n
//! segments are due per tick in which one is written, so the work grows with the logarithm of the
//! size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{VictimPolicy, full_scan, score_of};
use crate::format::{Group, SegmentState, UsageEntry};

/// Number of segments up to which every choice scores all of them.
const SCANNED_SEGMENTS_MAX: usize = 1024;

/// Divisor of a segment's age: a segment is scored anew when its age has grown by this part.
const AGE_PARTS: u32 = 256;

/// Part of the best score by which a last known score may be lower and the segment is still scored anew.
const MARGIN: f64 = 0.005;

/// Maximum number of fit segments that a walk down the tree scores anew for a choice.
const SCORED_ANEW_MAX: usize = 64;

/// Divisor of the number of segments: a choice scores all segments if more than this part of them is unfit and
/// has a higher score than the victim. A step of a walk down the tree takes about as long as 32 steps of a scan.
const SEGMENTS_PER_UNFIT: usize = 32;

/// Number of queue entries per segment beyond which entries that do not count are dropped.
const QUEUED_PER_SEGMENT_MAX: usize = 2;

/// Last known scores of the segments of a volume, as a tree of maxima.
#[derive(Default)]
pub struct Tournament {
    /// Number of leaves, a power of two; zero for a volume whose segments are all scored for each choice.
    leaves: usize,
    /// Bits of a score that is not negative, in the order of the scores: the root at 1, the leaves from `leaves` on.
    scores: Vec<u32>,
    /// Time at which each segment is scored anew, in ticks; empty before the first choice.
    due: Vec<u32>,
    /// Segments by the time at which they are scored anew. An entry counts only if its time equals that in
    /// `due`.
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Tournament {
    /// Returns a tournament for a volume of `segments` segments.
    pub fn new(segments: usize) -> Self {
        if segments <= SCANNED_SEGMENTS_MAX {
            return Self::default();
        }
        let leaves = segments.next_power_of_two();
        Self { leaves, scores: vec![0; 2 * leaves], ..Self::default() }
    }

    /// Returns whether [`Self::refresh`] needs the segments that have changed.
    pub fn is_large(&self) -> bool {
        self.leaves > 0
    }

    /// Scores the `changed` segments, the segments of groups about which the policy has learned
    /// something, and a part of the others at the time `now`, in ticks.
    pub fn refresh(
        &mut self,
        policy: &mut dyn VictimPolicy,
        entries: &[UsageEntry],
        changed: &[u32],
        (segment_blocks, now): (u32, u32),
    ) {
        if !self.is_large() {
            return;
        }
        let rescored = policy.take_rescored();
        let is_rescored = |entry: &UsageEntry| {
            let is_set =
                |group: Group| rescored.checked_shr(group.index() as u32).unwrap_or(0) & 1 == 1;
            entry.data_group().is_some_and(is_set)
        };
        let mut again: Vec<u32> = if self.due.is_empty() {
            self.due = vec![0; entries.len()];
            (0..entries.len() as u32).collect()
        } else {
            changed.to_vec()
        };
        if rescored != 0 {
            again.extend((0u32..).zip(entries).filter(|(_, e)| is_rescored(e)).map(|(no, _)| no));
        }
        while let Some(Reverse((due, segment))) =
            self.queue.peek().copied().filter(|r| r.0.0 <= now)
        {
            self.queue.pop();
            if self.due[segment as usize] == due {
                again.push(segment);
            }
        }
        for segment in again {
            let entry = &entries[segment as usize];
            self.set(segment as usize, score_of(&*policy, entry, segment_blocks, now));
            if entry.state == SegmentState::Sealed {
                let due = now.saturating_add(1 + now.saturating_sub(entry.sealed) / AGE_PARTS);
                let due = policy.next_jump(entry, now).map_or(due, |jump| due.min(jump));
                self.schedule(segment, due, now);
            }
        }
    }

    /// Sets the time `due` at which `segment` is scored anew, unless an earlier time is set. A segment that was written anew
    /// is due sooner than its old content was; when the clock has reached its end, no segment is due any more.
    fn schedule(&mut self, segment: u32, due: u32, now: u32) {
        let known = &mut self.due[segment as usize];
        let is_set = *known > now && *known <= due;
        if due <= now || is_set {
            return;
        }
        *known = due;
        self.queue.push(Reverse((due, segment)));
        if self.queue.len() > QUEUED_PER_SEGMENT_MAX * self.due.len() {
            let queued =
                |(segment, due): (u32, &u32)| (*due > now).then_some(Reverse((*due, segment)));
            self.queue = (0..).zip(&self.due).filter_map(queued).collect();
        }
    }

    /// Returns a segment with the highest score above zero at the time `now` among those for which `is_fit` holds, as far as
    /// the last scores tell; the lowest number among equals.
    pub fn best(
        &self,
        policy: &dyn VictimPolicy,
        entries: &[UsageEntry],
        (segment_blocks, now): (u32, u32),
        is_fit: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if !self.is_large() {
            return full_scan(policy, entries, (segment_blocks, now), is_fit);
        }
        let mut best: Option<(f64, Reverse<u32>)> = None;
        let (mut scored, mut unfit) = (0, 0);
        for (segment, known) in self.descending() {
            let is_enough = |(best, _)| known < best * (1.0 - MARGIN) || scored >= SCORED_ANEW_MAX;
            if best.is_some_and(is_enough) {
                break;
            }
            if unfit > entries.len() / SEGMENTS_PER_UNFIT || scored >= SCORED_ANEW_MAX {
                return full_scan(policy, entries, (segment_blocks, now), is_fit);
            }
            let score = score_of(policy, &entries[segment as usize], segment_blocks, now);
            let candidate = (score, Reverse(segment));
            let is_better = score > 0.0 && best.is_none_or(|best| candidate > best);
            if is_better && !is_fit(segment) {
                unfit += 1;
                continue;
            }
            scored += 1;
            if is_better {
                best = Some(candidate);
            }
        }
        best.map(|(_, Reverse(segment))| segment)
    }

    /// Sets the score of a segment, and the maxima above it.
    fn set(&mut self, segment: usize, score: f64) {
        let mut at = self.leaves + segment;
        // The bits of floats that are not negative are ordered as the floats are.
        let mut bits = (score.max(0.0) as f32).to_bits();
        while at > 0 && self.scores[at] != bits {
            self.scores[at] = bits;
            bits = bits.max(self.scores[at ^ 1]);
            at /= 2;
        }
    }

    /// Returns the segments with a known score above zero and that score, the highest first, and the lowest number among
    /// equals.
    fn descending(&self) -> impl Iterator<Item = (u32, f64)> {
        let known = |at: usize| (self.scores[at], Reverse(self.first_leaf(at)), at);
        let mut places = BinaryHeap::from([known(1)]);
        std::iter::from_fn(move || {
            loop {
                let (bits, _, at) = places.pop()?;
                if bits == 0 {
                    return None;
                }
                if at >= self.leaves {
                    return Some(((at - self.leaves) as u32, f64::from(f32::from_bits(bits))));
                }
                places.extend([known(2 * at), known(2 * at + 1)]);
            }
        })
    }

    /// Returns the leftmost leaf below the place `at`.
    fn first_leaf(&self, at: usize) -> usize {
        at << (self.leaves.ilog2() - at.ilog2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Head;
    use crate::policy::{VICTIM_POLICIES, victim_policy};

    const SEGMENT_BLOCKS: u32 = 64;
    const SEGMENTS: u32 = 4096;
    const GROUPS: usize = 4;

    /// A volume of segments in which blocks die at rates that differ by group, and whose victims are written anew.
    struct Model {
        entries: Vec<UsageEntry>,
        changed: Vec<u32>,
        /// Blocks that wait to be written, by group; negative where blocks of other groups filled up a
        /// segment.
        waiting: [i32; GROUPS],
        random: u64,
        now: u32,
    }

    impl Model {
        fn new() -> Self {
            let (entries, changed) = (Vec::new(), Vec::new());
            let mut model = Self { entries, changed, waiting: [0; GROUPS], random: 1, now: 0 };
            for segment in 0..SEGMENTS {
                model.entries.push(UsageEntry::NEW);
                model.now = segment;
                model.waiting[segment as usize % GROUPS] += SEGMENT_BLOCKS as i32;
                model.write(segment);
            }
            model
        }

        /// Returns a pseudo-random number below `below` (xorshift64).
        fn random(&mut self, below: u64) -> u64 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.random % below
        }

        /// Fills `segment` with blocks of the group with the most waiting blocks.
        fn write(&mut self, segment: u32) {
            let group = (0..GROUPS).max_by_key(|group| self.waiting[*group]).unwrap_or(0);
            self.waiting[group] -= SEGMENT_BLOCKS as i32;
            let group = group as u8;
            self.entries[segment as usize] = UsageEntry {
                live_blocks: SEGMENT_BLOCKS,
                state: SegmentState::Sealed,
                head: Head::of(Group(group)),
                write_count_sum: u64::from(SEGMENT_BLOCKS) << (2 * (GROUPS as u8 - group)),
                modified_sum: u64::from(SEGMENT_BLOCKS) * u64::from(self.now),
                opened: self.now,
                sealed: self.now,
                ..UsageEntry::NEW
            };
            self.changed.push(segment);
        }

        /// Lets `deaths` blocks die, in segments of hot groups more often.
        fn age(&mut self, policy: &mut dyn VictimPolicy, deaths: u32) {
            self.now += 1;
            for _ in 0..deaths {
                let segment = loop {
                    let segment = self.random(u64::from(SEGMENTS)) as usize;
                    let entry = &self.entries[segment];
                    let group = group_of(entry);
                    if entry.live_blocks > 0 && self.random(1 << (2 * group)) == 0 {
                        break segment;
                    }
                };
                policy.note_death(&self.entries[segment], self.now);
                self.waiting[group_of(&self.entries[segment])] += 1;
                let entry = &mut self.entries[segment];
                let live = u64::from(entry.live_blocks);
                entry.write_count_sum -= entry.write_count_sum / live;
                entry.modified_sum -= entry.modified_sum / live;
                entry.live_blocks -= 1;
                self.changed.push(segment as u32);
            }
            policy.begin(&self.entries, SEGMENT_BLOCKS, self.now);
        }
    }

    fn group_of(entry: &UsageEntry) -> usize {
        entry.data_group().map_or(0, Group::index)
    }

    /// Returns the part of `choices` in which the tournament chooses the segment that a full scan does.
    fn agreement(name: &str, choices: u32) -> f64 {
        let mut policy = policy(name);
        let mut model = Model::new();
        let mut tournament = Tournament::new(model.entries.len());
        let mut same = 0;
        let warm_up = 2 * SEGMENTS;
        let mut deaths = SEGMENTS * SEGMENT_BLOCKS / 100 * 15;
        for choice in 0..warm_up + choices {
            model.age(&mut *policy, deaths);
            let at = (SEGMENT_BLOCKS, model.now);
            // One segment in 16 is unfit, a different segment at each choice.
            let is_fit = |segment: u32| !(segment + choice).is_multiple_of(16);
            let changed = std::mem::take(&mut model.changed);
            tournament.refresh(&mut *policy, &model.entries, &changed, at);
            let found = tournament.best(&*policy, &model.entries, at, is_fit);
            if choice >= warm_up {
                let expected = full_scan(&*policy, &model.entries, at, is_fit);
                same += u32::from(found == expected);
            }
            let victim = found.expect("some blocks are dead");
            // Users overwrite as many blocks as the victim makes room for.
            let entry = model.entries[victim as usize];
            deaths = SEGMENT_BLOCKS - entry.live_blocks;
            model.waiting[group_of(&entry)] += entry.live_blocks as i32;
            model.write(victim);
        }
        f64::from(same) / f64::from(choices)
    }

    #[test]
    fn a_tournament_chooses_the_victim_of_a_full_scan() {
        for name in VICTIM_POLICIES {
            let agreement = agreement(name, 3000);
            println!("{name}: {agreement:.4}");
            assert!(agreement >= 0.99, "{name}: {agreement}");
        }
    }

    #[test]
    fn scores_come_in_descending_order_and_equals_by_number() {
        let numbers = |tournament: &Tournament| -> Vec<u32> {
            tournament.descending().map(|(segment, _)| segment).collect()
        };
        let mut tournament = Tournament::new(2000);
        for (segment, score) in [(7, 2.0), (1999, f64::INFINITY), (3, 2.0), (500, 0.5), (600, 0.0)]
        {
            tournament.set(segment, score);
        }
        assert_eq!(numbers(&tournament), [1999, 3, 7, 500]);
        tournament.set(1999, 0.0);
        tournament.set(3, 0.25);
        assert_eq!(numbers(&tournament), [7, 500, 3]);
    }

    #[test]
    fn a_choice_without_a_fit_segment_scores_all_segments() {
        let model = Model::new();
        let mut tournament = Tournament::new(model.entries.len());
        let mut entries = model.entries;
        entries.iter_mut().for_each(|entry| entry.live_blocks /= 2);
        let (policy, at) = (&mut crate::policy::Greedy, (SEGMENT_BLOCKS, model.now));
        tournament.refresh(policy, &entries, &[], at);
        assert_eq!(tournament.best(policy, &entries, at, |_| false), None);
        let last = SEGMENTS - 1;
        assert_eq!(tournament.best(policy, &entries, at, |segment| segment == last), Some(last));
    }

    /// Returns a segment of `live_blocks` that was written at the time `at`.
    fn sealed(live_blocks: u32, at: u32) -> UsageEntry {
        UsageEntry {
            live_blocks,
            state: SegmentState::Sealed,
            head: Head::of(Group(0)),
            write_count_sum: u64::from(live_blocks),
            modified_sum: u64::from(live_blocks) * u64::from(at),
            opened: at,
            sealed: at,
            ..UsageEntry::NEW
        }
    }

    fn policy(name: &str) -> Box<dyn VictimPolicy> {
        let blocks = u64::from(SEGMENTS) * u64::from(SEGMENT_BLOCKS);
        victim_policy(name, SEGMENTS, SEGMENT_BLOCKS, blocks).expect("a policy of this name")
    }

    #[test]
    fn the_queue_is_bounded_however_often_segments_are_scored() {
        for name in VICTIM_POLICIES {
            for first in [0, 1 << 30, u32::MAX - 100] {
                let mut policy = policy(name);
                let mut entries = vec![sealed(32, 7); SEGMENTS as usize];
                let mut tournament = Tournament::new(entries.len());
                let changed: Vec<u32> = (0..64).collect();
                for choice in 0..400 {
                    let now = u32::saturating_add(first, choice);
                    // Written anew at every other choice; otherwise, old content that is due late.
                    let at = if choice % 2 == 0 { now } else { 0 };
                    entries[..64].fill(sealed(32, at));
                    tournament.refresh(&mut *policy, &entries, &changed, (SEGMENT_BLOCKS, now));
                }
                let queued = tournament.queue.len();
                assert!(queued <= 2 * entries.len(), "{name}: {queued} entries from {first} on");
            }
        }
    }

    #[test]
    fn a_segment_that_is_written_anew_is_scored_by_its_new_age() {
        for name in VICTIM_POLICIES {
            let mut policy = policy(name);
            // The old content was cold for many times the time that it takes to write the volume.
            let now = 100_000_000;
            let mut entries = vec![sealed(SEGMENT_BLOCKS - 1, 0); SEGMENTS as usize];
            let mut tournament = Tournament::new(entries.len());
            tournament.refresh(&mut *policy, &entries, &[], (SEGMENT_BLOCKS, now));
            // All is written anew; half of each odd segment dies at once, and no more of it later.
            for no in 0..SEGMENTS {
                let live = if no % 2 == 1 { SEGMENT_BLOCKS / 2 } else { SEGMENT_BLOCKS - 1 };
                let at = now + 1 + no;
                entries[no as usize] = sealed(live, at);
                tournament.refresh(&mut *policy, &entries, &[no], (SEGMENT_BLOCKS, at));
            }
            let mut same = 0;
            for choice in 0..200 {
                let at = (SEGMENT_BLOCKS, now + SEGMENTS + 1000 * (1 + choice));
                let dying = 2 * choice;
                entries[dying as usize].live_blocks = SEGMENT_BLOCKS - 4;
                tournament.refresh(&mut *policy, &entries, &[dying], at);
                let best = tournament.best(&*policy, &entries, at, |_| true);
                same += u32::from(best == full_scan(&*policy, &entries, at, |_| true));
            }
            assert!(same >= 198, "{name}: {same} of 200 choices are those of a full scan");
        }
    }
}
