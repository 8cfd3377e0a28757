//! Numbers that look random and are the same for the same seed on every machine.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A generator of numbers, SplitMix64. The seed is the whole of its state.
///
/// The sequence of a seed is fixed for good: tests quote seeds with the outcome that they lead to. So
/// the draws from the 64-bit numbers are written here and not taken from a library, which may change
/// them.
#[derive(Clone, Debug)]
pub struct SeededRng(SplitMix64);

impl SeededRng {
    /// Creates the generator of the sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `end`, or 0 if `end` is 0. The remainder's bias does not matter to tests.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next_u64() % end }
    }

    /// Returns `true` once in `count` times on average.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns one of `items`, which are not empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Fills `bytes` with little-endian numbers; the last one may be cut.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Returns `len` bytes, as from [`Self::fill`].
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_that_of_the_reference_implementation() {
        let mut rng = SeededRng::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| rng.next_u64()), expected);
    }

    #[test]
    fn bytes_are_the_numbers_in_little_endian_order() {
        let [mut rng, mut numbers] = [SeededRng::new(7), SeededRng::new(7)];
        let expected = [numbers.next_u64().to_le_bytes(), numbers.next_u64().to_le_bytes()];
        assert_eq!(rng.bytes(11), expected.concat()[..11]);
        assert_eq!(rng.next_u64(), numbers.next_u64(), "the cut number is used up");
    }

    #[test]
    fn a_bound_of_zero_draws_nothing() {
        let [mut rng, mut other] = [SeededRng::new(7), SeededRng::new(7)];
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.next_u64(), other.next_u64());
    }
}
