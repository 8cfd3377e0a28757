//! Read requests and bytes at a block device, as the kernel counts them.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

/// Length of a sector in the kernel's counters, in bytes.
const SECTOR_LEN: u64 = 512;

/// Counters of one block device.
pub(super) struct RequestCounter {
    path: PathBuf,
}

/// Reads during a piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

impl RequestCounter {
    /// Returns the counters of the device called `name`, as `loop3`.
    pub(super) fn of(name: &str) -> Self {
        Self { path: PathBuf::from(format!("/sys/block/{name}/stat")) }
    }

    /// Counts the reads during `work`.
    pub(super) fn during(&self, work: impl FnOnce() -> Result<()>) -> Result<Reads> {
        let (requests, sectors) = self.now()?;
        let begin = Instant::now();
        work()?;
        let time = begin.elapsed();
        let (requests_after, sectors_after) = self.now()?;
        Ok(Reads {
            requests: requests_after - requests,
            bytes: (sectors_after - sectors) * SECTOR_LEN,
            time,
        })
    }

    /// Returns the numbers of reads and of sectors read. `Documentation/block/stat.rst` of the kernel defines the file.
    fn now(&self) -> Result<(u64, u64)> {
        let text =
            fs::read_to_string(&self.path).with_context(|| format!("{}", self.path.display()))?;
        let numbers: Vec<u64> =
            text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match numbers[..] {
            [reads, _, sectors, ..] => Ok((reads, sectors)),
            _ => anyhow::bail!("{}: {text}", self.path.display()),
        }
    }
}
