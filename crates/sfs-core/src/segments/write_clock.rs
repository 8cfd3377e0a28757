//! The write clock: time in ticks, each a fixed number of blocks that users write.
//!
//! The superblock states the number of blocks in a tick. The clock never goes back, stops at the
//! end of 32 bits, and does not depend on the time of day.

use crate::format::COUNT_KEPT_MAX;

/// A count of the blocks that users wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteClock {
    blocks: u64,
    /// Log2 of the number of blocks in a tick.
    shift: u32,
}

impl WriteClock {
    /// Returns a clock with ticks of 2^`shift` blocks after `blocks` blocks; `shift` is below 64.
    pub(crate) fn new(shift: u32, blocks: u64) -> Self {
        Self { blocks, shift }
    }

    /// Returns the number of blocks that users have written so far.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the current time in ticks. The clock stops at `u32::MAX`; ages then no longer grow.
    pub(crate) fn now(&self) -> u32 {
        self.after(0)
    }

    /// Returns the time in ticks after `count` more blocks.
    pub(crate) fn after(&self, count: u64) -> u32 {
        u32::try_from(self.blocks.saturating_add(count) >> self.shift).unwrap_or(u32::MAX)
    }

    /// Adds `count` blocks that users wrote.
    pub(crate) fn advance(&mut self, count: u64) {
        self.blocks = self.blocks.saturating_add(count);
    }

    /// Advances the clock to at least `now`. A forged time cannot push the count beyond the limit
    /// of a checkpoint.
    pub(crate) fn catch_up(&mut self, now: u32) {
        let blocks = u64::from(now).saturating_mul(1 << self.shift);
        self.blocks = self.blocks.max(blocks.min(COUNT_KEPT_MAX / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, Superblock};

    #[test]
    fn a_new_volume_has_between_two_to_the_18_and_19_ticks() {
        for (segments, ticks) in [(250, 256_000), (256, 1 << 18), (511, 511 << 10), (512, 1 << 18)]
        {
            let size = u64::from(segments) << 10;
            let layout = Layout::new(size + (1 << 11), 1 << 10, 0).expect("the layout fits");
            assert_eq!(layout.segment_count, segments);
            let clock = WriteClock::new(Superblock::new(layout).tick_shift, 0);
            assert_eq!(clock.after(size), ticks);
        }
    }

    /// A forged tick and a forged time once led to a checkpoint that no mount accepted.
    #[test]
    fn a_forged_time_leaves_a_count_that_a_checkpoint_can_hold() {
        for (shift, now) in [(29, u32::MAX), (32, 1 << 30), (61, 1), (63, u32::MAX)] {
            let mut clock = WriteClock::new(shift, 7);
            clock.catch_up(now);
            assert!((7..COUNT_KEPT_MAX).contains(&clock.blocks()), "{shift}");
        }
    }

    #[test]
    fn the_clock_never_goes_back_and_stops_without_wrapping() {
        let mut clock = WriteClock::new(3, 7 << 3);
        assert_eq!(clock.now(), 7);
        clock.catch_up(3);
        assert_eq!(clock.now(), 7);
        clock.catch_up(9);
        clock.advance(8);
        assert_eq!((clock.now(), clock.after(8), clock.blocks()), (10, 11, 80));
        clock.advance(u64::MAX);
        assert_eq!(clock.now(), u32::MAX);
    }
}
