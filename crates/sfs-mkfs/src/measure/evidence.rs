//! Whether random writes are slower than sequential ones, from the times of single requests.
//!
//! The ratio of the two mean times has a standard error by the spread of the requests, so noise and rare long
//! merges count. Random writes are called slow as soon as the ratio is below the bound by more than three
//! standard errors. They are called fast only after a whole pass: a device can buffer the first writes.
//!
//! Sequential writes that take very different times show a device that still cleans up older writes.

/// Minimum number of requests of a kind for a judgement.
const REQUESTS_MIN: u64 = 6;

/// Number of standard errors between a clear ratio and the bound.
const ERRORS: f64 = 3.0;

/// Ratio of the ninth decile of sequential requests to the first from which a device is not even. Noise of 20% makes it 1.4.
const EVEN_MAX: u64 = 2;

/// Times of the requests of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestTimes {
    count: u64,
    mean_ns: f64,
    /// Sum of the squares of the distances from the mean (Welford).
    squares: f64,
}

impl RequestTimes {
    /// Adds the time of a request.
    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        let distance = ns as f64 - self.mean_ns;
        self.mean_ns += distance / self.count as f64;
        self.squares += distance * (ns as f64 - self.mean_ns);
    }

    /// Returns the mean, in nanoseconds.
    pub(super) fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// Returns the square of the standard error of the mean, relative to the mean.
    fn relative_variance(&self) -> f64 {
        let count = self.count as f64;
        self.squares / (count - 1.0) / count / (self.mean_ns * self.mean_ns)
    }

    /// Returns whether these requests are clearly slower than `sequential`: their throughput is below `percent` of that
    /// one.
    pub(super) fn is_slower_than(&self, sequential: &RequestTimes, percent: u64) -> bool {
        if self.count < REQUESTS_MIN || sequential.count < REQUESTS_MIN {
            return false;
        }
        let ratio = sequential.mean_ns / self.mean_ns;
        let error = ratio * (self.relative_variance() + sequential.relative_variance()).sqrt();
        ratio + ERRORS * error < percent as f64 / 100.0
    }
}

/// Returns whether requests in order took similar times, rare ones excepted.
pub(super) fn are_even(mut times_ns: Vec<u64>) -> bool {
    times_ns.sort_unstable();
    let tenth = times_ns.len() / 10;
    let (Some(low), Some(high)) = (times_ns.get(tenth), times_ns.iter().rev().nth(tenth)) else {
        return true;
    };
    *high <= low * EVEN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ns: impl IntoIterator<Item = u64>) -> RequestTimes {
        let mut times = RequestTimes::default();
        ns.into_iter().for_each(|ns| times.add(ns));
        times
    }

    #[test]
    fn only_clear_ratios_are_judged() {
        let even = times([100; 20]);
        assert!(times([150; 6]).is_slower_than(&even, 88));
        assert!(!times([150; 5]).is_slower_than(&even, 88), "too few requests");
        assert!(!times([112; 20]).is_slower_than(&even, 88), "a ratio of 0.89");
        assert!(times([115; 20]).is_slower_than(&even, 88), "a ratio of 0.87, without any spread");
        let noisy = |mean: u64| times((0..8).map(move |no| mean - 40 + 80 * (no % 2)));
        assert!(!noisy(120).is_slower_than(&noisy(100), 88), "hidden in the noise");
        assert!(noisy(240).is_slower_than(&noisy(100), 88));
        // One long merge among quick writes proves nothing yet.
        assert!(!times([100, 100, 100, 100, 100, 900]).is_slower_than(&even, 88));
    }

    #[test]
    fn rare_long_requests_are_even_and_frequent_ones_are_not() {
        assert!(are_even(Vec::new()));
        assert!(are_even((0..20).map(|no| 80 + 2 * no).collect()));
        let with_long = |count| (0..100).map(|no| if no < count { 900 } else { 100 }).collect();
        assert!(are_even(with_long(10)));
        assert!(!are_even(with_long(11)));
    }
}
