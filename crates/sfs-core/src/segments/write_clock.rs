//! The write clock: time that goes on by the blocks that users write.
//!
//! Owns: how many blocks have been written, and how long a tick is.
//! Promises: it never goes back; a tick has as many blocks as the superblock says.
//! Never: asks what time it is.

use crate::format::COUNT_KEPT_MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteClock {
    blocks: u64,
    /// Blocks of a tick, log2.
    shift: u32,
}

impl WriteClock {
    /// A clock with ticks of 2^`shift` blocks, `shift` below 64, after `blocks` blocks.
    pub(crate) fn new(shift: u32, blocks: u64) -> Self {
        Self { blocks, shift }
    }

    /// Blocks that users have written so far.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The time now, in ticks. It stands still at the end of 32 bits: ages freeze, nothing else.
    pub(crate) fn now(&self) -> u32 {
        self.after(0)
    }

    /// The time when `count` more blocks have been written.
    pub(crate) fn after(&self, count: u64) -> u32 {
        u32::try_from(self.blocks.saturating_add(count) >> self.shift).unwrap_or(u32::MAX)
    }

    /// Users have written `count` blocks.
    pub(crate) fn advance(&mut self, count: u64) {
        self.blocks = self.blocks.saturating_add(count);
    }

    /// It is `now` at least. What no volume comes to is forged, and would be no sound count in a checkpoint.
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
            let layout = Layout::new(size + (1 << 11), 1 << 10, 0).expect("it fits");
            assert_eq!(layout.segment_count, segments);
            let clock = WriteClock::new(Superblock::new(layout).tick_shift, 0);
            assert_eq!(clock.after(size), ticks);
        }
    }

    /// With a forged tick, one forged time made a checkpoint that no mount takes.
    #[test]
    fn whatever_a_chunk_says_the_count_can_be_kept() {
        for (shift, now) in [(29, u32::MAX), (32, 1 << 30), (61, 1), (63, u32::MAX)] {
            let mut clock = WriteClock::new(shift, 7);
            clock.catch_up(now);
            assert!((7..COUNT_KEPT_MAX).contains(&clock.blocks()), "{shift}");
        }
    }

    #[test]
    fn it_never_goes_back_and_ends_without_wrapping() {
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
