//! The overwriting job of the traces `peers/` (`docs/lab/traces.md`), on flash models: what the kernel's filesystems
//! sent to the device, replayed, and SFS itself doing the same job.
//!
//! Owns: the job (its README says what it is), and what is counted of it.
//! Promises: the filling is not counted; the same outcome every time.
//! Never: counts what has not reached the device.

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

/// Bytes of the partition, of the file, and of a write.
const PARTITION: u64 = 1 << 30;
const FILE: u64 = 768 << 20;
const WRITE: usize = 4096;

/// Bytes of a write that fills, and writes between two fsyncs.
const FILL_WRITE: usize = 128 << 10;
const SYNC_WRITES: usize = 1024;

/// When the job begins.
const BEGINNING: i64 = 1_700_000_000;

/// What the random phase came to on a model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Overwriting {
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// What the model counted.
    pub counters: SsdCounters,
    /// Bytes programmed over bytes that came to the device.
    pub flash_amplification: f64,
    /// Virtual time, one request after the other, in nanoseconds.
    pub elapsed_ns: u64,
}

impl Overwriting {
    fn new(user_bytes: u64, ssd: &Ssd, elapsed_ns: u64) -> Overwriting {
        Overwriting {
            user_bytes,
            counters: *ssd.counters(),
            flash_amplification: ssd.write_amplification(),
            elapsed_ns,
        }
    }

    /// Bytes that came to the device over bytes that the user wrote.
    pub fn log_amplification(&self) -> f64 {
        self.counters.host_bytes_written as f64 / self.user_bytes as f64
    }

    /// Bytes programmed over bytes that the user wrote.
    pub fn total_amplification(&self) -> f64 {
        self.log_amplification() * self.flash_amplification
    }

    /// Of something that was counted, how much there was for each GiB that the user wrote.
    pub fn per_gib(&self, count: u64) -> f64 {
        count as f64 * f64::from(1 << 30) / self.user_bytes as f64
    }
}

/// What a filesystem of the kernel sent: `NAME.fill.csv.zst`, `NAME.rand.csv.zst`, `NAME.marks`.
pub struct Peer {
    fill: BlockTrace,
    random: BlockTrace,
    user_bytes: u64,
}

impl Peer {
    /// Reads its files.
    pub fn open(folder: &Path, name: &str, job_bytes: u64) -> Result<Peer> {
        let trace = |phase| BlockTrace::open(&folder.join(format!("{name}.{phase}.csv.zst")));
        let path = folder.join(format!("{name}.marks"));
        let marks = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (fill, random) = (trace("fill")?, trace("rand")?);
        Ok(Peer { fill, random, user_bytes: user_bytes(&marks, job_bytes)? })
    }

    /// Replays it.
    pub fn replay(&self, config: &SsdConfig) -> Result<Overwriting> {
        let mut ssd = Ssd::new(config).context("too few spare blocks")?;
        let requests = |trace: &BlockTrace| trace.records.clone().into_iter().map(|r| r.request());
        let queue = RequestQueue::SYNCHRONOUS;
        let filled_ns = queue.run(&mut ssd, 0, requests(&self.fill), |_, _| {});
        ssd.reset_counters();
        let ended_ns = queue.run(&mut ssd, filled_ns, requests(&self.random), |_, _| {});
        Ok(Overwriting::new(self.user_bytes, &ssd, ended_ns - filled_ns))
    }
}

/// Bytes that the user had written when the trace ended: all of the job if the last mark is -1,
/// else what the last mark says.
fn user_bytes(marks: &str, job_bytes: u64) -> Result<u64> {
    let last = marks.lines().last().and_then(|line| line.split_once(','));
    match last.context("there is no mark")?.1.trim() {
        "-1" => Ok(job_bytes),
        bytes => bytes.parse().with_context(|| format!("a mark of {bytes} bytes")),
    }
}

