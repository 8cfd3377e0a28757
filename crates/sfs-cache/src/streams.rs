//! Sequential streams: a disk reads them as fast as an SSD, and they would drive out what is warm.

use std::collections::VecDeque;

/// Number of streams that are followed.
const STREAMS: usize = 32;

/// Blocks of a stream (1 MiB) from which on it bypasses the cache.
pub(crate) const BYPASS_BLOCKS: u64 = 256;

/// Blocks that a stream may leave out: the summaries between the chunks of a log.
const GAP_BLOCKS: u64 = 64;

/// The last streams.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// End and length of each stream in blocks, the last used one last.
    streams: VecDeque<(u64, u64)>,
}

impl Streams {
    /// Notes a read of `count` blocks from `address` on. Returns whether it belongs to a stream that bypasses the cache.
    pub(crate) fn note(&mut self, address: u64, count: u64) -> bool {
        let follows = |(end, _): &(u64, u64)| (*end..=*end + GAP_BLOCKS).contains(&address);
        let at = self.streams.iter().position(follows);
        let before = at.and_then(|at| self.streams.remove(at)).map_or(0, |(_, length)| length);
        if self.streams.len() >= STREAMS {
            self.streams.pop_front();
        }
        let length = before + count;
        self.streams.push_back((address + count, length));
        length > BYPASS_BLOCKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_bypasses_the_cache_after_a_mebibyte() {
        let mut streams = Streams::default();
        let mut random = (0..200_u64).map(|no| no * 7919 % 100_000 * 64 + 10_000_000);
        let bypassed: Vec<bool> = (0..20)
            .map(|no| {
                (0..3).for_each(|_| assert!(!streams.note(random.next().expect("enough"), 4)));
                streams.note(no * 40, 32)
            })
            .collect();
        assert_eq!(bypassed, (0..20).map(|no| no >= 8).collect::<Vec<_>>());
    }
}
