//! The write clock: time that goes on by the blocks that users write.
//!
//! Owns: how many blocks have been written, and how long a tick is.
//! Promises: it never goes back; 2^18 to 2^19 ticks are the size of the volume (or it has fewer
//! blocks, and a tick is one block).
//! Never: asks what time it is.

use crate::format::Layout;

/// A volume has fewer ticks than twice this many, and a tick at least one block.
const TICKS_LOG2: u32 = 18;

#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteClock {
    blocks: u64,
    /// Blocks of a tick, log2.
    shift: u32,
}

impl WriteClock {
    pub(crate) fn new(layout: &Layout, blocks: u64) -> Self {
        let size = u64::from(layout.segment_count) * u64::from(layout.segment_blocks);
        Self { blocks, shift: size.max(1).ilog2().saturating_sub(TICKS_LOG2) }
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

    /// It is `now` at least.
    pub(crate) fn catch_up(&mut self, now: u32) {
        self.blocks = self.blocks.max(u64::from(now) << self.shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(segment_count: u32) -> Layout {
        Layout {
            block_count: 1 << 32,
            segment_first: 1024,
            segment_blocks: 1024,
            segment_count,
            slots: [16, 32],
            backup: (1 << 32) - 1,
        }
    }

    #[test]
    fn a_volume_has_between_two_to_the_18_and_19_ticks() {
        for (segments, ticks) in [(250, 256_000), (256, 1 << 18), (511, 511 << 10), (512, 1 << 18)]
        {
            let clock = WriteClock::new(&layout(segments), 0);
            let size = u64::from(segments) << 10;
            assert_eq!(clock.after(size), ticks);
        }
    }

    #[test]
    fn it_never_goes_back_and_ends_without_wrapping() {
        let mut clock = WriteClock::new(&layout(2048), 7 << 3);
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
