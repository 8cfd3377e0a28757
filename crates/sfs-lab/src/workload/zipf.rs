//! Writes by Zipf's law, with ranks scattered over the blocks at random.
//!
//! Walker's alias method takes one draw and one table look-up a write, and follows the law exactly.
//! Published figures depend on its draws, so `rand_distr::Zipf` cannot take its place.

use super::operation::{BlockOperation, Workload};
use crate::random::WorkloadRng;

/// The generator of writes by Zipf's law.
pub struct Zipf {
    random: WorkloadRng,
    /// For each slot, the probability in 2^-32 that its own rank is taken, and the rank taken otherwise.
    table: Vec<(u32, u32)>,
    block_of_rank: Vec<u32>,
}

impl Zipf {
    /// Returns a generator that writes rank r of `blocks` with probability proportional to
    /// r^-theta.
    pub fn new(theta: f64, blocks: u32, mut random: WorkloadRng) -> Self {
        let weights: Vec<f64> = (1..=blocks).map(|rank| f64::from(rank).powf(-theta)).collect();
        let block_of_rank = random.permutation(blocks);
        Self { random, table: alias_table(&weights), block_of_rank }
    }
}

/// Returns classes of ranks with about the same rate: the number of ranks, and the sum of their
/// probabilities in any unit. The first rank of a class is about a tenth higher than the first rank
/// of the class before.
pub(super) fn classes(theta: f64, blocks: u32) -> Vec<(f64, f64)> {
    let mut classes = Vec::new();
    let mut first = 1;
    while first <= blocks {
        let end = (first + first / 10 + 1).min(blocks + 1);
        let writes: f64 = (first..end).map(|rank| f64::from(rank).powf(-theta)).sum();
        classes.push((f64::from(end - first), writes));
        first = end;
    }
    classes
}

/// Builds the alias table of these weights.
fn alias_table(weights: &[f64]) -> Vec<(u32, u32)> {
    let scale = weights.len() as f64 / weights.iter().sum::<f64>();
    let mut shares: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) =
        (0..weights.len() as u32).partition(|&slot| shares[slot as usize] < 1.0);
    let mut table: Vec<(u32, u32)> =
        (0..weights.len() as u32).map(|slot| (u32::MAX, slot)).collect();
    while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
        let share = shares[poor as usize];
        table[poor as usize] = ((share * f64::from(u32::MAX)) as u32, rich);
        shares[rich as usize] -= 1.0 - share;
        if shares[rich as usize] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    table
}

impl Workload for Zipf {
    fn next(&mut self) -> BlockOperation {
        let slot = self.random.below(self.table.len() as u32);
        let (threshold, other) = self.table[slot as usize];
        let rank = if self.random.bits() as u32 <= threshold { slot } else { other };
        BlockOperation::write(self.block_of_rank[rank as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_contain_every_rank_and_every_write() {
        let classes = classes(1.0, 1000);
        let (blocks, writes) = classes.iter().fold((0.0, 0.0), |(b, w), c| (b + c.0, w + c.1));
        let harmonic: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank)).sum();
        assert_eq!(blocks, 1000.0);
        assert!((writes / harmonic - 1.0).abs() < 1e-9 && classes.len() < 100);
    }

    #[test]
    fn frequencies_follow_the_law() {
        let mut zipf = Zipf::new(1.0, 100, WorkloadRng::new(3));
        let mut counts = vec![0u32; 100];
        for _ in 0..1_000_000 {
            counts[zipf.next().block() as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1, 2, 10, 50] {
            let expected = 1e6 / harmonic / f64::from(rank);
            let found = f64::from(counts[rank as usize - 1]);
            assert!((found / expected - 1.0).abs() < 0.05, "rank {rank}: {found} {expected}");
        }
    }
}
