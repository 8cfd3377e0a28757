//! Replays of a block trace on a model: filling, warming up, measuring.

use anyhow::{Result, bail};
use serde::Serialize;
use sfs_ssd::{HostRequest, RequestKind, RequestQueue, Responses, Ssd, SsdConfig, SsdCounters};

use crate::block_trace::BlockTrace;

/// Size of a request that fills the device, in bytes.
const FILL_SIZE: u64 = 1 << 20;

/// The configuration of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashReplay {
    /// The model.
    pub config: SsdConfig,
    /// Scheduling of the requests.
    pub queue: RequestQueue,
    /// `true` if the device is written once, in order, before the trace.
    pub filled: bool,
    /// Number of replays before counting.
    pub warm_up: u32,
    /// Number of replays that are counted.
    pub rounds: u32,
}

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlashOutcome {
    /// Capacity for the host, in bytes.
    pub capacity: u64,
    /// Counters of the model over the counted replays.
    pub counters: SsdCounters,
    /// Bytes programmed over bytes that the host wrote.
    pub write_amplification: f64,
    /// Number of erases of a block since the device was new: minimum, mean, maximum.
    pub erases: (u32, f64, u32),
    /// Virtual time of the counted replays, in nanoseconds.
    pub elapsed_ns: u64,
    /// Response times of reads.
    pub reads: Responses,
    /// Response times of writes.
    pub writes: Responses,
}

impl FlashReplay {
    /// Replays `trace`.
    ///
    /// # Errors
    ///
    /// If the trace reaches past the end of the device, or the model cannot be built.
    pub fn run(&self, trace: &BlockTrace) -> Result<FlashOutcome> {
        let Some(mut ssd) = Ssd::new(&self.config) else {
            bail!("the device has too few spare blocks for its translation layer");
        };
        if trace.end() > ssd.capacity() {
            bail!("the trace needs {} bytes, but the device has {}", trace.end(), ssd.capacity());
        }
        let mut now_ns = 0;
        if self.filled {
            let all = fill(ssd.capacity());
            now_ns = self.queue.run(&mut ssd, 0, all, |_, _| {});
        }
        for _ in 0..self.warm_up {
            now_ns = self.replay(&mut ssd, trace, now_ns, &mut ResponseTimes::default());
        }
        ssd.reset_counters();
        let began_ns = now_ns;
        let mut times = ResponseTimes::default();
        for _ in 0..self.rounds {
            now_ns = self.replay(&mut ssd, trace, now_ns, &mut times);
        }
        Ok(FlashOutcome::new(&ssd, now_ns - began_ns, times))
    }

    /// Replays the trace once from `from_ns` on. Returns the time of the end, in nanoseconds.
    fn replay(
        &self,
        ssd: &mut Ssd,
        trace: &BlockTrace,
        from_ns: u64,
        times: &mut ResponseTimes,
    ) -> u64 {
        let requests = trace.records.iter().map(|record| {
            let request = record.request();
            HostRequest { arrival_ns: request.arrival_ns + from_ns, ..request }
        });
        self.queue.run(ssd, from_ns, requests, |request, completion| match request.kind {
            RequestKind::Read => times.reads.add(completion),
            RequestKind::Write => times.writes.add(completion),
            RequestKind::Trim | RequestKind::Flush => {}
        })
    }
}

#[derive(Default)]
struct ResponseTimes {
    reads: Responses,
    writes: Responses,
}

fn fill(capacity: u64) -> impl Iterator<Item = HostRequest> {
    (0..capacity.div_ceil(FILL_SIZE)).map(move |no| {
        let offset = no * FILL_SIZE;
        HostRequest::new(RequestKind::Write, offset, FILL_SIZE.min(capacity - offset))
    })
}

impl FlashOutcome {
    fn new(ssd: &Ssd, elapsed_ns: u64, times: ResponseTimes) -> FlashOutcome {
        let erases = ssd.flash().erases();
        let sum: u64 = erases.iter().map(|&count| u64::from(count)).sum();
        let (least, most) = (erases.iter().min(), erases.iter().max());
        FlashOutcome {
            capacity: ssd.capacity(),
            counters: *ssd.counters(),
            write_amplification: ssd.write_amplification(),
            erases: (
                least.copied().unwrap_or(0),
                sum as f64 / erases.len() as f64,
                most.copied().unwrap_or(0),
            ),
            elapsed_ns,
            reads: times.reads,
            writes: times.writes,
        }
    }

    /// Returns the throughput of writes in virtual time, in MB/s.
    pub fn write_mb_per_s(&self) -> f64 {
        self.counters.host_bytes_written as f64 * 1e3 / (self.elapsed_ns as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sfs_ssd::SsdProfile;
    use sfs_ssd::ftl::Layer;

    fn replay(layer: Layer) -> FlashReplay {
        let profile = SsdProfile::by_name("fast12").expect("a profile").with_layer(layer);
        FlashReplay {
            config: profile.with_capacity(16 << 20).config(),
            queue: RequestQueue::SYNCHRONOUS,
            filled: true,
            warm_up: 1,
            rounds: 2,
        }
    }

    fn trace(lines: impl Iterator<Item = String>) -> BlockTrace {
        let text: String = ["op,offset,len\n".to_owned()].into_iter().chain(lines).collect();
        BlockTrace::parse(&text).expect("a trace")
    }

    #[test]
    fn only_scattered_pages_are_amplified() {
        let whole = trace((0..32).map(|no| format!("W,{},524288\n", no * 7 % 32 * 524_288)));
        let mut random = crate::random::WorkloadRng::new(1);
        let scattered = trace((0..8192).map(|_| format!("W,{},4096\n", random.below(4096) * 4096)));
        for layer in [Layer::GREEDY, Layer::Fast { log_blocks: 4 }] {
            let outcome = replay(layer).run(&whole).expect("an outcome");
            assert_eq!(outcome.write_amplification, 1.0, "{layer}");
            assert_eq!(outcome.counters.host_bytes_written, 2 * (16 << 20));
            let outcome = replay(layer).run(&scattered).expect("an outcome");
            assert!(outcome.write_amplification > 1.1, "{layer}: {outcome:?}");
            assert_eq!(outcome.writes.count, 2 * 8192);
        }
    }

    #[test]
    fn a_trace_that_is_too_large_is_an_error() {
        let past = trace(["W,16777216,512\n".to_owned()].into_iter());
        assert!(replay(Layer::GREEDY).run(&past).is_err());
    }
}
