//! Summaries of the values of several runs, and the throughput of one.

/// Median of several runs, with the least and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianRange {
    median: f64,
    least: f64,
    greatest: f64,
}

impl MedianRange {
    /// Summarizes the values of at least one run.
    ///
    /// # Panics
    ///
    /// If there is no value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self { median: values[last / 2], least: values[0], greatest: values[last] }
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.median
    }

    /// Returns the text of a cell, with this number of digits after the point.
    pub fn text(&self, digits: usize) -> String {
        let Self { median, least, greatest } = self;
        format!("{median:.digits$} ({least:.digits$}..{greatest:.digits$})")
    }
}

/// Returns the throughput in MB/s (10^6 bytes) of `bytes` in `ns` nanoseconds.
pub fn mb_per_s(bytes: u64, ns: u64) -> f64 {
    bytes as f64 * 1e3 / ns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_the_lower_one() {
        assert_eq!(MedianRange::of(vec![3.0, 1.0, 4.0, 2.0]).text(1), "2.0 (1.0..4.0)");
        assert_eq!(MedianRange::of(vec![0.5]).text(2), "0.50 (0.50..0.50)");
    }

    #[test]
    fn a_megabyte_in_a_millisecond_is_1000_mb_per_s() {
        assert_eq!(mb_per_s(1_000_000, 1_000_000), 1000.0);
    }
}
