//! The comparison of the SFS paper's section 4.4: filesystems under the same overwriting, on the
//! same models.
//!
//! Owns: running one filesystem, and what its requests cost on a model.
//! Promises: a model sees exactly the requests that the filesystem sent, one after the other, on a
//! device that was full before.
//! Never: prints.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_ssd::{
    Completion, HostRequest, RequestKind, RequestQueue, Ssd, SsdConfig, SsdCounters, SsdProfile,
};

use crate::block_trace::{BlockTrace, Record};
use crate::host::{Disk, DiskRequest, Filesystem, Phases, Utilization, overwrite};
use crate::workload::{Operation, Source};

const BLOCK: u64 = 4096;

/// Blocks of a recorded trace that stay together when it is thinned out.
const TRACE_RUN: u32 = 64;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Bytes of the device.
    pub size: u64,
    /// Blocks that are overwritten, over all of the device.
    pub working_set: f64,
    /// Overwrites before counting, in working sets.
    pub warm_up: f64,
    /// Overwrites that count, in working sets.
    pub measured: f64,
    /// Seed of the generators.
    pub seed: u64,
}

/// What a filesystem sent, and which part of it counts.
pub struct Recording {
    trace: BlockTrace,
    phases: Phases,
}

/// What that came to on a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OnModel {
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// What was counted.
    pub counters: SsdCounters,
    /// Bytes programmed over bytes that came to the device.
    pub flash_amplification: f64,
    /// Virtual time, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Comparison {
    fn space(&self, utilization: f64) -> Utilization {
        let blocks = |share: f64| (self.size as f64 / BLOCK as f64 * share) as u32;
        let working = blocks(self.working_set);
        let writes = |share: f64| (f64::from(working) * share) as u64;
        Utilization {
            cold_blocks: blocks((utilization - self.working_set).max(0.0)),
            working_blocks: working,
            warm_up: writes(self.warm_up),
            measured: writes(self.measured),
        }
    }

    /// Overwrites of one run, warming up included.
    pub fn writes(&self) -> u64 {
        let space = self.space(1.0);
        space.warm_up + space.measured
    }

    /// Runs `filesystem` under `source` on a device that is `utilization` full of data.
    ///
    /// # Errors
    ///
    /// If the disk, the filesystem or the job does not work.
    pub fn record(
        &self,
        lab: &Path,
        filesystem: &Filesystem,
        source: &Source,
        utilization: f64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Recording> {
        let space = self.space(utilization);
        let disk = Disk::start(lab, &DiskRequest { profile: "fast12", size: self.size })?;
        filesystem.make(disk.device())?;
        let mounted = filesystem.mount(disk.device(), disk.folder())?;
        let mut next = stream(source, space.working_blocks, self.seed);
        let phases = overwrite(mounted.dir(), &disk, &space, &mut next, progress)?;
        mounted.unmount()?;
        Ok(Recording { trace: disk.finish()?, phases })
    }
}

/// The writes of `source` over so many blocks. Of a recorded trace every so many-th run of blocks is
/// taken, so that its working set is as large.
fn stream(source: &Source, blocks: u32, seed: u64) -> impl FnMut() -> Operation {
    let every = source.block_count().map_or(1, |count| count.div_ceil(blocks).max(1));
    let mut operations = source.stream(blocks, seed);
    move || loop {
        let operation = operations.next();
        let (run, offset) = (operation.block() / TRACE_RUN, operation.block() % TRACE_RUN);
        let block = run / every * TRACE_RUN + offset;
        if !operation.is_delete() && run.is_multiple_of(every) && block < blocks {
            return Operation::write(block);
        }
    }
}

impl Recording {
    /// The requests `from..to` of a trace; what the user wrote is not known.
    pub fn of(trace: BlockTrace, from: u64, to: u64) -> Recording {
        Recording { trace, phases: Phases { from, to, ..Phases::default() } }
    }

    /// Whether the filesystem ran out of space before the end.
    pub fn is_full(&self) -> bool {
        self.phases.is_full
    }

