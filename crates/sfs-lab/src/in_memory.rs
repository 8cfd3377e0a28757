//! The whole filesystem core on a device in RAM with a clock of its own: one file is overwritten as
//! a workload does, and synced after a fixed number of writes ([`Job`]), or the requests of a mounted volume are
//! repeated ([`TracedJob`]).
//!
//! A run is exact: the same job gives the same counts on every machine, so that two builds can be
//! compared to the byte. The background works between two syncs until nothing is due, as on a
//! machine with idle time, or for a number of steps, as on a busy one; the page cache is a set of
//! blocks that joins rewrites between two syncs.

mod reading;
mod traced_job;

pub use reading::ReadingCounts;
pub use traced_job::{TracedCounts, TracedJob};

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use sfs_core::Volume;
use sfs_core::format::{ROOT_INO, Timestamp};
use sfs_core::request::{Caller, Counters, VolumeOptions, Work};
use sfs_device::BLOCK_SIZE;

use crate::ram_volume::{self, START_SECS, increase};
use crate::workload::{Source, Workload};

/// Size of a write that fills the file, in bytes.
const FILL_BYTES: usize = 1 << 20;

/// A volume, and the writes to its file.
#[derive(Clone, Debug)]
pub struct Job {
    /// Size of the device in bytes.
    pub device_bytes: u64,
    /// Size of a segment in bytes; `None` for the choice of `sfs-mkfs`.
    pub segment_bytes: Option<u64>,
    /// Part of all blocks that `df` shows that the file takes, in 0..1.
    pub full: f64,
    /// Number of writes from one sync to the next.
    pub sync_writes: u64,
    /// Number of overwrites before counting, in sizes of the file.
    pub warm_up: f64,
    /// Number of overwrites that are counted, in sizes of the file.
    pub measure: f64,
    /// Virtual time of a write in nanoseconds.
    pub write_nanos: u64,
    /// Largest number of background steps after a sync: few for a machine that is busy.
    pub background_steps: u32,
    /// `true` if the file is defragmented at the end.
    pub defragments: bool,
    /// Options of the mount.
    pub options: VolumeOptions,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobCounts {
    /// Number of blocks of the file.
    pub live_blocks: u32,
    /// Number of segments of the volume.
    pub segments: u32,
    /// Number of blocks in a segment.
    pub segment_blocks: u32,
    /// Average number of segments that were Clean, Drained or, counted half, Open, at the syncs.
    pub withheld_segments: f64,
    /// Number of bytes that the workload wrote, before the page cache joined rewrites.
    pub written_bytes: u64,
    /// Increase of the volume's counters.
    pub counters: Counters,
    /// Figures of reading the file afterwards.
    pub reading: ReadingCounts,
    /// Bytes that a defragmentation then wrote to the device, and figures of reading the file after it.
    pub defragmented: Option<(u64, ReadingCounts)>,
}

impl Job {
    /// Runs the job with the blocks of `source`.
    ///
    /// # Errors
    ///
    /// If the volume cannot be made or opened, has no room for the file, or fails.
    pub fn run(&self, source: &Source, seed: u64) -> Result<JobCounts> {
        ensure!(source.block_count().is_none(), "choose a generator, not a trace");
        let volume = ram_volume::open(self.device_bytes, self.segment_bytes, &self.options)?;
        let blocks = (volume.space().total_blocks as f64 * self.full) as u64;
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks >= 2);
        let Some(blocks) = blocks else { anyhow::bail!("the volume has no room for a file") };
        let mut run = Run::new(self, volume)?;
        run.fill(blocks)?;
        let mut stream = source.stream(blocks, seed);
        let writes = |files: f64| (f64::from(blocks) * files) as u64;
        run.overwrite(&mut *stream, writes(self.warm_up))?;
        let before = run.volume.counters();
        (run.withheld_sum, run.syncs) = (0.0, 0);
        run.overwrite(&mut *stream, writes(self.measure))?;
        let layout = &run.volume.superblock().layout;
        Ok(JobCounts {
            live_blocks: blocks,
            segments: layout.segment_count,
            segment_blocks: layout.segment_blocks,
            withheld_segments: run.withheld_sum / f64::from(run.syncs.max(1)),
            written_bytes: writes(self.measure) * BLOCK_SIZE as u64,
            counters: increase(run.volume.counters(), before),
            reading: ReadingCounts::of(&run.volume, run.file)?,
            defragmented: if self.defragments { Some(run.defragment()?) } else { None },
        })
    }
}

/// A volume in use.
struct Run<'a> {
    job: &'a Job,
    volume: Volume,
    file: u64,
    /// Virtual time since the start.
    nanos: u64,
    /// Blocks that were written since the last sync.
    page_cache: BTreeSet<u32>,
    /// Number of overwrites since the last sync.
    unsynced_writes: u64,
    /// Sum of [`JobCounts::withheld_segments`] over `syncs`.
    withheld_sum: f64,
    syncs: u32,
}

