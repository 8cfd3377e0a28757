//! Generators of a line or two.
//!
//! Owns: hot and cold blocks, hot ones that move, and the sequential writer.
//! Promises: what their names say.
//! Never: deletes.

use super::{Operation, Workload};
use crate::random::Random;

/// Some of the writes go to some of the blocks, each class evenly. Hot are the lowest numbers.
pub struct HotCold {
    random: Random,
    writes: f64,
    hot: u32,
    blocks: u32,
}

impl HotCold {
    /// A fraction `writes` of the writes goes to a fraction `hot` of the `blocks`.
    pub fn new(writes: f64, hot: f64, blocks: u32, random: Random) -> Self {
        let hot = (f64::from(blocks) * hot).round() as u32;
        Self { random, writes, hot: hot.clamp(1, blocks - 1), blocks }
    }
}

impl Workload for HotCold {
    fn next(&mut self) -> Operation {
        let block = if self.random.unit() < self.writes {
            self.random.below(self.hot)
        } else {
            self.hot + self.random.below(self.blocks - self.hot)
        };
        Operation::write(block)
    }
}

/// A tenth of the blocks gets nine tenths of the writes, and moves on.
pub struct Shift {
    random: Random,
    order: Vec<u32>,
    /// First hot block, in `order`.
    first: u32,
    writes: u32,
}

impl Shift {
    /// Writes after which one block cools down and another becomes hot: the hot set is another one
    /// after as many writes as there are blocks.
    const WRITES_PER_STEP: u32 = 10;

    /// The hot set of `blocks` in random order.
    pub fn new(blocks: u32, mut random: Random) -> Self {
        let order = random.permutation(blocks);
        Self { random, order, first: 0, writes: 0 }
    }
}

impl Workload for Shift {
    fn next(&mut self) -> Operation {
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
        let place = (u64::from(self.first) + u64::from(offset)) % u64::from(blocks);
        Operation::write(self.order[place as usize])
    }
}

/// One block after the other.
pub struct Sequential {
    next: u32,
    blocks: u32,
}

impl Sequential {
    /// From the first block to the last, again and again.
    pub fn new(blocks: u32) -> Self {
        Self { next: 0, blocks }
    }
}

impl Workload for Sequential {
    fn next(&mut self) -> Operation {
        let block = self.next;
        self.next = (block + 1) % self.blocks;
        Operation::write(block)
    }
}