    /// Bytes that the user wrote.
    pub fn user_bytes(&self) -> u64 {
        self.phases.written * BLOCK
    }

    /// The requests that count.
    pub fn counted(&self) -> &[Record] {
        &self.trace.records[self.phases.from as usize..self.phases.to as usize]
    }

    /// Replays it on a model that was full before.
    ///
    /// # Errors
    ///
    /// If the model cannot be built.
    pub fn on(&self, config: &SsdConfig) -> Result<OnModel> {
        self.on_each(config, |_, _| ())
    }

    /// As [`Recording::on`]; `each` is told of every request that counts.
    ///
    /// # Errors
    ///
    /// If the model cannot be built.
    pub fn on_each(
        &self,
        config: &SsdConfig,
        mut each: impl FnMut(&HostRequest, Completion),
    ) -> Result<OnModel> {
        let mut ssd = Ssd::new(config).context("too few spare blocks")?;
        let capacity = ssd.capacity();
        let fill = (0..capacity.div_ceil(1 << 20)).map(|no| {
            let offset = no << 20;
            HostRequest::new(RequestKind::Write, offset, (capacity - offset).min(1 << 20))
        });
        let queue = RequestQueue::SYNCHRONOUS;
        let requests = |records: &[Record]| -> Vec<HostRequest> {
            records.iter().map(Record::request).collect()
        };
        let filled_ns = queue.run(&mut ssd, 0, fill, |_, _| {});
        let before = requests(&self.trace.records[..self.phases.from as usize]);
        let begun_ns = queue.run(&mut ssd, filled_ns, before, |_, _| {});
        ssd.reset_counters();
        let ended_ns =
            queue.run(&mut ssd, begun_ns, requests(self.counted()), |request, completion| {
                each(request, completion);
            });
        Ok(OnModel {
            user_bytes: self.user_bytes(),
            counters: *ssd.counters(),
            flash_amplification: ssd.write_amplification(),
            elapsed_ns: ended_ns - begun_ns,
        })
    }
}

impl OnModel {
    /// Bytes that came to the device over bytes that the user wrote.
    pub fn log_amplification(&self) -> f64 {
        self.counters.host_bytes_written as f64 / (self.user_bytes as f64).max(1.0)
    }

    /// Bytes that the user wrote in a second of device time, in MB/s.
    pub fn user_mb_per_s(&self) -> f64 {
        self.user_bytes as f64 * 1e3 / (self.elapsed_ns as f64).max(1.0)
    }

    /// Erases for each GiB that the user wrote.
    pub fn erases_per_gib(&self) -> f64 {
        self.counters.erases as f64 * f64::from(1 << 30) / (self.user_bytes as f64).max(1.0)
    }
}

/// A profile whose capacity and erase blocks are smaller: as many times the latter as its flash
/// blocks have pages to spare for it.
pub fn scaled(profile: SsdProfile, capacity: u64, erase_block_divisor: u32) -> SsdProfile {
    let flash_pages = (profile.geometry.flash_pages / erase_block_divisor).max(1);
    let geometry = sfs_ssd::FlashGeometry { flash_pages, ..profile.geometry };
    SsdProfile { geometry, ..profile }.with_capacity(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        let write = |no: u64| Record {
            at_us: 0,
            kind: RequestKind::Write,
            offset: no * 524_288 % (8 << 20),
            len: 524_288,
            stream: 0,
        };
        let phases = Phases { from: 16, to: 32, written: 2048, is_full: false };
        Recording { trace: BlockTrace { records: (0..32).map(write).collect() }, phases }
    }

    #[test]
    fn whole_erase_blocks_cost_nothing_more() {
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
    fn scaling_keeps_the_proportions() {
        let profile = SsdProfile::by_name("ssd-m").expect("a profile");
        let small = scaled(profile.clone(), 1 << 30, 16);
        assert_eq!(small.geometry.cluster_size(), 2 << 20);
        assert_eq!(small.timing, profile.timing);
    }
}
