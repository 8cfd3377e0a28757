//! Expected remaining lifetimes, learned from the blocks that died and the blocks that survived.
//!
//! For each row and age cell the table counts live blocks, deaths and the time at risk, exactly and without samples.
//! [`Hazard::predict`] turns the counts into expected remaining lifetimes. Deaths and times decay; the count of
//! live blocks does not, but restarts after a gap of 2^14 epochs.

use super::ages::{Ages, CELLS};
use super::digest::{ONCE, ROWS, interval, row};
use super::histogram::{EMPTY, Histogram, bin};
use crate::format::History;

/// A value for every row at every age.
pub(super) type Table = [[f64; ROWS]; CELLS];

/// Octaves by which the mean logarithm of an exponential lifetime is below the logarithm of its mean.
const BELOW_MEAN_OCTAVES: f64 = 0.833;

pub(super) struct Hazard {
    pub(super) ages: Ages,
    /// Size of the volume in ticks.
    size: f64,
    /// Ticks added to every lifetime, so that very short lifetimes are alike.
    short: f64,
    pub(super) epoch: u32,
    /// Number of live blocks.
    pub(super) population: Box<Table>,
    pub(super) deaths: Box<Table>,
    /// Block-ticks at risk.
    pub(super) exposure: Box<Table>,
    /// Expected log2 of the remaining lifetime, in ticks.
    pub(super) remaining: Box<Table>,
    /// Expected log2 of the lifetime of a block that has just been written, by row.
    pub(super) fresh: [f64; ROWS],
}

fn table() -> Box<Table> {
    Box::new([[0.0; ROWS]; CELLS])
}

impl Hazard {
    pub(super) fn new(size: f64, short: f64) -> Self {
        let mut hazard = Self {
            ages: Ages::new(size),
            size,
            short,
            epoch: 0,
            population: table(),
            deaths: table(),
            exposure: table(),
            remaining: table(),
            fresh: [0.0; ROWS],
        };
        hazard.predict();
        hazard
    }

    /// Counts a write, a death, or both.
    pub(super) fn note(&mut self, before: Option<History>, after: Option<History>, now: u32) {
        self.advance(now);
        if let Some(before) = before {
            let (cell, row) = (self.ages.cell(before.modified, now), row(before));
            let population = &mut self.population[cell][row];
            *population = (*population - 1.0).max(0.0);
            self.deaths[cell][row] += 1.0;
        }
        if let Some(after) = after {
            self.population[0][row(after)] += 1.0;
        }
    }

    /// Advances the epochs to `now`.
    pub(super) fn advance(&mut self, now: u32) {
        let end = self.ages.epoch(now);
        if end.saturating_sub(self.epoch) > 1 << 14 {
            // After so long a gap the ages of the counted blocks are unknown.
            self.population.fill([0.0; ROWS]);
            self.epoch = end;
        }
        while self.epoch < end {
            self.end_epoch();
            self.epoch += 1;
        }
    }

    fn end_epoch(&mut self) {
        for cell in 0..CELLS {
            if let Some(stay) = self.ages.stay(cell, self.epoch) {
                for (exposure, population) in
                    self.exposure[cell].iter_mut().zip(&self.population[cell])
                {
                    *exposure += population * stay;
                }
            }
        }
        for cell in Ages::shifts(self.epoch) {
            let moved = std::mem::replace(&mut self.population[cell], [0.0; ROWS]);
            for (older, moved) in self.population[cell + 1].iter_mut().zip(moved) {
                *older += moved;
            }
        }
    }

    /// Multiplies deaths and times at risk by `factor`.
    pub(super) fn fade(&mut self, factor: f64) {
        for table in [&mut self.deaths, &mut self.exposure] {
            table.as_flattened_mut().iter_mut().for_each(|count| *count *= factor);
        }
    }

    /// Computes the expected lifetimes from the counts.
    pub(super) fn predict(&mut self) {
        for row in 0..ROWS {
            let hazard: [f64; CELLS] = std::array::from_fn(|cell| self.hazard(cell, row));
            let survival = Survival::new(&self.ages, &hazard, self.short);
            self.fresh[row] = survival.remaining(0, 0.0);
            for cell in 0..CELLS {
                self.remaining[cell][row] = survival.remaining(cell, survival.middle(cell));
            }
        }
    }

    /// Returns the live blocks by expected lifetime, for a volume of `all` live blocks, scaled to
    /// at least `least`. Blocks that were never counted count as blocks of the oldest cell that
    /// were written once.
    pub(super) fn live(&self, all: f64, least: f64) -> Histogram {
        let mut live = EMPTY;
        let mut counted = 0.0;
        let population = self.population.as_flattened().iter();
        for (count, remaining) in population.zip(self.remaining.as_flattened()) {
            live[bin(remaining + BELOW_MEAN_OCTAVES)] += count;
            counted += count;
        }
        let oldest = self.remaining[CELLS - 1][ONCE];
        live[bin(oldest + BELOW_MEAN_OCTAVES)] += (all - counted).max(0.0);
        let factor = all.max(least) / counted.max(all).max(1.0);
        live.iter_mut().for_each(|count| *count *= factor);
        live
    }

