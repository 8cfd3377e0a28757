//! Clock-Space (FAST 2009, section 4): a clock hand stops at the next segment that is emptier than a threshold,
//! and that segment is filled up.
//!
//! The hand is the only state; occupancy is read from the bitmap at each choice.

use super::scheme::{FreeSpaceView, Scheme};

/// Threshold of occupancy, in thousandths, for an average load of up to 0.1, 0.2, ... 0.9 (the
/// paper's table 3). The paper's example counts free blocks as load; the formula of the table
/// counts occupied blocks, as here.
const TABLE: [u32; 9] = [100, 100, 100, 100, 200, 300, 450, 600, 800];

/// Number of bisection steps on [0, 1] for a threshold exact to a thousandth.
const HALVINGS: u32 = 12;

/// The rule that gives the threshold for a load.
#[derive(Clone, Copy)]
pub(super) enum ThresholdRule {
    /// The paper's table 3.
    Table,
    /// The formula ASO = (1 - BSO) / ln(1 / BSO), solved for the occupancy of the emptiest segments.
    Exact,
}

impl ThresholdRule {
    /// Returns the occupancy below which a segment is chosen at an average of `load`, both in thousandths.
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

/// The scheme Clock-Space.
pub(super) struct ClockSpace {
    rule: ThresholdRule,
    /// Segment at which the hand stands.
    hand: u32,
}

impl ClockSpace {
    pub(super) fn new(rule: ThresholdRule) -> Self {
        Self { rule, hand: 0 }
    }
}

impl Scheme for ClockSpace {
    fn choose(&mut self, space: &FreeSpaceView<'_>, _ino: u64) -> Option<u32> {
        let blocks = u64::from(space.bitmap.segment_blocks());
        let threshold = u64::from(self.rule.threshold(space.load));
        let is_light = |free: u32| (blocks - u64::from(free)) * 1000 < threshold * blocks;
        let mut next = space.around((self.hand + 1) % space.count());
        // Without a segment below the threshold, the next segment that is not full is taken.
        let (first, free) = next.next()?;
        let light = if is_light(free) { None } else { next.find(|(_, free)| is_light(*free)) };
        self.hand = light.map_or(first, |(segment, _)| segment);
        Some(self.hand)
    }

    fn fills_up(&self) -> bool {
        true
    }

    fn resize(&mut self, segment_count: u32) {
        self.hand %= segment_count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_at_the_load_rounded_up() {
        for (load, threshold) in
            [(0, 100), (400, 100), (401, 200), (450, 200), (700, 450), (950, 800)]
        {
            assert_eq!(ThresholdRule::Table.threshold(load), threshold, "{load}");
        }
    }

    /// The thresholds are solutions of the formula for loads of 0.1 to 0.9.
    #[test]
    fn the_exact_threshold_solves_the_formula() {
        let exact = [0, 7, 41, 107, 203, 324, 467, 629, 807];
        for (tenth, threshold) in (1..).zip(exact) {
            let found = ThresholdRule::Exact.threshold(tenth * 100);
            assert!(found.abs_diff(threshold) <= 1, "{found} at {tenth}");
        }
        assert_eq!(ThresholdRule::Exact.threshold(1000), 1000);
    }
}
