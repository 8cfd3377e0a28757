//! The overwriting job of the traces `peers/` (`docs/lab/traces.md`) on flash models.
//!
//! The requests of the kernel's filesystems are replayed from their traces; SFS runs the job itself, on a
//! model. Only the random phase is counted, and only requests that reached the device.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_core::format::{Label, Layout, ROOT_INO, Superblock, Timestamp};
use sfs_core::request::{Caller, VolumeOptions, Work, WriteMode};
use sfs_core::{Volume, root_directory};
use sfs_ssd::{RequestQueue, Ssd, SsdConfig, SsdCounters, SsdDevice, TimeMode};

use crate::block_trace::BlockTrace;
use crate::in_memory::ReadingCounts;

/// Size of the partition, in bytes.
const PARTITION_BYTES: u64 = 1 << 30;

/// Size of the file, in bytes.
pub(super) const FILE_BYTES: u64 = 768 << 20;

/// Size of a write of the random phase, in bytes.
const WRITE_BYTES: usize = 4096;

/// Size of a write of the fill phase, in bytes.
const FILL_WRITE_BYTES: usize = 128 << 10;

/// Number of writes between two fsyncs.
pub(super) const SYNC_WRITES: usize = 1024;

/// Start of the job, in seconds since 1970.
const START_SECS: i64 = 1_700_000_000;

/// The outcome of the random phase on a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JobOnFlash {
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// Counters of the model.
    pub counters: SsdCounters,
    /// Bytes programmed over bytes written to the device.
    pub flash_amplification: f64,
    /// Virtual time in nanoseconds, one request after the other.
    pub elapsed_ns: u64,
}

impl JobOnFlash {
    fn new(user_bytes: u64, ssd: &Ssd, elapsed_ns: u64) -> JobOnFlash {
        JobOnFlash {
            user_bytes,
            counters: *ssd.counters(),
            flash_amplification: ssd.write_amplification(),
            elapsed_ns,
        }
    }

    /// Returns bytes written to the device over bytes that the user wrote.
    pub fn log_amplification(&self) -> f64 {
        self.counters.host_bytes_written as f64 / self.user_bytes as f64
    }

    /// Returns bytes programmed over bytes that the user wrote.
    pub fn total_amplification(&self) -> f64 {
        self.log_amplification() * self.flash_amplification
    }

    /// Returns `count` for each GiB that the user wrote.
    pub fn per_gib(&self, count: u64) -> f64 {
        count as f64 * f64::from(1 << 30) / self.user_bytes as f64
    }
}

/// The requests of a filesystem of the kernel: `NAME.fill.csv.zst`, `NAME.rand.csv.zst`, `NAME.marks`.
pub struct RecordedFilesystem {
    fill: BlockTrace,
    random: BlockTrace,
    user_bytes: u64,
}

impl RecordedFilesystem {
    /// Reads the three files of `name` in `folder`. The user writes `job_bytes` in the whole job.
    pub fn open(folder: &Path, name: &str, job_bytes: u64) -> Result<RecordedFilesystem> {
        let trace = |phase| BlockTrace::open(&folder.join(format!("{name}.{phase}.csv.zst")));
        let path = folder.join(format!("{name}.marks"));
        let marks = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (fill, random) = (trace("fill")?, trace("rand")?);
        Ok(RecordedFilesystem { fill, random, user_bytes: user_bytes(&marks, job_bytes)? })
    }

    /// Returns the requests of the random phase.
    pub fn random_phase(&self) -> &BlockTrace {
        &self.random
    }

    /// Replays the job on a new model.
    pub fn replay(&self, config: &SsdConfig) -> Result<JobOnFlash> {
        let mut ssd = Ssd::new(config).context("the model has too few spare blocks")?;
        let requests = |trace: &BlockTrace| trace.records.clone().into_iter().map(|r| r.request());
        let queue = RequestQueue::SYNCHRONOUS;
        let filled_ns = queue.run(&mut ssd, 0, requests(&self.fill), |_, _| {});
        ssd.reset_counters();
        let ended_ns = queue.run(&mut ssd, filled_ns, requests(&self.random), |_, _| {});
        Ok(JobOnFlash::new(self.user_bytes, &ssd, ended_ns - filled_ns))
    }
}

/// Returns the bytes that the user had written when the trace ended: all of the job if the last mark
/// is -1, otherwise the last mark.
fn user_bytes(marks: &str, job_bytes: u64) -> Result<u64> {
    let last = marks.lines().last().and_then(|line| line.split_once(','));
    match last.context("the marks file has no marks")?.1.trim() {
        "-1" => Ok(job_bytes),
        bytes => bytes.parse().with_context(|| format!("the last mark is not a number: {bytes}")),
    }
}

