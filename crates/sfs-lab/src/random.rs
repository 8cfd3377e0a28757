//! Random numbers that are the same everywhere for the same seed.
//!
//! Owns: the generator (xoshiro256++, Blackman and Vigna) and what is drawn from it.
//! Promises: the sequence of a seed never changes.
//! Never: asks the system for entropy.

/// A generator.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        self.0 = [a ^ d ^ b, b ^ c ^ a, c ^ a ^ (b << 17), (d ^ b).rotate_left(45)];
        a.wrapping_add(d).rotate_left(23).wrapping_add(a)
    }

    /// A number below `end`, which is above zero.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u32
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The numbers below `count`, in random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for last in (1..count).rev() {
            let other = self.below(last + 1);
            order.swap(last as usize, other as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_evenly_and_seeds_differ() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_700..10_300).contains(count)), "{counts:?}");
        assert_ne!(Random::new(1).bits(), Random::new(2).bits());
        let mut order = random.permutation(1000);
        order.sort_unstable();
        assert!(order.into_iter().eq(0..1000));
    }
}
