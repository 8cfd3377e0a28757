//! The axes of figures: scales, ranges and ticks.

use std::ops::Range;

use anyhow::{Result, ensure};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Maximum number of ticks of a linear axis.
const TICKS_MAX: f64 = 8.0;

/// Factor by which a logarithmic axis extends beyond its values, at each end.
const LOGARITHMIC_MARGIN: f64 = 1.15;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AxisScale {
    /// Linear from zero.
    FromZero,
    /// Linear from the lowest value to the highest.
    Linear,
    /// Logarithmic, for values above zero.
    Logarithmic,
    /// Logarithmic, for sizes in KiB above zero, with ticks at powers of four.
    Kibibytes,
    /// Names for the values 0, 1, 2 and so on, whose points are drawn as bars.
    Categories(&'static [&'static str]),
}

/// An axis of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: &'static str,
    /// Scale of the axis.
    pub scale: AxisScale,
}

/// The coordinates of an axis for given values.
pub(super) struct AxisCoord {
    scale: AxisScale,
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl AxisCoord {
    /// Returns the coordinates with a range that contains `values`.
    ///
    /// # Errors
    ///
    /// If there is no value, or a value cannot be on the scale.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Result<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            ensure!(value.is_finite(), "{value} is not finite");
            (low, high) = (low.min(value), high.max(value));
        }
        ensure!(low <= high, "the figure has no points");
        let range = axis.scale.range(low, high)?;
        Ok(Self { scale: axis.scale, ticks: axis.scale.ticks(&range), range })
    }
}

impl Ranged for AxisCoord {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        let position = |value: f64| if self.scale.is_logarithmic() { value.ln() } else { value };
        let (low, high) = (position(self.range.start), position(self.range.end));
        let share = (position(*value) - low) / (high - low);
        begin + (share * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl AxisScale {
    fn is_logarithmic(self) -> bool {
        matches!(self, Self::Logarithmic | Self::Kibibytes)
    }

    /// Returns the range of an axis for values in `low..=high`.
    fn range(self, low: f64, high: f64) -> Result<Range<f64>> {
        Ok(match self {
            Self::FromZero => {
                ensure!(low >= 0.0, "{low} is below zero");
                0.0..if high > 0.0 { high * 1.05 } else { 1.0 }
            }
            Self::Linear => low..if high > low { high } else { low + 1.0 },
            Self::Logarithmic | Self::Kibibytes => {
                ensure!(low > 0.0, "{low} is not above zero");
                low / LOGARITHMIC_MARGIN..high * LOGARITHMIC_MARGIN
            }
            Self::Categories(names) => -0.5..names.len() as f64 - 0.5,
        })
    }

    /// Returns the values at which the axis has ticks.
    fn ticks(self, range: &Range<f64>) -> Vec<f64> {
        let within = |value: &f64| range.start <= *value && *value <= range.end;
        match self {
            Self::Categories(names) => (0..names.len()).map(|no| no as f64).collect(),
            Self::Kibibytes => (0..30).map(|no| 4_f64.powi(no)).filter(within).collect(),
            Self::Logarithmic => {
                let decades = -9..10;
                let in_decade =
                    |decade: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade));
                let ticks: Vec<f64> = decades.clone().flat_map(in_decade).filter(within).collect();
                match ticks.len() {
                    0..2 => linear_ticks(range),
                    2..12 => ticks,
                    _ => decades.map(|decade| 10_f64.powi(decade)).filter(within).collect(),
                }
            }
            Self::FromZero | Self::Linear => linear_ticks(range),
        }
    }

    /// Returns the label of a tick.
    pub(super) fn tick_label(self, value: f64) -> String {
        match self {
            Self::Categories(names) => {
                names.get(value as usize).copied().unwrap_or_default().to_owned()
            }
            Self::Kibibytes if value >= 1024.0 => format!("{} MiB", value / 1024.0),
            Self::Kibibytes => format!("{value} KiB"),
            Self::Logarithmic if value < 1e-3 => format!("{value:e}"),
            _ => {
                // At most four digits after the point, without zeros at the end.
                let text = format!("{value:.4}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        }
    }
}

/// Returns the multiples in `range` of a step that is 1, 2 or 5 times a power of ten.
fn linear_ticks(range: &Range<f64>) -> Vec<f64> {
    let least_step = (range.end - range.start) / TICKS_MAX;
    let power = 10_f64.powf(least_step.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|step| *step >= least_step)
        .unwrap_or(10.0 * power);
    let first = (range.start / step - 1e-9).ceil() as i64;
    let last = (range.end / step + 1e-9).floor() as i64;
    (first..=last).map(|no| no as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: AxisScale, low: f64, high: f64) -> Vec<String> {
        let range = scale.range(low, high).expect("a range");
        scale.ticks(&range).into_iter().map(|value| scale.tick_label(value)).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(ticks(AxisScale::FromZero, 3.0, 78.0), ["0", "20", "40", "60", "80"]);
        assert_eq!(ticks(AxisScale::Linear, 0.4, 0.9), ["0.4", "0.5", "0.6", "0.7", "0.8", "0.9"]);
        assert_eq!(ticks(AxisScale::Logarithmic, 1.0, 20.0), ["1", "2", "5", "10", "20"]);
        assert_eq!(ticks(AxisScale::Logarithmic, 0.5, 19_000.0)[..3], ["1", "10", "100"]);
        assert_eq!(ticks(AxisScale::Logarithmic, 1e-5, 0.5)[..3], ["1e-5", "1e-4", "0.001"]);
        assert_eq!(
            ticks(AxisScale::Kibibytes, 4.0, 4096.0).concat(),
            "4 KiB16 KiB64 KiB256 KiB1 MiB4 MiB"
        );
        assert_eq!(ticks(AxisScale::Categories(&["a", "b"]), 0.0, 1.0), ["a", "b"]);
        assert!(ticks(AxisScale::Logarithmic, 54.2, 54.2).len() >= 2);
    }

    #[test]
    fn a_logarithmic_axis_maps_equal_ratios_to_equal_distances() {
        let axis = Axis { label: "", scale: AxisScale::Logarithmic };
        let coord = AxisCoord::new(&axis, [1.0, 100.0].into_iter()).expect("an axis");
        let at = |value: f64| coord.map(&value, (0, 10_000));
        assert!(((at(100.0) - at(10.0)) - (at(10.0) - at(1.0))).abs() <= 1);
        assert_eq!(coord.map(&coord.range.start, (300, 0)), 300);
        assert_eq!(coord.map(&coord.range.end, (300, 0)), 0);
    }
}
