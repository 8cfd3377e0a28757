//! Random direct writes and reads of 4 KiB by several jobs, like those of FIO in the FAST 2009 paper
//! (table 6).
//!
//! Every job writes each block of its file once, in random order, and then reads each block once.
//! The jobs take turns, so that the disk serves one request at a time. The requests are the same on
//! every filesystem.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use sfs_device::{BLOCK_SIZE, Block};

use super::disk::Disk;
use crate::random::WorkloadRng;

/// Number of blocks that a job writes or reads in its turn.
const TURN_BLOCKS: usize = 16;

/// The jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomAccessJobs {
    /// Number of jobs.
    pub count: u32,
    /// Size of each job's file, in bytes.
    pub len: u64,
}

impl RandomAccessJobs {
    /// Runs the jobs in `dir`, which is on `disk`. Syncs after the writes.
    ///
    /// # Errors
    ///
    /// If the filesystem returns an error, or this process receives a signal to end.
    pub fn run(&self, dir: &Path, disk: &Disk) -> Result<()> {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let blocks = (self.len / BLOCK_SIZE as u64) as u32;
        let open = |no: u32| -> Result<(File, Vec<u32>)> {
            let path = dir.join(format!("job-{no}"));
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create_new(true).custom_flags(direct).open(path)?;
            Ok((file, WorkloadRng::new(u64::from(no) + 1).permutation(blocks)))
        };
        let jobs: Vec<_> = (0..self.count).map(open).collect::<Result<_>>()?;
        let mut block = Block::zeroed(1);
        self.each(&jobs, disk, |file, offset| {
            file.write_all_at(Block::bytes_of(&block), offset).context("a random write")
        })?;
        for (file, _) in &jobs {
            file.sync_all()?;
        }
        rustix::fs::syncfs(File::open(dir)?)?;
        self.each(&jobs, disk, |file, offset| {
            file.read_exact_at(Block::bytes_of_mut(&mut block), offset).context("a random read")
        })
    }

    /// Calls `serve` for every block of every job, in turns.
    fn each(
        &self,
        jobs: &[(File, Vec<u32>)],
        disk: &Disk,
        mut serve: impl FnMut(&File, u64) -> Result<()>,
    ) -> Result<()> {
        let blocks = (self.len / BLOCK_SIZE as u64) as usize;
        for turn in (0..blocks).step_by(TURN_BLOCKS) {
            disk.check()?;
            for (file, order) in jobs {
                for &no in order[turn..].iter().take(TURN_BLOCKS) {
                    serve(file, u64::from(no) * BLOCK_SIZE as u64)?;
                }
            }
        }
        Ok(())
    }
}
