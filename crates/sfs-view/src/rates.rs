//! Samples of the numbers of a volume, and what they tell about the time between two of them.

use std::time::Duration;

use crate::model::{Heat, Latency, Numbers, Segments};

/// Number of past rates that are kept.
const RATES_MAX: usize = 256;

/// The numbers of a volume at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Time since the start of the program.
    pub(crate) at: Duration,
    pub(crate) numbers: Numbers,
}

/// Activity between two samples; bytes and numbers are for each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Bytes that programs wrote.
    pub(crate) user_bytes: f64,
    /// Bytes written to the device.
    pub(crate) device_bytes: f64,
    /// Bytes of file data that cleaning moved.
    pub(crate) cleaning_bytes: f64,
    /// Bytes written to the device for each byte of programs; `None` if programs wrote nothing.
    pub(crate) amplification: Option<f64>,
    /// Operations of which there were requests since the mount.
    pub(crate) operations: Vec<OperationRate>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OperationRate {
    /// Name of the operation.
    pub(crate) name: String,
    /// Number of requests a second.
    pub(crate) rate: f64,
    /// Time for these requests over the time for all requests, 0 to 1.
    pub(crate) busy_share: f64,
    /// Latencies since the mount, in microseconds.
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) longest_us: u64,
    /// Number of requests since the mount.
    pub(crate) count: u64,
}

impl Rates {
    /// Compares two samples of one mount.
    pub(crate) fn between(before: &Sample, now: &Sample) -> Self {
        let secs = now.at.saturating_sub(before.at).as_secs_f64().max(0.001);
        let counter = |sample: &Sample, name: &str| {
            sample.numbers.mount.as_ref().map_or(0, |mount| mount.counter(name))
        };
        let rate =
            |name: &str| counter(now, name).saturating_sub(counter(before, name)) as f64 / secs;
        let (user_bytes, device_bytes) = (rate("user_bytes_written"), rate("device_bytes_written"));
        Self {
            user_bytes,
            device_bytes,
            cleaning_bytes: rate("cleaning_bytes"),
            amplification: (user_bytes > 0.0).then(|| device_bytes / user_bytes),
            operations: operations(&before.numbers.latencies, &now.numbers.latencies, secs),
        }
    }
}

fn operations(before: &[Latency], now: &[Latency], secs: f64) -> Vec<OperationRate> {
    let earlier = |name: &str| before.iter().find(|latency| latency.operation == name);
    let since = |latency: &Latency, field: fn(&Latency) -> u64| {
        field(latency).saturating_sub(earlier(&latency.operation).map_or(0, field))
    };
    let busy = |latency: &Latency| since(latency, |latency| latency.total_us) as f64;
    let all: f64 = now.iter().map(busy).sum();
    let of = |latency: &Latency| OperationRate {
        name: latency.operation.clone(),
        rate: since(latency, |latency| latency.count) as f64 / secs,
        busy_share: if all > 0.0 { busy(latency) / all } else { 0.0 },
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        longest_us: latency.longest_us,
        count: latency.count,
    };
    now.iter().map(of).collect()
}

/// Numbers that a frame shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) last: Sample,
    pub(crate) segments: Segments,
    /// Files that were written most, if they are known.
    pub(crate) heat: Option<Heat>,
    /// Activity before the last sample, the newest last.
    pub(crate) rates: Vec<Rates>,
}

impl History {
    pub(crate) fn new(first: Sample) -> Self {
        Self { last: first, ..Self::default() }
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.rates.push(Rates::between(&self.last, &sample));
        if self.rates.len() > RATES_MAX {
            self.rates.remove(0);
        }
        self.last = sample;
    }

    /// Returns the newest rates.
    pub(crate) fn now(&self) -> Rates {
        self.rates.last().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read;

    fn sample(secs: u64, user: u64, device: u64, writes: (u64, u64), reads: (u64, u64)) -> Sample {
        let text = format!(
            r#"{{"mount":{{"counters":{{"user_bytes_written":{user},"device_bytes_written":{device}}}}},
            "latencies":[{{"operation":"write","count":{},"total_us":{}}},
            {{"operation":"read","count":{},"total_us":{}}}]}}"#,
            writes.0, writes.1, reads.0, reads.1
        );
        Sample { at: Duration::from_secs(secs), numbers: read(&text).expect("JSON") }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = sample(10, 1000, 3000, (5, 100), (7, 700));
        let now = sample(12, 3000, 6000, (15, 400), (7, 800));
        let rates = Rates::between(&before, &now);
        assert_eq!((rates.user_bytes, rates.device_bytes), (1000.0, 1500.0));
        assert_eq!(rates.amplification, Some(1.5));
        let of = |at: usize| (rates.operations[at].rate, rates.operations[at].busy_share);
        assert_eq!((of(0), of(1)), ((5.0, 0.75), (0.0, 0.25)));
        // A mount that has begun anew counts from zero.
        let rates = Rates::between(&now, &before);
        assert_eq!((rates.user_bytes, rates.amplification), (0.0, None));
        assert_eq!(rates.operations[0].busy_share, 0.0);
    }
}
