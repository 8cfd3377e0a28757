//! The comparison of the SFS paper's section 4.4: filesystems under the same overwriting job, on the
//! same models.
//!
//! A filesystem runs once, on an exported disk that records its requests. Each model then serves
//! exactly these requests, one after the other, on a device that was full before.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_ssd::{
    Completion, HostRequest, RequestKind, RequestQueue, Ssd, SsdConfig, SsdCounters, SsdProfile,
};

use crate::block_trace::{BlockTrace, TraceRecord};
use crate::host::{Disk, DiskRequest, Filesystem, JobPhases, JobSize, overwrite};
use crate::workload::{BlockOperation, Source};

const BLOCK: u64 = 4096;

/// Blocks of a recorded trace that stay together when the trace is thinned out.
const TRACE_RUN: u32 = 64;

/// The configuration of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Size of the device, in bytes.
    pub size: u64,
    /// Part of the device's blocks that is overwritten, 0..1.
    pub working_set: f64,
    /// Number of overwrites before counting, in multiples of the working set.
    pub warm_up: f64,
    /// Number of overwrites that are counted, in multiples of the working set.
    pub measured: f64,
    /// Seed of the generators.
    pub seed: u64,
}

/// The requests that a filesystem sent, and the range of them that is counted.
pub struct RecordedRequests {
    trace: BlockTrace,
    phases: JobPhases,
}

/// The outcome of recorded requests on a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModelOutcome {
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// Counters of the model.
    pub counters: SsdCounters,
    /// Bytes programmed over bytes written to the device.
    pub flash_amplification: f64,
    /// Virtual time, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Comparison {
    fn space(&self, utilization: f64) -> JobSize {
        let blocks = |share: f64| (self.size as f64 / BLOCK as f64 * share) as u32;
        let working = blocks(self.working_set);
        let writes = |share: f64| (f64::from(working) * share) as u64;
        JobSize {
            cold_blocks: blocks((utilization - self.working_set).max(0.0)),
            working_blocks: working,
            warm_up: writes(self.warm_up),
            measured: writes(self.measured),
        }
    }

    /// Returns the number of overwrites of a run, the warm-up included.
    pub fn writes(&self) -> u64 {
        let space = self.space(1.0);
        space.warm_up + space.measured
    }

    /// Runs `filesystem` under `source` on a device that is filled with data to `utilization`,
    /// 0..1. Returns the requests of the filesystem. `lab` is the path of the program `sfs-lab`.
    ///
    /// # Errors
    ///
    /// If the disk, the filesystem or the job fails.
    pub fn record(
        &self,
        lab: &Path,
        filesystem: &Filesystem,
        source: &Source,
        utilization: f64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<RecordedRequests> {
        let space = self.space(utilization);
        let disk = Disk::start(lab, &DiskRequest { profile: "fast12", size: self.size })?;
        filesystem.make(disk.device())?;
        let mounted = filesystem.mount(disk.device(), disk.folder())?;
        let mut next = stream(source, space.working_blocks, self.seed);
        let phases = overwrite(mounted.dir(), &disk, &space, &mut next, progress)?;
        mounted.unmount()?;
        Ok(RecordedRequests { trace: disk.finish()?, phases })
    }
}

/// Returns the writes of `source` over `blocks` blocks. From a recorded trace with more blocks,
/// only every n-th run of blocks is taken, so that the working set has at most `blocks` blocks.
fn stream(source: &Source, blocks: u32, seed: u64) -> impl FnMut() -> BlockOperation {
    let every = source.block_count().map_or(1, |count| count.div_ceil(blocks).max(1));
    let mut operations = source.stream(blocks, seed);
    move || loop {
        let operation = operations.next();
        let (run, offset) = (operation.block() / TRACE_RUN, operation.block() % TRACE_RUN);
        let block = run / every * TRACE_RUN + offset;
        if !operation.is_delete() && run.is_multiple_of(every) && block < blocks {
            return BlockOperation::write(block);
        }
    }
}

impl RecordedRequests {
    /// Returns the requests of a trace, of which `from..to` are counted. The number of bytes that
    /// the user wrote is unknown and counts as zero.
    pub fn of(trace: BlockTrace, from: u64, to: u64) -> RecordedRequests {
        RecordedRequests { trace, phases: JobPhases { from, to, ..JobPhases::default() } }
    }

    /// Returns whether the filesystem ran out of space before the end.
    pub fn is_full(&self) -> bool {
        self.phases.is_full
    }

    /// Returns the bytes that the user wrote.
    pub fn user_bytes(&self) -> u64 {
        self.phases.written * BLOCK
    }

    /// Returns the requests that are counted.
    pub fn counted(&self) -> &[TraceRecord] {
        &self.trace.records[self.phases.from as usize..self.phases.to as usize]
    }

