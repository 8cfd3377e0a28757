//! Overwrites of random blocks of one file, each with its sync.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use rustix::fs::fstatvfs;
use sfs_lab::{
    random::WorkloadRng,
    workload::{Workload as _, Zipf},
};
use sfs_testkit::SeededRng;

use crate::tail::{Latencies, Outcome, prepare::write_file};

pub(super) const BLOCK_LEN: usize = 4096;

/// Exponent of Zipf's law.
const THETA: f64 = 0.99;

/// Number of overwrites between two syncs while a file ages.
const AGEING_SYNC_WRITES: u64 = 32;

/// Distribution of the overwritten blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Zipf's law with the exponent 0.99.
    Zipf,
    /// Every block with the same probability.
    Uniform,
}

/// Fills `percent` of the space for files with one file, `path`.
///
/// # Errors
///
/// If the file does not fit.
pub fn fill(path: &Path, percent: u64, seed: u64) -> Result<()> {
    let parent = File::open(path.parent().context("a directory")?)?;
    let space = fstatvfs(&parent)?;
    let mib = (space.f_blocks * space.f_frsize * percent / 100) >> 20;
    write_file(path, mib, &mut SeededRng::new(seed))?;
    File::open(path)?.sync_all().context("syncing the file")
}

/// A file that is overwritten at random.
pub struct Overwriting {
    file: File,
    choose: Box<dyn FnMut() -> u64>,
    bytes: Vec<u8>,
}

impl Overwriting {
    /// Opens the file. The first `skipped` choices of the seed are left out.
    ///
    /// # Errors
    ///
    /// If the file is absent or empty.
    pub fn open(path: &Path, choice: Choice, seed: u64, skipped: u64) -> Result<Self> {
        let file = File::options().write(true).open(path)?;
        let blocks = u32::try_from(file.metadata()?.len() / BLOCK_LEN as u64)?;
        ensure!(blocks > 0, "{}: the file is empty", path.display());
        let mut random = SeededRng::new(seed);
        let bytes = random.bytes(BLOCK_LEN);
        let mut choose: Box<dyn FnMut() -> u64> = match choice {
            Choice::Zipf => {
                let mut zipf = Zipf::new(THETA, blocks, WorkloadRng::new(seed));
                Box::new(move || u64::from(zipf.next().block()))
            }
            Choice::Uniform => Box::new(move || random.below(u64::from(blocks))),
        };
        (0..skipped).for_each(|_| {
            choose();
        });
        Ok(Self { file, choose, bytes })
    }

    /// Overwrites `mib` MiB with a sync after every `AGEING_SYNC_WRITES` blocks, untimed.
    ///
    /// # Errors
    ///
    /// If the filesystem refuses a request.
    pub fn age(&mut self, mib: u64) -> Result<()> {
        for no in 0..(mib << 20) / BLOCK_LEN as u64 {
            self.write()?;
            if no % AGEING_SYNC_WRITES == AGEING_SYNC_WRITES - 1 {
                self.file.sync_all()?;
            }
        }
        self.file.sync_all().context("syncing the file")
    }

    /// Overwrites and syncs one block at a time, at most `requests` of them and for at most `time`.
    ///
    /// # Errors
    ///
    /// If the filesystem refuses a request.
    pub fn measure(&mut self, requests: u64, time: Duration) -> Result<Outcome> {
        let mut latencies = Latencies::default();
        let start = Instant::now();
        let mut rounds = 0;
        while rounds < requests && start.elapsed() < time {
            latencies.time(|| self.write_and_sync())?;
            rounds += 1;
        }
        let secs = start.elapsed().as_secs_f64();
        let calls = latencies.summary().map(|call| ("write and fsync", call)).into_iter().collect();
        Ok(Outcome { rounds, secs, calls, ..Outcome::default() })
    }

    /// Returns the offset of the next block, in bytes.
    pub(super) fn next_offset(&mut self) -> u64 {
        (self.choose)() * BLOCK_LEN as u64
    }

    fn write(&mut self) -> Result<()> {
        let offset = self.next_offset();
        self.file.write_all_at(&self.bytes, offset).context("overwriting")
    }

    fn write_and_sync(&mut self) -> Result<()> {
        self.write()?;
        self.file.sync_all().context("fsync")
    }
}