/// Reads the pages that the job overwrites, in order.
pub fn pages(folder: &Path) -> Result<Vec<u32>> {
    let path = folder.join("zipf.pages.u32.zst");
    let file = fs::File::open(&path).with_context(|| path.display().to_string())?;
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(file)?.read_to_end(&mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// Runs the job on SFS with segments of `segment_blocks`. All pending background work runs after
/// each write of the fill and after each fsync. The clock is that of the device.
pub fn sfs(
    config: &SsdConfig,
    options: VolumeOptions,
    segment_blocks: u64,
    pages: &[u32],
) -> Result<JobOnFlash> {
    let (run, ino) = SfsRun::filled(config, options, segment_blocks)?;
    run.device.with_model(Ssd::reset_counters);
    let filled_ns = run.device.now_ns();
    run.overwrite(ino, pages)?;
    let elapsed_ns = run.device.now_ns() - filled_ns;
    let user_bytes = (pages.len() * WRITE_BYTES) as u64;
    Ok(run.device.with_model(|ssd| JobOnFlash::new(user_bytes, ssd, elapsed_ns)))
}

/// Runs the job as [`sfs`] does; returns the figures of reading the file afterwards.
pub fn sfs_reading(
    config: &SsdConfig,
    options: VolumeOptions,
    segment_blocks: u64,
    pages: &[u32],
) -> Result<ReadingCounts> {
    let (run, ino) = SfsRun::filled(config, options, segment_blocks)?;
    run.overwrite(ino, pages)?;
    ReadingCounts::of(&run.volume, ino)
}

/// Makes and opens a volume on a new model.
fn new_volume(
    config: &SsdConfig,
    options: VolumeOptions,
    segment_blocks: u64,
) -> Result<(Volume, Arc<SsdDevice>)> {
    let ssd = Ssd::new(config).context("the model has too few spare blocks")?;
    let device = Arc::new(SsdDevice::new(ssd, TimeMode::Virtual, false));
    let layout = Layout::new(PARTITION_BYTES / WRITE_BYTES as u64, segment_blocks, 0)?;
    let superblock = Superblock {
        uuid: *b"the peers' job..",
        label: Label::NONE,
        layout,
        hash_key: [1, 2],
        data_layout: Default::default(),
        created: now(&device),
        ..Superblock::new(layout)
    };
    sfs_core::make(device.clone(), &superblock, &root_directory(0, 0, now(&device)))?;
    let volume = Volume::open(device.clone(), options, now(&device))?;
    Ok((volume, device))
}

/// Returns the time of day, which advances with the virtual time of the device.
fn now(device: &SsdDevice) -> Timestamp {
    let nanos = device.now_ns();
    let secs = START_SECS + (nanos / 1_000_000_000) as i64;
    Timestamp { secs, nanos: (nanos % 1_000_000_000) as u32 }
}

/// SFS on a model, under the job.
struct SfsRun {
    volume: Volume,
    device: Arc<SsdDevice>,
}

impl SfsRun {
    /// Makes a volume and its file; returns the number of the file, too.
    fn filled(
        config: &SsdConfig,
        options: VolumeOptions,
        segment_blocks: u64,
    ) -> Result<(Self, u64)> {
        let (volume, device) = new_volume(config, options, segment_blocks)?;
        let run = Self { volume, device };
        let ino = run.fill()?;
        Ok((run, ino))
    }

    fn caller(&self) -> Caller {
        Caller { uid: 0, gid: 0, now: now(&self.device), umask: None }
    }

    fn write(&self, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.volume.write(ino, offset, bytes, WriteMode::default(), &self.caller())?;
        Ok(())
    }

    /// Does the background work that the thread of a mount would do.
    fn work(&self) -> Result<()> {
        while self.volume.work(now(&self.device))? == Work::More {}
        Ok(())
    }

    fn fill(&self) -> Result<u64> {
        let ino = self.volume.make_node(ROOT_INO, b"f", 0o100_644, 0, &self.caller())?.ino;
        let bytes = vec![1; FILL_WRITE_BYTES];
        for offset in (0..FILE_BYTES).step_by(FILL_WRITE_BYTES) {
            self.write(ino, offset, &bytes)?;
            self.work()?;
        }
        self.volume.sync_all()?;
        self.work()?;
        Ok(ino)
    }

    fn overwrite(&self, ino: u64, pages: &[u32]) -> Result<()> {
        let bytes = [2; WRITE_BYTES];
        for window in pages.chunks(SYNC_WRITES) {
            for &page in window {
                self.write(ino, u64::from(page) * WRITE_BYTES as u64, &bytes)?;
            }
            self.volume.sync_file(ino)?;
            self.work()?;
        }
        self.volume.sync_all()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::WorkloadRng;
    use sfs_ssd::SsdProfile;

    #[test]
    fn the_last_mark_is_the_bytes_of_the_user() {
        assert_eq!(user_bytes("rand_row,user_bytes\n10,4096\n20,-1\n", 99).expect("marks"), 99);
        assert_eq!(user_bytes("rand_row,user_bytes\n10,4096\n20,8192\n", 99).expect("marks"), 8192);
        assert!(user_bytes("rand_row,user_bytes\n", 99).is_err());
    }

    #[test]
    fn flash_does_not_amplify_writes_of_sfs() {
        let profile =
            SsdProfile::by_name("fast12").expect("a profile").with_capacity(PARTITION_BYTES);
        let mut random = WorkloadRng::new(1);
        // About twice the free space, so that segments are reused.
        let pages: Vec<u32> = (0..120_000).map(|_| random.below(2_000)).collect();
        let outcome =
            sfs(&profile.config(), VolumeOptions::default(), 1024, &pages).expect("an outcome");
        assert_eq!(outcome.user_bytes, 120_000 * 4096);
        assert!(outcome.log_amplification() > 0.5, "{outcome:?}");
        assert!(outcome.flash_amplification < 1.02, "{outcome:?}");
    }
}