    /// Returns the deaths per block and tick of a row at an age. The prior is one death in the row's interval plus
    /// the age: old blocks are expected to live long.
    fn hazard(&self, cell: usize, row: usize) -> f64 {
        let expected = interval(row, self.size) + self.ages.start(cell);
        let uncounted = self.population[cell][row] * self.ages.uncounted(cell, self.epoch);
        (self.deaths[cell][row] + 1.0) / (self.exposure[cell][row] + uncounted + expected)
    }
}

/// The survival function of one row.
struct Survival {
    short: f64,
    starts: [f64; CELLS],
    hazard: [f64; CELLS],
    /// Probability that a block that enters a cell outlives it.
    outlived: [f64; CELLS],
    /// Mean age at death of the blocks that die in a cell.
    death: [f64; CELLS],
}

impl Survival {
    fn new(ages: &Ages, hazard: &[f64; CELLS], short: f64) -> Self {
        let starts: [f64; CELLS] = std::array::from_fn(|cell| ages.start(cell));
        let width = |cell: usize| starts.get(cell + 1).map_or(f64::INFINITY, |e| e - starts[cell]);
        Self {
            short,
            starts,
            hazard: *hazard,
            outlived: std::array::from_fn(|cell| (-hazard[cell] * width(cell)).exp()),
            death: std::array::from_fn(|cell| starts[cell] + mean(hazard[cell], width(cell))),
        }
    }

    fn middle(&self, cell: usize) -> f64 {
        self.starts.get(cell + 1).map_or(self.starts[cell], |end| self.starts[cell].midpoint(*end))
    }

    /// Returns the expected log2 of the remaining lifetime of a block in `cell`, at `age`.
    fn remaining(&self, cell: usize, age: f64) -> f64 {
        let left = self.starts.get(cell + 1).map_or(f64::INFINITY, |end| end - age);
        let mut alive = (-self.hazard[cell] * left).exp();
        let first = (mean(self.hazard[cell], left) + self.short).log2();
        let mut sum = (1.0 - alive) * (first - self.below_mean(cell, left));
        for later in cell + 1..CELLS {
            if alive < 1e-4 {
                break;
            }
            let dying = alive * (1.0 - self.outlived[later]);
            sum += dying
                * f64::from((((self.death[later] - age).max(0.0) + self.short) as f32).log2());
            alive -= dying;
        }
        sum
    }

    /// Returns the difference between the log2 of the mean remaining lifetime and the mean of its log2, for a death
    /// within `left`. The difference is 0.443 for a uniform variable and 0.833 for an exponential one, and less
    /// where `short` lengthens the lifetimes.
    fn below_mean(&self, cell: usize, left: f64) -> f64 {
        let hazard = self.hazard[cell];
        let mean = mean(hazard, left);
        (BELOW_MEAN_OCTAVES - 0.39 * (-hazard * left / 2.0).min(0.0).exp()) * mean
            / (mean + self.short)
    }
}

/// Returns the mean time until death of the blocks that die within `width`.
fn mean(hazard: f64, width: f64) -> f64 {
    let x = hazard * width;
    if x > 30.0 {
        1.0 / hazard
    } else if x < 1e-3 {
        width / 2.0
    } else {
        1.0 / hazard - width / x.exp_m1()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first deaths at an age without earlier blocks once gave too high a rate: the time at
    /// risk was counted later.
    #[test]
    fn time_at_risk_counts_from_the_first_tick_of_an_age() {
        let mut hazard = Hazard::new(f64::from(1 << 18), 1.0);
        let born = History::digested(1, 0, 0);
        let (count, deaths) = (10_000, 4);
        (0..count).for_each(|_| hazard.note(None, Some(born), 0));
        let entered = hazard.ages.time(3 << 12);
        let now = hazard.ages.time((3 << 12) + 40);
        (0..deaths).for_each(|_| hazard.note(Some(born), None, now));
        let cell = hazard.ages.cell(0, now);
        assert!(cell != hazard.ages.cell(0, entered - 1) && hazard.deaths[cell][ONCE] == 4.0);
        let expected = f64::from(deaths) / (f64::from(count) * f64::from(now - entered));
        let found = hazard.hazard(cell, ONCE);
        assert!((0.5..2.0).contains(&(found / expected)), "{found}, not {expected}");
    }

    #[test]
    fn a_constant_hazard_has_no_memory() {
        let ages = Ages::new(f64::from(1 << 18));
        let survival = Survival::new(&ages, &[1e-4; CELLS], 1.0);
        // The expected log2 of an exponential variable is the log2 of its mean less gamma / ln 2.
        let expected = 1e4_f64.log2() - 0.8327;
        for cell in [0, 3, 10, 20, 25] {
            let found = survival.remaining(cell, survival.middle(cell));
            assert!((found - expected).abs() < 0.25, "cell {cell}: {found}, not {expected}");
        }
    }
}
