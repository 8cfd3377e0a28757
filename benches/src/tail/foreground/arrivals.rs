//! Synced overwrites that arrive at random times, whether or not earlier ones have ended.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use sfs_lab::random::WorkloadRng;

use super::overwriting::{BLOCK_LEN, Overwriting};
use crate::tail::{Latencies, Outcome};

/// Number of requests that can be in progress at once. Latency is measured from the arrival, so it
/// includes the time that a request waits for a thread.
const THREADS: usize = 64;

/// Arrival process: random arrivals, independent of each other.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Number of requests.
    pub requests: u64,
    /// Mean number of arrivals in a second.
    pub rate: f64,
    /// Seed of the times.
    pub seed: u64,
}

impl Arrivals {
    /// Returns the times of all arrivals: a Poisson process.
    fn times(&self) -> Vec<Duration> {
        let mut random = WorkloadRng::new(self.seed);
        let mut secs = 0.0;
        let mut next = || {
            secs -= (1.0 - random.unit()).ln() / self.rate;
            Duration::from_secs_f64(secs)
        };
        (0..self.requests).map(|_| next()).collect()
    }
}

/// Overwrites and syncs a block of the file at each arrival.
///
/// # Errors
///
/// If the filesystem refuses a request.
pub fn arrivals(path: &Path, blocks: &mut Overwriting, arrivals: Arrivals) -> Result<Outcome> {
    let file = File::options().write(true).open(path)?;
    let requests: Vec<(Duration, u64)> =
        arrivals.times().into_iter().map(|time| (time, blocks.next_offset())).collect();
    let next = AtomicUsize::new(0);
    let start = Instant::now();
    let serve = || -> Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        while let Some((time, offset)) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            thread::sleep(time.saturating_sub(start.elapsed()));
            let block = [(*offset >> 12) as u8 | 1; BLOCK_LEN];
            file.write_all_at(&block, *offset).context("overwriting")?;
            file.sync_all().context("fsync")?;
            latencies.push(start.elapsed() - *time);
        }
        Ok(latencies)
    };
    let mut latencies = Latencies::default();
    thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(serve)).collect();
        for thread in threads {
            let times = thread.join().expect("a thread panicked")?;
            times.into_iter().for_each(|time| latencies.add(time));
        }
        Ok(())
    })?;
    let secs = start.elapsed().as_secs_f64();
    let calls = latencies.summary().map(|call| ("write and fsync", call)).into_iter().collect();
    Ok(Outcome { rounds: arrivals.requests, secs, calls, ..Outcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_wanted_rate_and_random_gaps() {
        let arrivals = Arrivals { requests: 10_000, rate: 200.0, seed: 3 };
        let times = arrivals.times();
        let last = times.last().expect("arrivals").as_secs_f64();
        assert!((last / 50.0 - 1.0).abs() < 0.03, "{last}");
        let long = times.windows(2).filter(|pair| (pair[1] - pair[0]).as_secs_f64() > 1.0 / 200.0);
        // A gap is longer than the mean with probability 1/e.
        let share = long.count() as f64 / 10_000.0;
        assert!((share / (-1.0_f64).exp() - 1.0).abs() < 0.05, "{share}");
        assert!(times.is_sorted());
    }

    #[test]
    fn a_request_that_arrives_late_waits_from_its_arrival_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        std::fs::write(&path, [0; 4 * BLOCK_LEN]).expect("written");
        let mut blocks =
            Overwriting::open(&path, super::super::Choice::Uniform, 1, 0).expect("the file");
        // All requests arrive within a microsecond, faster than any filesystem serves them.
        let burst = Arrivals { requests: 500, rate: 1e9, seed: 1 };
        let outcome = arrivals(&path, &mut blocks, burst).expect("served");
        let call = outcome.calls["write and fsync"];
        assert_eq!(call.count, 500);
        let total_ns = (outcome.secs * 1e9) as u64;
        assert!(call.longest_ns > total_ns / 2 && call.longest_ns <= total_ns, "{outcome:?}");
    }
}
