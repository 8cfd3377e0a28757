//! Median and range of the samples of a figure.

use std::fmt;

use super::table::median;

/// Median and range of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Returns the spread of the samples, or `None` without a sample.
    pub(super) fn of(samples: impl Iterator<Item = f64>) -> Option<Self> {
        let samples: Vec<f64> = samples.collect();
        Some(Self {
            low: samples.iter().copied().fold(f64::INFINITY, f64::min),
            median: median(samples.iter().copied())?,
            high: samples.iter().copied().fold(0.0, f64::max),
        })
    }

    /// Returns the spread of the middle half of the samples, or `None` without a sample.
    pub(super) fn of_middle(samples: impl Iterator<Item = f64>) -> Option<Self> {
        let mut samples: Vec<f64> = samples.collect();
        samples.sort_by(f64::total_cmp);
        let quarter = samples.len() / 4;
        Self::of(samples[quarter..samples.len() - quarter].iter().copied())
    }

    /// Returns the spread of a single sample.
    pub(super) fn one(sample: f64) -> Self {
        Self { low: sample, median: sample, high: sample }
    }

    /// Returns whether the median of each spread lies outside the range of the other.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let is_outside = |of: &Self, median: f64| median < of.low || median > of.high;
        is_outside(self, other.median) && is_outside(other, self.median)
    }
}

impl fmt::Display for Spread {
    /// Writes the median and, unless all samples are equal, the range, with as many decimals as the
    /// precision says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(0);
        let Self { low, median, high } = self;
        write!(f, "{median:.decimals$}")?;
        if low == high {
            return Ok(());
        }
        write!(f, " ({low:.decimals$} to {high:.decimals$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_changed_only_if_both_medians_are_outside_the_other_range() {
        let spread = |low, median, high| Spread { low, median, high };
        assert!(spread(1.0, 2.0, 3.0).excludes(&spread(4.0, 5.0, 6.0)));
        assert!(!spread(1.0, 2.0, 3.0).excludes(&spread(2.5, 2.9, 3.2)));
        assert!(!spread(1.0, 2.0, 9.0).excludes(&spread(3.0, 5.0, 6.0)));
    }

    #[test]
    fn a_spread_shows_median_and_range() {
        let spread = Spread::of([3.0, 1.25, 9.0].into_iter()).expect("samples");
        assert_eq!(format!("{spread:.1}"), "3.0 (1.2 to 9.0)");
        assert_eq!(format!("{spread}"), "3 (1 to 9)");
        let one = Spread::of([3.0].into_iter()).expect("a sample");
        assert_eq!(format!("{one}"), "3");
        assert_eq!(Spread::of([].into_iter()), None);
        let middle = Spread::of_middle([9.0, 2.0, 3.0, 1.0].into_iter()).expect("samples");
        assert_eq!(middle, Spread { low: 2.0, median: 2.5, high: 3.0 });
        assert_eq!(Spread::of_middle([].into_iter()), None);
    }
}