impl<'a> Run<'a> {
    fn new(job: &'a Job, volume: Volume) -> Result<Self> {
        let now = Timestamp { secs: START_SECS, nanos: 0 };
        let caller = Caller { uid: 0, gid: 0, umask: None, now };
        let file = volume.make_node(ROOT_INO, b"file", 0o100_644, 0, &caller)?.ino;
        Ok(Self {
            job,
            volume,
            file,
            nanos: 0,
            page_cache: BTreeSet::new(),
            unsynced_writes: 0,
            withheld_sum: 0.0,
            syncs: 0,
        })
    }

    fn now(&self) -> Timestamp {
        let secs = START_SECS + (self.nanos / 1_000_000_000) as i64;
        Timestamp { secs, nanos: (self.nanos % 1_000_000_000) as u32 }
    }

    fn fill(&mut self, blocks: u32) -> Result<()> {
        let bytes = vec![1; FILL_BYTES];
        let len = u64::from(blocks) * BLOCK_SIZE as u64;
        let mut offset = 0;
        while offset < len {
            let part = (len - offset).min(FILL_BYTES as u64);
            self.write(offset, &bytes[..part as usize])?;
            offset += part;
            self.work()?;
        }
        self.sync()
    }

    fn overwrite(&mut self, stream: &mut dyn Workload, writes: u64) -> Result<()> {
        for _ in 0..writes {
            let operation = stream.next();
            if operation.is_delete() {
                continue;
            }
            self.page_cache.insert(operation.block());
            self.nanos += self.job.write_nanos;
            self.unsynced_writes += 1;
            if self.unsynced_writes == self.job.sync_writes {
                self.sync()?;
            }
        }
        Ok(())
    }

    /// Writes the page cache back in the order of the blocks, as the kernel does, and syncs the file.
    fn sync(&mut self) -> Result<()> {
        let blocks = std::mem::take(&mut self.page_cache);
        self.unsynced_writes = 0;
        for block in blocks {
            self.write(u64::from(block) * BLOCK_SIZE as u64, &[2; BLOCK_SIZE])?;
        }
        self.volume.sync_file(self.file)?;
        let segments = self.volume.status().segments;
        self.withheld_sum +=
            f64::from(segments.clean + segments.drained) + f64::from(segments.open) / 2.0;
        self.syncs += 1;
        self.work()
    }

    /// Puts the file in order. Returns the bytes written to the device, and the figures of reading the file afterwards.
    fn defragment(&mut self) -> Result<(u64, ReadingCounts)> {
        let before = self.volume.counters().device_bytes_written;
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.volume.defragment(self.file, from, &mut || true)?.next;
            self.work()?;
        }
        let written = self.volume.counters().device_bytes_written - before;
        Ok((written, ReadingCounts::of(&self.volume, self.file)?))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let caller = Caller { uid: 0, gid: 0, umask: None, now: self.now() };
        Ok(self.volume.write(self.file, offset, bytes, Default::default(), &caller)?)
    }

    /// Lets the background work until nothing is due now, or [`Job::background_steps`] are done.
    fn work(&mut self) -> Result<()> {
        for _ in 0..self.job.background_steps {
            if self.volume.work(self.now())? != Work::More {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            device_bytes: 128 << 20,
            segment_bytes: Some(256 << 10),
            full: 0.85,
            sync_writes: 512,
            warm_up: 1.0,
            measure: 1.0,
            write_nanos: 10_000,
            background_steps: u32::MAX,
            defragments: false,
            options: VolumeOptions::default(),
        }
    }

    fn run(job: &Job, seed: u64) -> JobCounts {
        let source = Source::open("zipf:0.99").expect("a workload");
        job.run(&source, seed).expect("the job runs")
    }

    #[test]
    fn a_run_is_exact() {
        let job = Job { device_bytes: 64 << 20, full: 0.8, sync_writes: 64, ..job() };
        let first = run(&job, 1);
        assert_eq!(run(&job, 1), first);
        assert_ne!(run(&job, 2), first);
        let Counters { device_bytes_written, data_bytes, cleaning_bytes, .. } = first.counters;
        assert!(data_bytes <= first.written_bytes, "the page cache joins rewrites");
        assert!(cleaning_bytes > 0 && device_bytes_written > data_bytes + cleaning_bytes);
    }

    /// Writers that clean for themselves write little more than the background would. Regression: they
    /// cleaned less than they wrote, and each shortage wrote 30 % more.
    #[test]
    fn writers_without_a_background_clean_as_well() {
        let bytes = |background_steps| {
            let job = Job { background_steps, ..job() };
            run(&job, 1).counters.device_bytes_written as f64
        };
        let ratio = bytes(0) / bytes(u32::MAX);
        assert!(ratio < 1.15, "{ratio}");
    }

    /// Cleaning gains several segments before it writes a checkpoint. Regression: each gain of a thread that
    /// lacked segments wrote one, 252 in this run.
    #[test]
    fn several_gains_come_before_a_checkpoint() {
        let job = Job {
            device_bytes: 64 << 20,
            segment_bytes: Some(128 << 10),
            full: 0.97,
            background_steps: 0,
            ..job()
        };
        let counters = run(&job, 1).counters;
        assert!(counters.stalls > 100, "{counters:?}");
        assert!(counters.checkpoints < 60, "{counters:?}");
    }
}
