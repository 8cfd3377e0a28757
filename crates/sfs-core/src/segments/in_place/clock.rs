//! Clock-Space (FAST 2009, section 4): a hand goes from segment to segment, and stops where fewer blocks
//! are occupied than a threshold says; that segment is filled up.
//!
//! Owns: the hand.
//! Promises: what it goes by is read from the bitmaps when it is asked.
//! Never: remembers anything else.

use super::{Scheme, SpaceView};

/// Most that a segment may be occupied, in thousandths, by the average load: 0.1, 0.2, ... 0.9 at most
/// (the paper's table 3). Its example counts free blocks as load; the relation it comes from counts
/// occupied ones.
const TABLE: [u32; 9] = [100, 100, 100, 100, 200, 300, 450, 600, 800];

/// Halvings of [0, 1] after which the exact threshold is known to a thousandth.
const HALVINGS: u32 = 12;

/// How the threshold follows from the load.
#[derive(Clone, Copy)]
pub(super) enum ThresholdRule {
    /// By the paper's table.
    Table,
    /// ASO = (1 - BSO) / ln(1 / BSO): the load of the emptiest segments, given the average.
    Exact,
}

impl ThresholdRule {
    /// Load below which a segment is chosen when the average is `load`, both in thousandths.
    pub(super) fn threshold(self, load: u32) -> u32 {
        match self {
            Self::Table => TABLE[(load.div_ceil(100).clamp(1, 9) - 1) as usize],
            Self::Exact => {
                let (mut low, mut high) = (0.0, 1.0);
                for _ in 0..HALVINGS {
                    let middle: f64 = (low + high) / 2.0;
                    let average = (1.0 - middle) / -middle.ln();
                    let half =
                        if average * 1000.0 < f64::from(load) { &mut low } else { &mut high };
                    *half = middle;
                }
                (high * 1000.0).round() as u32
            }
        }
    }
}

pub(super) struct ClockSpace {
    relation: ThresholdRule,
    hand: u32,
}

impl ClockSpace {
    pub(super) fn new(relation: ThresholdRule) -> Self {
        Self { relation, hand: 0 }
    }
}

impl Scheme for ClockSpace {
    fn choose(&mut self, space: &SpaceView<'_>, _ino: u64) -> Option<u32> {
        let blocks = u64::from(space.bitmap.segment_blocks());
        let threshold = u64::from(self.relation.threshold(space.load));
        let is_light = |free: u32| (blocks - u64::from(free)) * 1000 < threshold * blocks;
        let mut next = space.around((self.hand + 1) % space.count());
        // Where none is light enough, the next that is not full has to do.
        let (first, free) = next.next()?;
        let light = if is_light(free) { None } else { next.find(|(_, free)| is_light(*free)) };
        self.hand = light.map_or(first, |(segment, _)| segment);
        Some(self.hand)
    }

    fn fills_up(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_at_the_ceiling_of_the_load() {
        for (load, threshold) in
            [(0, 100), (400, 100), (401, 200), (450, 200), (700, 450), (950, 800)]
        {
            assert_eq!(ThresholdRule::Table.threshold(load), threshold, "{load}");
        }
    }

    /// `papers.md`, section 5, gives these numbers of the relation.
    #[test]
    fn the_exact_threshold_is_that_of_the_relation() {
        let exact = [0, 7, 41, 107, 203, 324, 467, 629, 807];
        for (tenth, threshold) in (1..).zip(exact) {
            let found = ThresholdRule::Exact.threshold(tenth * 100);
            assert!(found.abs_diff(threshold) <= 1, "{found} at {tenth}");
        }
        assert_eq!(ThresholdRule::Exact.threshold(1000), 1000);
    }
}
