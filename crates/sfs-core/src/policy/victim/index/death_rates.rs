//! How blocks of a group die with the age of their segment.
//!
//! Owns: the deaths and the times at risk, by age, and what follows from them.
//! Promises: rates are finite and above zero, whatever was counted; no logarithm is taken.
//! Never: knows a segment.

/// Ages that are told apart in an octave, log2: blocks that are rewritten in a cycle die within a
/// hundredth of their age.
const PER_OCTAVE_LOG2: u32 = 3;

/// Ages up to 2^32 ticks.
pub(super) const AGES: usize = 32 << PER_OCTAVE_LOG2;

/// So many ages ahead a mean rate is taken to: three octaves and a half, in steps that grow.
const AHEAD: [usize; 8] = [1, 2, 4, 6, 9, 13, 19, 28];

/// Deaths that a group's mean counts as at an age.
const MEAN_WEIGHT: f64 = 16.0;

/// A bit pattern has its exponent from here on.
const EXPONENT: u32 = f64::MANTISSA_DIGITS - 1;

/// The place of 1.0 if places were counted from 0.0 on.
const ONE: u64 = 1.0_f64.to_bits() >> (EXPONENT - PER_OCTAVE_LOG2);

/// The place of an age of at least one tick: octaves in equal parts.
pub(super) fn place(age: f64) -> usize {
    let place = (age.to_bits() >> (EXPONENT - PER_OCTAVE_LOG2)).saturating_sub(ONE);
    (place as usize).min(AGES - 1)
}

/// The age at which a place begins, in ticks.
fn start(place: usize) -> f64 {
    f64::from_bits((place as u64 + ONE) << (EXPONENT - PER_OCTAVE_LOG2))
}

/// Of one group: by age, what happened, and what follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeathRates {
    pub(super) deaths: [f64; AGES],
    /// Block-ticks.
    pub(super) exposure: [f64; AGES],
    /// Deaths per block and tick at an age.
    hazard: [f64; AGES],
    /// The same added up over all ticks before.
    before: [f64; AGES],
    /// Largest mean of the hazard from this age to a later one.
    coming: [f64; AGES],
}

impl DeathRates {
    pub(super) fn none() -> Self {
        let none = [0.0; AGES];
        let mut rates =
            Self { deaths: none, exposure: none, hazard: none, before: none, coming: none };
        rates.conclude();
        rates
    }

    pub(super) fn fade(&mut self, kept: f64) {
        self.counts_mut().for_each(|count| *count *= kept);
    }

    /// All that was counted.
    pub(super) fn counts(&self) -> impl Iterator<Item = f64> {
        self.deaths.iter().chain(&self.exposure).copied()
    }

    pub(super) fn counts_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        self.deaths.iter_mut().chain(&mut self.exposure)
    }

    /// Draws the conclusions.
    pub(super) fn conclude(&mut self) {
        let deaths: f64 = self.deaths.iter().sum();
        let exposure: f64 = self.exposure.iter().sum();
        let mean = (deaths + 1e-3) / (exposure + 1.0);
        let mut sum = mean;
        for age in 0..AGES {
            let time = self.exposure[age] + MEAN_WEIGHT / mean;
            self.hazard[age] = (self.deaths[age] + MEAN_WEIGHT) / time;
            self.before[age] = sum;
            sum += self.hazard[age] * (start(age + 1) - start(age));
        }
        for age in 0..AGES {
            let ends = AHEAD.into_iter().map(|ahead| age + ahead).take_while(|end| *end < AGES);
            self.coming[age] = ends.fold(self.hazard[age], |most, end| {
                let deaths = self.before[end] - self.before[age];
                most.max(deaths / (start(end) - start(age)))
            });
        }
    }

    /// Deaths expected of a block until this age, in ticks.
    pub(super) fn until(&self, age: f64) -> f64 {
        let place = place(age);
        self.before[place] + self.hazard[place] * (age - start(place))
    }

    /// Deaths per block and tick to wait for at this age, in ticks.
    pub(super) fn coming(&self, age: f64) -> f64 {
        self.coming[place(age)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_one_another() {
        assert_eq!((place(1.0), start(0)), (0, 1.0));
        for at in 0..AGES - 1 {
            assert!(start(at) < start(at + 1));
            assert_eq!([place(start(at)), place(start(at + 1) - 1e-6)], [at, at]);
        }
        assert_eq!(place(f64::from(u32::MAX)), AGES - 1);
    }

    #[test]
    fn deaths_at_an_age_are_seen_before_it_and_not_after() {
        let mut rates = DeathRates::none();
        rates.exposure.fill(1e6);
        rates.deaths.fill(10.0);
        rates.deaths[place(1000.0)] = 1e5;
        rates.conclude();
        assert!(rates.coming(800.0) > 10.0 * rates.coming(1200.0));
        assert!(rates.coming(800.0) > 10.0 * rates.coming(10.0));
        assert!(rates.until(900.0) < 0.1 * rates.until(1200.0));
    }
}
