//! The time of a seek by its distance.
//!
//! A short seek accelerates for half of its way, so its time grows with the root of the distance; a long one
//! also coasts at the arm's full speed, so its time grows evenly. The curve is c + a sqrt(d - 1) + b (d - 1)
//! for a seek of d cylinders (E. K. Lee, "Performance Modeling and Analysis of Disk Arrays", 1993), and goes
//! through the three times that a data sheet has: one cylinder, the mean of all seeks, and the full stroke.

use serde::Serialize;

/// Seek times of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeekCurve {
    single_ns: f64,
    root_ns: f64,
    even_ns: f64,
}

impl SeekCurve {
    /// Returns the curve of a drive with `cylinders` cylinders, of which a seek to the next one takes
    /// `single_us`, the mean of all seeks `mean_us`, and the longest seek `full_us` microseconds.
    ///
    /// A drive with fewer cylinders than the one that was measured keeps the three times: a small drive behaves
    /// like the whole one.
    pub fn fit(cylinders: u32, single_us: u32, mean_us: u32, full_us: u32) -> SeekCurve {
        let [single, mean, full] = [single_us, mean_us, full_us].map(|us| f64::from(us) * 1000.0);
        let longest = f64::from(cylinders.saturating_sub(2).max(1));
        // For random positions the mean of sqrt(d) is 8/15 of the longest root, the mean of d a third of
        // the longest distance: two equations for the two factors.
        SeekCurve {
            single_ns: single,
            root_ns: (-10.0 * single + 15.0 * mean - 5.0 * full) / (3.0 * longest.sqrt()),
            even_ns: (7.0 * single - 15.0 * mean + 8.0 * full) / (3.0 * longest),
        }
    }

    /// Returns the time of a seek over `distance` cylinders, settling included, in nanoseconds; zero for no
    /// distance.
    pub fn ns(&self, distance: u32) -> u64 {
        let Some(further) = distance.checked_sub(1).map(f64::from) else { return 0 };
        (self.single_ns + self.root_ns * further.sqrt() + self.even_ns * further).max(0.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_has_the_three_times_of_the_data_sheet() {
        for cylinders in [500_u32, 90_000] {
            let curve = SeekCurve::fit(cylinders, 1000, 8500, 15_000);
            assert_eq!((curve.ns(0), curve.ns(1)), (0, 1_000_000));
            let full = curve.ns(cylinders - 1) as f64 / 15e6;
            assert!((full - 1.0).abs() < 1e-3, "{full}");
            let number = f64::from(cylinders);
            let pairs = |d: u32| 2.0 * (number - f64::from(d)) / (number * (number - 1.0));
            let mean: f64 = (1..cylinders).map(|d| pairs(d) * curve.ns(d) as f64).sum();
            assert!((mean / 8.5e6 - 1.0).abs() < 0.01, "{mean}");
            let mut times = (0..cylinders).map(|d| curve.ns(d));
            let mut last = times.next().unwrap_or(0);
            assert!(
                times.all(|ns| std::mem::replace(&mut last, ns) <= ns),
                "a longer seek takes longer"
            );
        }
    }
}
