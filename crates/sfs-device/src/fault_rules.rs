//! Faults by rules: which requests fail, lose data, change data, or take longer.
//!
//! A [`FaultRule`] selects requests by operation, range of blocks, number and probability; [`FaultRules`]
//! asks its rules about each request, and the device carries out the answer. All chance comes from the seed of a
//! rule, so the same requests meet the same faults. The models of `sfs-ssd` and `sfs-hdd` are devices with
//! such rules; [`FaultyDevice`](crate::FaultyDevice) is the simpler wrapper for unit tests.

use std::ops::Range;

use crate::block::{BLOCK_SIZE, Block};
use crate::error::Operation;

/// Effect of a fault on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The request fails with `EIO`, and nothing is read or written.
    Error,
    /// One bit of each block in the range is inverted: a read returns the changed block, a write stores it.
    WrongData,
    /// A write, discard or flush succeeds without effect on the blocks in the range.
    Lost,
    /// The request takes longer by this number of nanoseconds.
    Slow(u64),
}

/// Operations that a rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Reads.
    pub reads: bool,
    /// Writes.
    pub writes: bool,
    /// Flushes.
    pub flushes: bool,
    /// Discards.
    pub discards: bool,
}

impl Operations {
    /// Every operation.
    pub const ALL: Operations =
        Operations { reads: true, writes: true, flushes: true, discards: true };

    fn contains(self, operation: Operation) -> bool {
        match operation {
            Operation::Read => self.reads,
            Operation::Write => self.writes,
            Operation::Flush => self.flushes,
            Operation::Discard => self.discards,
            Operation::Open => false,
        }
    }
}

/// Rule that selects requests and names their fault.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// Effect on the selected requests.
    pub kind: FaultKind,
    /// Operations to which the rule applies.
    pub operations: Operations,
    /// Blocks of which a request must touch at least one; `None` for every request, with or without blocks.
    pub range: Option<Range<u64>>,
    /// Number of requests that the rule still selects; `None` without a limit.
    pub left: Option<u64>,
    /// Probability that a request is selected, from 0 to 1.
    pub probability: f64,
    /// Seed of the rule's chance.
    pub seed: u64,
    /// Number of requests that the rule has selected.
    pub hits: u64,
}

impl FaultRule {
    /// Returns a rule that selects every request of these operations. The seed is 1.
    pub fn new(kind: FaultKind, operations: Operations) -> FaultRule {
        FaultRule { kind, operations, range: None, left: None, probability: 1.0, seed: 1, hits: 0 }
    }

    /// Returns whether the fault exists for all operations of the rule: a read cannot be lost, and only reads
    /// and writes have data that can be wrong.
    pub fn is_possible(&self) -> bool {
        match self.kind {
            FaultKind::Error | FaultKind::Slow(_) => true,
            FaultKind::WrongData => !self.operations.flushes && !self.operations.discards,
            FaultKind::Lost => !self.operations.reads,
        }
    }

    /// Returns the blocks of a request that the rule hits, or `None` if the rule does not select the request.
    fn select(&mut self, operation: Operation, blocks: &Range<u64>) -> Option<Range<u64>> {
        if !self.operations.contains(operation) || self.left == Some(0) {
            return None;
        }
        let hit = match &self.range {
            Some(range) => range.start.max(blocks.start)..range.end.min(blocks.end),
            None => blocks.clone(),
        };
        if self.range.is_some() && hit.is_empty() {
            return None;
        }
        if self.probability < 1.0 && self.chance() >= self.probability {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        self.hits += 1;
        Some(hit)
    }

    /// Returns the next number from 0 to 1 of the rule's chance.
    fn chance(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(GOLDEN);
        (mixed(self.seed) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Increment of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the output of SplitMix64 for a state.
fn mixed(state: u64) -> u64 {
    let state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// The faults of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFaults {
    /// `true` if the request fails with `EIO`.
    pub fails: bool,
    /// Additional time in nanoseconds.
    pub delay_ns: u64,
    /// Blocks whose writes or discards have no effect.
    pub lost: Vec<Range<u64>>,
    /// `true` if a flush has no effect.
    pub flush_lost: bool,
    /// Blocks of which one bit is inverted, each with the seed of the bit's position.
    pub wrong: Vec<(Range<u64>, u64)>,
}

impl RequestFaults {
    /// Returns whether the write or discard of a block has no effect.
    pub fn loses(&self, address: u64) -> bool {
        self.lost.iter().any(|range| range.contains(&address))
    }

    /// Inverts a bit of each of the blocks from `address` on that a rule selected.
    pub fn corrupt(&self, address: u64, blocks: &mut [Block]) {
        for (range, seed) in &self.wrong {
            for (address, block) in (address..).zip(blocks.iter_mut()) {
                if range.contains(&address) {
                    let bit =
                        mixed(seed ^ address.wrapping_mul(GOLDEN)) as usize % (BLOCK_SIZE * 8);
                    block.0[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
}

/// The rules of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultRules {
    rules: Vec<FaultRule>,
}

impl FaultRules {
    /// Adds a rule. Rules do not exclude each other: a request meets the faults of all rules that select it.
    pub fn add(&mut self, rule: FaultRule) {
        self.rules.push(rule);
    }

    /// Removes all rules.
    pub fn heal(&mut self) {
        self.rules.clear();
    }

    /// Returns the rules, with their counts.
    pub fn rules(&self) -> &[FaultRule] {
        &self.rules
    }

    /// Counts a request for `count` blocks from `address` on, and returns its faults.
    pub fn decide(&mut self, operation: Operation, address: u64, count: u64) -> RequestFaults {
        let blocks = address..address.saturating_add(count);
        let mut faults = RequestFaults::default();
        for (number, rule) in self.rules.iter_mut().enumerate() {
            let Some(hit) = rule.select(operation, &blocks) else { continue };
            match rule.kind {
                FaultKind::Error => faults.fails = true,
                FaultKind::Slow(ns) => faults.delay_ns = faults.delay_ns.saturating_add(ns),
                FaultKind::WrongData => {
                    // Another bit for each rule and operation: two inversions of one bit would cancel each other.
                    let place = (number as u64) << 8 | operation as u64;
                    faults.wrong.push((hit, rule.seed ^ mixed(place.wrapping_add(GOLDEN))));
                }
                FaultKind::Lost if operation == Operation::Flush => faults.flush_lost = true,
                FaultKind::Lost => faults.lost.push(hit),
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests;
