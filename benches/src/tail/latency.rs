//! Durations of single requests, and their percentiles.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::Serialize;

/// Durations of the requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

/// Percentiles of the requests of one kind, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallLatency {
    /// Number of requests.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Duration of the longest request.
    pub longest_ns: u64,
}

/// Result of a foreground load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Number of rounds of the load; in each, most kinds of request occur once.
    pub rounds: u64,
    /// Time of all rounds, in seconds.
    pub secs: f64,
    /// Rate of each background program in that time, by the unit of the rate.
    pub background: BTreeMap<&'static str, f64>,
    /// Latency by the name of the call.
    pub calls: BTreeMap<&'static str, CallLatency>,
}

impl Latencies {
    /// Calls `request` and adds its duration.
    pub fn time<T>(&mut self, request: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = request();
        self.add(start.elapsed());
        result
    }

    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration.as_nanos() as u64);
    }

    /// Returns the percentiles, or `None` without a request.
    pub fn summary(mut self) -> Option<CallLatency> {
        self.0.sort_unstable();
        let longest_ns = *self.0.last()?;
        let [p50_ns, p99_ns, p999_ns] = [500, 990, 999].map(|permille| self.percentile(permille));
        Some(CallLatency { count: self.0.len() as u64, p50_ns, p99_ns, p999_ns, longest_ns })
    }

    /// Returns the shortest of the sorted durations that at least `permille` of a thousand requests do
    /// not exceed.
    fn percentile(&self, permille: usize) -> u64 {
        let rank = (self.0.len() * permille).div_ceil(1000);
        self.0[rank.max(1) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(ns: impl Iterator<Item = u64>) -> Option<CallLatency> {
        let mut latencies = Latencies::default();
        ns.for_each(|ns| latencies.add(Duration::from_nanos(ns)));
        latencies.summary()
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let latency = summary((1..=10_000).rev()).expect("requests");
        let expected = CallLatency {
            count: 10_000,
            p50_ns: 5_000,
            p99_ns: 9_900,
            p999_ns: 9_990,
            longest_ns: 10_000,
        };
        assert_eq!(latency, expected);
    }

    #[test]
    fn one_slow_request_in_a_thousand_is_only_the_longest() {
        let slow = summary((0..999).map(|_| 1).chain([50])).expect("requests");
        assert_eq!((slow.p99_ns, slow.p999_ns, slow.longest_ns), (1, 1, 50));
        let slower = summary((0..998).map(|_| 1).chain([50, 50])).expect("requests");
        assert_eq!((slower.p99_ns, slower.p999_ns), (1, 50));
    }

    #[test]
    fn few_requests_have_their_longest_as_high_percentiles() {
        let latency = summary([7, 3].into_iter()).expect("requests");
        assert_eq!((latency.p50_ns, latency.p99_ns, latency.p999_ns), (3, 7, 7));
        assert_eq!(summary([].into_iter()), None);
    }

    #[test]
    fn a_request_is_timed() {
        let mut latencies = Latencies::default();
        let pause = Duration::from_millis(2);
        assert_eq!(
            latencies.time(|| {
                std::thread::sleep(pause);
                5
            }),
            5
        );
        assert!(latencies.summary().expect("a request").p50_ns >= pause.as_nanos() as u64);
    }
}
