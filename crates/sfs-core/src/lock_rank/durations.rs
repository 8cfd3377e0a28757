//! Histograms of the times for which locks are waited for and held.

/// Number of octaves of a histogram; the last one has all durations of nine minutes or more.
pub(super) const OCTAVES: usize = 40;

/// Durations of one kind, in octaves of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationHistogram {
    /// Number of durations of 2^i..2^(i+1) nanoseconds, by i; zero counts as one.
    pub counts: [u64; OCTAVES],
    /// Longest duration in nanoseconds.
    pub longest_ns: u64,
}

/// Times of the locks of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTimes {
    /// Name of the rank: see the table in `lock_rank.rs`.
    pub name: &'static str,
    /// Times until threads got the lock.
    pub waits: DurationHistogram,
    /// Times for which threads held the lock.
    pub holds: DurationHistogram,
}

impl DurationHistogram {
    /// Returns the upper end of the octave in which the `share` (0..=1) of all durations ends, at most the longest one.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let all: u64 = self.counts.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        let octave = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        octave.map_or(0, |octave| (2 << octave).min(self.longest_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_ends_of_octaves() {
        let mut histogram = DurationHistogram { counts: [0; OCTAVES], longest_ns: 5000 };
        (histogram.counts[3], histogram.counts[12]) = (99, 1);
        assert_eq!(histogram.quantile_ns(0.5), 16);
        assert_eq!(histogram.quantile_ns(0.99), 16);
        assert_eq!(histogram.quantile_ns(1.0), 5000);
        assert_eq!(DurationHistogram { counts: [0; OCTAVES], longest_ns: 0 }.quantile_ns(0.5), 0);
    }
}