/// The pages that the job overwrites, in order.
pub fn pages(folder: &Path) -> Result<Vec<u32>> {
    let path = folder.join("zipf.pages.u32.zst");
    let file = fs::File::open(&path).with_context(|| path.display().to_string())?;
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(file)?.read_to_end(&mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// SFS doing the job on segments of so many blocks, with background work whenever it is wanted, and
/// the time of the device.
pub fn sfs(
    config: &SsdConfig,
    options: VolumeOptions,
    segment_blocks: u64,
    pages: &[u32],
) -> Result<Overwriting> {
    let ssd = Ssd::new(config).context("too few spare blocks")?;
    let device = Arc::new(SsdDevice::new(ssd, TimeMode::Virtual, false));
    let layout = Layout::new(PARTITION / WRITE as u64, segment_blocks, 0)?;
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
    let job = Job { volume, device };
    let ino = job.fill()?;
    job.device.with_model(Ssd::reset_counters);
    let filled_ns = job.device.now_ns();
    job.overwrite(ino, pages)?;
    let elapsed_ns = job.device.now_ns() - filled_ns;
    let user_bytes = (pages.len() * WRITE) as u64;
    Ok(job.device.with_model(|ssd| Overwriting::new(user_bytes, ssd, elapsed_ns)))
}

/// The time of the world, which goes on as the device works.
fn now(device: &SsdDevice) -> Timestamp {
    let nanos = device.now_ns();
    let secs = BEGINNING + (nanos / 1_000_000_000) as i64;
    Timestamp { secs, nanos: (nanos % 1_000_000_000) as u32 }
}

struct Job {
    volume: Volume,
    device: Arc<SsdDevice>,
}

impl Job {
    fn caller(&self) -> Caller {
        Caller { uid: 0, gid: 0, now: now(&self.device) }
    }

    fn write(&self, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.volume.write(ino, offset, bytes, WriteMode::default(), &self.caller())?;
        Ok(())
    }

    /// Does what the background thread of a mount would.
    fn work(&self) -> Result<()> {
        while self.volume.work(now(&self.device))? == Work::More {}
        Ok(())
    }

    fn fill(&self) -> Result<u64> {
        let ino = self.volume.make_node(ROOT_INO, b"f", 0o100_644, 0, &self.caller())?.ino;
        let bytes = vec![1; FILL_WRITE];
        for offset in (0..FILE).step_by(FILL_WRITE) {
            self.write(ino, offset, &bytes)?;
            self.work()?;
        }
        self.volume.sync_all()?;
        self.work()?;
        Ok(ino)
    }

    fn overwrite(&self, ino: u64, pages: &[u32]) -> Result<()> {
        let bytes = [2; WRITE];
        for window in pages.chunks(SYNC_WRITES) {
            for &page in window {
                self.write(ino, u64::from(page) * WRITE as u64, &bytes)?;
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
    use crate::random::Random;
    use sfs_ssd::SsdProfile;

    #[test]
    fn marks_say_how_far_the_user_came() {
        assert_eq!(user_bytes("rand_row,user_bytes\n10,4096\n20,-1\n", 99).expect("marks"), 99);
        assert_eq!(user_bytes("rand_row,user_bytes\n10,4096\n20,8192\n", 99).expect("marks"), 8192);
        assert!(user_bytes("rand_row,user_bytes\n", 99).is_err());
    }

    #[test]
    fn what_sfs_sends_is_not_amplified() {
        let profile = SsdProfile::by_name("fast12").expect("a profile").with_capacity(PARTITION);
        let mut random = Random::new(1);
        // Twice as much as is free, so that segments come back.
        let pages: Vec<u32> = (0..120_000).map(|_| random.below(2_000)).collect();
        let outcome =
            sfs(&profile.config(), VolumeOptions::default(), 1024, &pages).expect("an outcome");
        assert_eq!(outcome.user_bytes, 120_000 * 4096);
        assert!(outcome.log_amplification() > 0.5, "{outcome:?}");
        assert!(outcome.flash_amplification < 1.02, "{outcome:?}");
    }
}
