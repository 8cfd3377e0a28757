//! Neighbours: blocks that follow one another in a file, overwritten by one commit.
//!
//! A program that overwrites a part of a file in order will often do so again, and then all of these blocks die at about the
//! same time. Segments that hold only such blocks die whole; blocks that die at random would leave live blocks in each of
//! them. Whether neighbours die together is seen at their last writes: those that were written at about the same time die together now. In
//! a place that one file after another takes, parts of several old files are overwritten at once, and the next ones will not die together.
//! So neighbours that were written together have groups of their own, by classes of expected lifetime: a log that a database
//! overwrites again and again shares no segment with a table that is rewritten once a day.

use crate::format::History;

/// Minimum number of neighbours that count as such. Parts of a file with 16 blocks are common under dense random writes,
/// too; from 32 to 64 nothing changes (docs/lab.md).
pub(super) const COUNT_MIN: usize = 64;

/// Octaves by which the bounds between the classes lie below the size of the volume.
const BOUNDS: [f64; 2] = [2.0, 5.0];

/// Number of classes.
const CLASSES: usize = BOUNDS.len() + 1;

/// Least part of all written blocks for which a class has a group.
const PART_MIN: f64 = 0.01;

/// Least number of groups for blocks that are no neighbours.
const OTHER_GROUPS_MIN: u8 = 3;

/// Part of the time since their last writes within which these writes lie if neighbours were written together.
const TOGETHER: u32 = 8;

/// Times of the last writes of neighbours, in ticks.
#[derive(Default)]
pub(super) struct Times {
    /// First and last, of those that were written before.
    known: Option<(u32, u32)>,
    has_new: bool,
}

impl Times {
    /// Adds the time of a block that was written before, or of one that was not.
    pub(super) fn add(&mut self, history: Option<History>) {
        let Some(History { modified, .. }) = history else {
            self.has_new = true;
            return;
        };
        let (first, last) = self.known.unwrap_or((modified, modified));
        self.known = Some((first.min(modified), last.max(modified)));
    }

    /// Returns whether all blocks were written at about the same time, or all for the first time.
    pub(super) fn are_together(&self, now: u32) -> bool {
        match self.known {
            None => true,
            Some((first, last)) => {
                !self.has_new && last - first <= now.saturating_sub(first) / TOGETHER
            }
        }
    }
}

/// The classes of neighbours, and the groups that are kept for them.
pub(super) struct Neighbours {
    /// Logarithm of the size of the volume in ticks.
    size_log2: f64,
    /// Number of groups of the policy.
    pub(super) groups: u8,
    /// Number of neighbours by class, which decays.
    weights: [f64; CLASSES],
    /// Number of groups that are kept, the last of the policy.
    kept: u8,
}

impl Neighbours {
    /// Returns the classes for a volume of `size` ticks and a policy of `groups` groups, without a group of their own.
    pub(super) fn new(size: f64, groups: u8) -> Self {
        Self { size_log2: size.max(1.0).log2(), groups, weights: [0.0; CLASSES], kept: 0 }
    }

    /// Returns the group of neighbours with this mean of the expected lifetime, log2 of ticks; `None` if none is kept.
    pub(super) fn group(&self, lifetime: f64) -> Option<u8> {
        let kept_class = self.class(lifetime).min(usize::from(self.kept).checked_sub(1)?);
        Some(self.groups - 1 - kept_class as u8)
    }

    /// Counts `count` neighbours with this mean of the expected lifetime.
    pub(super) fn note(&mut self, count: usize, lifetime: f64) {
        self.weights[self.class(lifetime)] += count as f64;
    }

    fn class(&self, lifetime: f64) -> usize {
        BOUNDS.iter().filter(|bound| self.size_log2 - lifetime > **bound).count()
    }

    /// Decides how many groups are kept for neighbours, if users wrote `traffic` blocks in total. Counts decay by the factor
    /// `decay` from one call to the next. Returns the number of groups that are left for other blocks.
    pub(super) fn draw(&mut self, traffic: f64, decay: f64) -> u8 {
        let is_common = |weight: &f64| *weight > traffic * PART_MIN && *weight > 0.0;
        let classes = self.weights.iter().rposition(is_common).map_or(0, |class| class + 1);
        self.weights.iter_mut().for_each(|weight| *weight *= decay);
        self.kept = (classes as u8).min(self.groups.saturating_sub(OTHER_GROUPS_MIN));
        self.groups - self.kept
    }

    /// Returns whether `group` is kept for neighbours.
    pub(super) fn are_kept_in(&self, group: u8) -> bool {
        (self.groups - self.kept..self.groups).contains(&group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_get_groups_once_they_are_common() {
        let mut neighbours = Neighbours::new(65536.0, 8);
        assert_eq!(neighbours.group(15.0), None);
        neighbours.note(1000, 15.0);
        assert_eq!((neighbours.draw(10_000.0, 0.5), neighbours.group(15.0)), (7, Some(7)));
        neighbours.note(1000, 10.0);
        assert_eq!(neighbours.draw(10_000.0, 0.5), 5);
        let groups = [15.0, 12.0, 10.0].map(|lifetime| neighbours.group(lifetime));
        assert_eq!(groups, [7, 6, 5].map(Some));
        assert!((5..8).all(|group| neighbours.are_kept_in(group)) && !neighbours.are_kept_in(4));
        for _ in 0..20 {
            neighbours.draw(10_000.0, 0.5);
        }
        assert_eq!((neighbours.group(15.0), neighbours.are_kept_in(7)), (None, false));
    }

    #[test]
    fn neighbours_were_written_together_or_are_all_new() {
        let together = |written: &[Option<u32>], now| {
            let mut times = Times::default();
            let history = |time: u32| History::plain(1, time);
            written.iter().for_each(|time| times.add(time.map(history)));
            times.are_together(now)
        };
        assert!(together(&[None, None], 900));
        assert!(together(&[Some(100), Some(200)], 900));
        assert!(!together(&[Some(100), Some(201)], 900), "more than an eighth of 800 ticks");
        assert!(!together(&[Some(100), None], 900), "a place that was partly free");
        assert!(together(&[Some(900), Some(900)], 900), "overwritten at once");
    }

    #[test]
    fn few_groups_are_left_to_other_blocks() {
        for groups in 1..=3 {
            let mut neighbours = Neighbours::new(65536.0, groups);
            neighbours.note(1000, 1.0);
            assert_eq!((neighbours.draw(1000.0, 0.5), neighbours.group(1.0)), (groups, None));
        }
        let mut neighbours = Neighbours::new(65536.0, 4);
        neighbours.note(1000, 1.0);
        assert_eq!(neighbours.draw(1000.0, 0.5), 3);
        assert_eq!([15.0, 1.0].map(|lifetime| neighbours.group(lifetime)), [Some(3); 2]);
    }
}
