//! Death rates of a group's blocks by the age of their segment.
//!
//! [`DeathRates`] counts deaths and block-ticks by age, and derives rates from them that are finite and above
//! zero for any counts.

/// Log2 of the number of age classes in an octave. Blocks that are rewritten in a cycle die within
/// a narrow range of ages.
const PER_OCTAVE_LOG2: u32 = 3;

/// Number of age classes, for ages up to 2^32 ticks.
pub(super) const AGES: usize = 32 << PER_OCTAVE_LOG2;

/// Distances, in age classes, over which a mean rate ahead is taken: up to three and a half octaves.
const AHEAD: [usize; 8] = [1, 2, 4, 6, 9, 13, 19, 28];

/// Weight of the group's mean rate in each age class, in deaths.
const MEAN_WEIGHT: f64 = 16.0;

/// Lowest bit of the exponent in an `f64`.
const EXPONENT: u32 = f64::MANTISSA_DIGITS - 1;

/// Class of 1.0 if classes were counted from 0.0 on.
const ONE: u64 = 1.0_f64.to_bits() >> (EXPONENT - PER_OCTAVE_LOG2);

/// Returns the class of an age of at least one tick: octaves in equal parts.
pub(super) fn age_class(age: f64) -> usize {
    let class = (age.to_bits() >> (EXPONENT - PER_OCTAVE_LOG2)).saturating_sub(ONE);
    (class as usize).min(AGES - 1)
}

/// Returns the age at which a class begins, in ticks.
fn start(class: usize) -> f64 {
    f64::from_bits((class as u64 + ONE) << (EXPONENT - PER_OCTAVE_LOG2))
}

/// Returns the age at which a class ends, in ticks.
pub(super) fn class_end(class: usize) -> f64 {
    start(class + 1)
}

/// The counts and rates of one group, by age class.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeathRates {
    pub(super) deaths: [f64; AGES],
    /// Block-ticks at risk.
    pub(super) exposure: [f64; AGES],
    /// Deaths per block and tick.
    hazard: [f64; AGES],
    /// Integral of `hazard` over all ticks before the class.
    before: [f64; AGES],
    /// Largest mean of `hazard` from this class to a later one.
    coming: [f64; AGES],
}

impl DeathRates {
    pub(super) fn none() -> Self {
        let none = [0.0; AGES];
        let mut rates =
            Self { deaths: none, exposure: none, hazard: none, before: none, coming: none };
        rates.update_rates();
        rates
    }

    pub(super) fn fade(&mut self, factor: f64) {
        self.counts_mut().for_each(|count| *count *= factor);
    }

    /// Returns all counts: deaths, then block-ticks.
    pub(super) fn counts(&self) -> impl Iterator<Item = f64> {
        self.deaths.iter().chain(&self.exposure).copied()
    }

    pub(super) fn counts_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        self.deaths.iter_mut().chain(&mut self.exposure)
    }

    /// Derives the rates from the counts.
    pub(super) fn update_rates(&mut self) {
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

    /// Returns the number of deaths expected of a block until `age`, in ticks.
    pub(super) fn until(&self, age: f64) -> f64 {
        let class = age_class(age);
        self.before[class] + self.hazard[class] * (age - start(class))
    }

    /// Returns the largest mean rate of deaths per block and tick ahead of `age`, in ticks.
    pub(super) fn coming(&self, age: f64) -> f64 {
        self.coming[age_class(age)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_classes_are_contiguous() {
        assert_eq!((age_class(1.0), start(0)), (0, 1.0));
        for at in 0..AGES - 1 {
            assert!(start(at) < start(at + 1));
            assert_eq!([age_class(start(at)), age_class(start(at + 1) - 1e-6)], [at, at]);
        }
        assert_eq!(age_class(f64::from(u32::MAX)), AGES - 1);
    }

    #[test]
    fn deaths_at_an_age_count_ahead_of_it_and_not_after() {
        let mut rates = DeathRates::none();
        rates.exposure.fill(1e6);
        rates.deaths.fill(10.0);
        rates.deaths[age_class(1000.0)] = 1e5;
        rates.update_rates();
        assert!(rates.coming(800.0) > 10.0 * rates.coming(1200.0));
        assert!(rates.coming(800.0) > 10.0 * rates.coming(10.0));
        assert!(rates.until(900.0) < 0.1 * rates.until(1200.0));
    }
}