    /// Replays the requests on a model that was full before.
    ///
    /// # Errors
    ///
    /// If the model cannot be built.
    pub fn on(&self, config: &SsdConfig) -> Result<ModelOutcome> {
        self.on_each(config, |_, _| ())
    }

    /// Replays the requests as [`RecordedRequests::on`] does, and calls `each` for every counted
    /// request.
    ///
    /// # Errors
    ///
    /// If the model cannot be built.
    pub fn on_each(
        &self,
        config: &SsdConfig,
        mut each: impl FnMut(&HostRequest, Completion),
    ) -> Result<ModelOutcome> {
        let mut ssd = Ssd::new(config).context("the model has too few spare blocks")?;
        let capacity = ssd.capacity();
        let fill = (0..capacity.div_ceil(1 << 20)).map(|no| {
            let offset = no << 20;
            HostRequest::new(RequestKind::Write, offset, (capacity - offset).min(1 << 20))
        });
        let queue = RequestQueue::SYNCHRONOUS;
        let requests = |records: &[TraceRecord]| -> Vec<HostRequest> {
            records.iter().map(TraceRecord::request).collect()
        };
        let filled_ns = queue.run(&mut ssd, 0, fill, |_, _| {});
        let before = requests(&self.trace.records[..self.phases.from as usize]);
        let begun_ns = queue.run(&mut ssd, filled_ns, before, |_, _| {});
        ssd.reset_counters();
        let ended_ns =
            queue.run(&mut ssd, begun_ns, requests(self.counted()), |request, completion| {
                each(request, completion);
            });
        Ok(ModelOutcome {
            user_bytes: self.user_bytes(),
            counters: *ssd.counters(),
            flash_amplification: ssd.write_amplification(),
            elapsed_ns: ended_ns - begun_ns,
        })
    }
}

impl ModelOutcome {
    /// Returns bytes written to the device over bytes that the user wrote.
    pub fn log_amplification(&self) -> f64 {
        self.counters.host_bytes_written as f64 / (self.user_bytes as f64).max(1.0)
    }

    /// Returns the throughput of the user in device time, in MB/s.
    pub fn user_mb_per_s(&self) -> f64 {
        self.user_bytes as f64 * 1e3 / (self.elapsed_ns as f64).max(1.0)
    }

    /// Returns the number of erases for each GiB that the user wrote.
    pub fn erases_per_gib(&self) -> f64 {
        self.counters.erases as f64 * f64::from(1 << 30) / (self.user_bytes as f64).max(1.0)
    }
}

/// Returns the profile with this capacity, and with the number of pages in an erase block divided
/// by `erase_block_divisor`; an erase block keeps at least one page.
pub fn scaled(profile: SsdProfile, capacity: u64, erase_block_divisor: u32) -> SsdProfile {
    let flash_pages = (profile.geometry.flash_pages / erase_block_divisor).max(1);
    let geometry = sfs_ssd::FlashGeometry { flash_pages, ..profile.geometry };
    SsdProfile { geometry, ..profile }.with_capacity(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> RecordedRequests {
        let write = |no: u64| TraceRecord {
            at_us: 0,
            kind: RequestKind::Write,
            offset: no * 524_288 % (8 << 20),
            len: 524_288,
            stream: 0,
        };
        let phases = JobPhases { from: 16, to: 32, written: 2048, is_full: false };
        RecordedRequests { trace: BlockTrace { records: (0..32).map(write).collect() }, phases }
    }

    #[test]
    fn writes_of_whole_erase_blocks_are_not_amplified() {
        let config =
            SsdProfile::by_name("fast12").expect("a profile").with_capacity(16 << 20).config();
        let outcome = recording().on(&config).expect("an outcome");
        assert_eq!(outcome.flash_amplification, 1.0);
        assert_eq!((outcome.counters.erases, outcome.log_amplification()), (16, 1.0));
        assert_eq!(outcome.erases_per_gib(), 16.0 * 128.0);
    }

    #[test]
    fn a_recorded_trace_is_thinned_out_in_runs() {
        let source = Source::Sequential;
        let mut next = stream(&source, 100, 1);
        let blocks: Vec<u32> = (0..200).map(|_| next().block()).collect();
        assert_eq!(blocks[..100], blocks[100..]);
        assert_eq!(blocks[..100], (0..100).collect::<Vec<u32>>());
    }

    #[test]
    fn scaling_changes_the_erase_block_and_not_the_timing() {
        let profile = SsdProfile::by_name("ssd-m").expect("a profile");
        let small = scaled(profile.clone(), 1 << 30, 16);
        assert_eq!(small.geometry.cluster_size(), 2 << 20);
        assert_eq!(small.timing, profile.timing);
    }
}
