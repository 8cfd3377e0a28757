//! The job of the SFS paper's section 4: cold data that is written once, and a working set that is
//! overwritten block by block.
//!
//! Writes and syncs are the same on every filesystem. The job reports the range of the disk's record in
//! which its overwrites are counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use sfs_device::{BLOCK_SIZE, Block};

use super::disk::Disk;
use crate::workload::BlockOperation;

/// Size of a write of cold data, in bytes.
const COLD_WRITE_BYTES: usize = 1 << 20;

/// Number of writes between two fsyncs.
const SYNC_WRITES: u64 = 1024;

/// Sizes of the job, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobSize {
    /// Number of blocks that are written once.
    pub cold_blocks: u32,
    /// Number of blocks that are written once, in order and with direct I/O, and then overwritten.
    pub working_blocks: u32,
    /// Number of overwrites before counting.
    pub warm_up: u64,
    /// Number of overwrites that are counted.
    pub measured: u64,
}

/// The range of the record that is counted, and the number of blocks written in this range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobPhases {
    /// Index of the first request that is counted.
    pub from: u64,
    /// Index after the last request that is counted.
    pub to: u64,
    /// Number of overwrites that were counted.
    pub written: u64,
    /// `true` if the filesystem ran out of space before the end.
    pub is_full: bool,
}

/// Runs the job in `dir`, which is on `disk`. `next` returns the next block to overwrite.
/// `progress` is called with the number of overwrites so far.
///
/// # Errors
///
/// If the filesystem returns an error, other than a lack of space during the overwrites.
pub fn overwrite(
    dir: &Path,
    disk: &Disk,
    space: &JobSize,
    next: &mut dyn FnMut() -> BlockOperation,
    progress: &mut dyn FnMut(u64),
) -> Result<JobPhases> {
    fill_cold(&dir.join("cold"), space.cold_blocks).context("writing cold data")?;
    let path = dir.join("working");
    fill_working(&path, space.working_blocks).context("writing the working set")?;
    sync(dir)?;
    let file = OpenOptions::new().write(true).open(&path)?;
    let mut run = OverwritingRun { file, next, written: 0 };
    let is_full = !run.overwrite(space.warm_up, disk, progress)?;
    sync(dir)?;
    let from = disk.status()?.recorded;
    let mut phases = JobPhases { from, is_full, ..JobPhases::default() };
    if !phases.is_full {
        phases.is_full = !run.overwrite(space.measured, disk, progress)?;
        // Writes that the filesystem still delays belong to the job.
        sync(dir)?;
    }
    phases.written = run.written.saturating_sub(space.warm_up);
    phases.to = disk.status()?.recorded;
    Ok(phases)
}

/// Syncs this filesystem alone: other filesystems of the machine do not belong to the job.
fn sync(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

fn fill_cold(path: &Path, blocks: u32) -> io::Result<()> {
    let mut file = File::create(path)?;
    let bytes = vec![0xC0; COLD_WRITE_BYTES];
    let mut left = u64::from(blocks) * BLOCK_SIZE as u64;
    while left > 0 {
        let len = left.min(COLD_WRITE_BYTES as u64);
        file.write_all(&bytes[..len as usize])?;
        left -= len;
    }
    file.sync_all()
}

/// Writes the working set block by block, because a copy-on-write filesystem keeps a large extent
/// as long as any block of the extent is live.
fn fill_working(path: &Path, blocks: u32) -> io::Result<()> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).create(true).custom_flags(direct).open(path)?;
    let block = Block::zeroed(1);
    for no in 0..u64::from(blocks) {
        file.write_all_at(Block::bytes_of(&block), no * BLOCK_SIZE as u64)?;
    }
    file.sync_all()
}

/// The phase of overwriting.
struct OverwritingRun<'a> {
    file: File,
    next: &'a mut dyn FnMut() -> BlockOperation,
    written: u64,
}

impl OverwritingRun<'_> {
    /// Overwrites `count` blocks. Returns whether there was room for all of them.
    fn overwrite(
        &mut self,
        count: u64,
        disk: &Disk,
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool> {
        let end = self.written + count;
        while self.written < end {
            disk.check()?;
            let window = SYNC_WRITES.min(end - self.written);
            match self.window(window) {
                Ok(()) => self.written += window,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(false),
                Err(error) => return Err(error).context("overwriting"),
            }
            progress(self.written);
        }
        Ok(true)
    }

    /// Overwrites `count` blocks, and syncs the file.
    fn window(&mut self, count: u64) -> io::Result<()> {
        let bytes = [self.written as u8 | 1; BLOCK_SIZE];
        for _ in 0..count {
            let block = u64::from((self.next)().block());
            self.file.write_all_at(&bytes, block * BLOCK_SIZE as u64)?;
        }
        self.file.sync_all()
    }
}
