//! Small generators: hot and cold blocks, a hot set that moves, and writers of blocks in order. No generator
//! deletes a block.

use super::operation::{BlockOperation, Workload};
use crate::random::WorkloadRng;

/// Writes that prefer hot blocks, evenly within the hot and the cold blocks. The lowest numbers are hot.
pub struct HotCold {
    random: WorkloadRng,
    writes: f64,
    hot: u32,
    blocks: u32,
}

impl HotCold {
    /// Returns a generator that sends a fraction `writes` of the writes to a fraction `hot` of the
    /// `blocks`.
    pub fn new(writes: f64, hot: f64, blocks: u32, random: WorkloadRng) -> Self {
        let hot = (f64::from(blocks) * hot).round() as u32;
        Self { random, writes, hot: hot.clamp(1, blocks - 1), blocks }
    }
}

impl Workload for HotCold {
    fn next(&mut self) -> BlockOperation {
        let block = if self.random.unit() < self.writes {
            self.random.below(self.hot)
        } else {
            self.hot + self.random.below(self.blocks - self.hot)
        };
        BlockOperation::write(block)
    }
}

/// Writes of which nine tenths go to a hot tenth of the blocks. The hot set changes block by block.
pub struct Shift {
    random: WorkloadRng,
    order: Vec<u32>,
    /// Index of the first hot block in `order`.
    first: u32,
    /// Number of writes since the hot set changed.
    writes: u32,
}

impl Shift {
    /// Number of writes after which one block cools down and another becomes hot. The hot set is a
    /// tenth of the blocks, so the whole set is replaced after as many writes as there are blocks.
    const WRITES_PER_STEP: u32 = 10;

    /// Returns a generator over `blocks` in random order; the hot set is a window that moves over
    /// this order.
    pub fn new(blocks: u32, mut random: WorkloadRng) -> Self {
        let order = random.permutation(blocks);
        Self { random, order, first: 0, writes: 0 }
    }
}

impl Workload for Shift {
    fn next(&mut self) -> BlockOperation {
        let blocks = self.order.len() as u32;
        let hot = (blocks / 10).max(1);
        self.writes += 1;
        if self.writes == Self::WRITES_PER_STEP {
            self.writes = 0;
            self.first = (self.first + 1) % blocks;
        }
        let offset = if self.random.unit() < 0.9 {
            self.random.below(hot)
        } else {
            hot + self.random.below(blocks - hot)
        };
        let index = (u64::from(self.first) + u64::from(offset)) % u64::from(blocks);
        BlockOperation::write(self.order[index as usize])
    }
}

/// Writes of every block in order.
pub struct Sequential {
    next: u32,
    blocks: u32,
}

impl Sequential {
    /// Returns a generator that starts at the first block, and again there after the last block.
    pub fn new(blocks: u32) -> Self {
        Self { next: 0, blocks }
    }
}

impl Workload for Sequential {
    fn next(&mut self) -> BlockOperation {
        let block = self.next;
        self.next = (block + 1) % self.blocks;
        BlockOperation::write(block)
    }
}

/// Writes of a number of blocks in order, each time at another place, as IOzone's random writers make them.
pub struct Pieces {
    random: WorkloadRng,
    /// Number of blocks of a piece.
    len: u32,
    pieces: u32,
    next: u32,
    /// Number of blocks left of this piece.
    left: u32,
}

impl Pieces {
    /// Returns a generator of pieces of `len` blocks, which begin at multiples of `len`.
    pub fn new(len: u32, blocks: u32, random: WorkloadRng) -> Self {
        let len = len.clamp(1, blocks);
        Self { random, len, pieces: blocks / len, next: 0, left: 0 }
    }
}

impl Workload for Pieces {
    fn next(&mut self) -> BlockOperation {
        if self.left == 0 {
            (self.next, self.left) = (self.random.below(self.pieces) * self.len, self.len);
        }
        let block = self.next;
        (self.next, self.left) = (block + 1, self.left - 1);
        BlockOperation::write(block)
    }
}

/// A log and an archive, each written in order and over and over, beside random writes.
///
/// Of the blocks, the log has a twentieth, the archive three tenths, and the random writes the rest; of the writes, the
/// log has half, and both others a quarter. So a block of the log lives a twelfth as long as one of the archive.
pub struct Streams {
    random: WorkloadRng,
    log: Sequential,
    archive: Sequential,
    blocks: u32,
}

impl Streams {
    /// Returns the generator for `blocks` blocks.
    pub fn new(blocks: u32, random: WorkloadRng) -> Self {
        let log = Sequential::new((blocks / 20).max(1));
        Self { random, log, archive: Sequential::new((blocks / 10 * 3).max(1)), blocks }
    }
}

impl Workload for Streams {
    fn next(&mut self) -> BlockOperation {
        let (log, archive) = (self.log.blocks, self.archive.blocks);
        match self.random.below(4) {
            0 | 1 => self.log.next(),
            2 => BlockOperation::write(log + self.archive.next().block()),
            _ => {
                let begin = (log + archive).min(self.blocks - 1);
                BlockOperation::write(begin + self.random.below(self.blocks - begin))
            }
        }
    }
}
