//! Random direct writes and reads of 4 KiB by several jobs, as the FAST 2009 paper has FIO do (table 6).
//!
//! Owns: the jobs' files, and the order in which their blocks are written.
//! Promises: the same requests on every filesystem; every block of a job is written once, and then read
//! once, in random order, the jobs taking turns, so that the disk sees one request at a time.
//! Never: measures: the disk's record does.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use sfs_device::{BLOCK_SIZE, Block};

use super::Disk;
use crate::random::Random;

/// Blocks that a job writes before it is the next one's turn.
const TURN: usize = 16;

/// The jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// How many.
    pub count: u32,
    /// Bytes of the file of each.
    pub len: u64,
}

impl Job {
    /// Runs them in `dir`, which lies on `disk`, and syncs at the end.
    ///
    /// # Errors
    ///
    /// Whatever the filesystem says.
    pub fn run(&self, dir: &Path, disk: &Disk) -> Result<()> {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let blocks = (self.len / BLOCK_SIZE as u64) as u32;
        let open = |no: u32| -> Result<(File, Vec<u32>)> {
            let path = dir.join(format!("job-{no}"));
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create_new(true).custom_flags(direct).open(path)?;
            Ok((file, Random::new(u64::from(no) + 1).permutation(blocks)))
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

    /// Every block of every job, in turns.
    fn each(
        &self,
        jobs: &[(File, Vec<u32>)],
        disk: &Disk,
        mut serve: impl FnMut(&File, u64) -> Result<()>,
    ) -> Result<()> {
        let blocks = (self.len / BLOCK_SIZE as u64) as usize;
        for turn in (0..blocks).step_by(TURN) {
            disk.check()?;
            for (file, order) in jobs {
                for &no in order[turn..].iter().take(TURN) {
                    serve(file, u64::from(no) * BLOCK_SIZE as u64)?;
                }
            }
        }
        Ok(())
    }
}
