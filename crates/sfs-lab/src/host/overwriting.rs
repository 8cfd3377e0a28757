//! The job of the SFS paper's section 4: cold data that is written once, and a working set that is
//! overwritten, block by block.
//!
//! Owns: its phases, and where in the disk's record each begins.
//! Promises: the same writes and syncs on every filesystem, whatever it makes of them.
//! Never: reads what it wrote.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use sfs_device::{BLOCK_SIZE, Block};

use super::Disk;
use crate::workload::Operation;

/// Bytes of a write of cold data.
const COLD_WRITE: usize = 1 << 20;

/// Writes between two fsyncs.
const SYNC_WRITES: u64 = 1024;

/// How full the device is, and how much is written. All in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilization {
    /// Written once.
    pub cold_blocks: u32,
    /// Written once, in order and directly, and then overwritten.
    pub working_blocks: u32,
    /// Overwrites before counting.
    pub warm_up: u64,
    /// Overwrites that count.
    pub measured: u64,
}

/// Where in the record the phases begin and end, and how much was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Request with which counting begins.
    pub from: u64,
    /// Request after the last that counts.
    pub to: u64,
    /// Overwrites that count.
    pub written: u64,
    /// The filesystem ran out of space before the end.
    pub is_full: bool,
}

/// Runs the job in `dir`, which lies on `disk`. `next` says which block comes next.
///
/// # Errors
///
/// Whatever the filesystem said, but for a lack of space while it is overwritten.
pub fn overwrite(
    dir: &Path,
    disk: &Disk,
    space: &Utilization,
    next: &mut dyn FnMut() -> Operation,
    progress: &mut dyn FnMut(u64),
) -> Result<Phases> {
    fill_cold(&dir.join("cold"), space.cold_blocks).context("writing cold data")?;
    let path = dir.join("working");
    fill_working(&path, space.working_blocks).context("writing the working set")?;
    sync(dir)?;
    let file = OpenOptions::new().write(true).open(&path)?;
    let mut job = Job { file, next, written: 0 };
    let is_full = !job.overwrite(space.warm_up, disk, progress)?;
    sync(dir)?;
    let from = disk.status()?.recorded;
    let mut phases = Phases { from, is_full, ..Phases::default() };
    if !phases.is_full {
        phases.is_full = !job.overwrite(space.measured, disk, progress)?;
        // What the filesystem still holds back belongs to the job.
        sync(dir)?;
    }
    phases.written = job.written.saturating_sub(space.warm_up);
    phases.to = disk.status()?.recorded;
    Ok(phases)
}

/// Of this filesystem alone: others on this machine are not ours.
fn sync(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

fn fill_cold(path: &Path, blocks: u32) -> io::Result<()> {
    let mut file = File::create(path)?;
    let bytes = vec![0xC0; COLD_WRITE];
    let mut left = u64::from(blocks) * BLOCK_SIZE as u64;
    while left > 0 {
        let len = left.min(COLD_WRITE as u64);
        file.write_all(&bytes[..len as usize])?;
        left -= len;
    }
    file.sync_all()
}

/// Block by block: a copy-on-write filesystem keeps an extent as long as any block of it lives.
fn fill_working(path: &Path, blocks: u32) -> io::Result<()> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).create(true).custom_flags(direct).open(path)?;
    let block = Block::zeroed(1);
    for no in 0..u64::from(blocks) {
        file.write_all_at(Block::bytes_of(&block), no * BLOCK_SIZE as u64)?;
    }
    file.sync_all()
}

struct Job<'a> {
    file: File,
    next: &'a mut dyn FnMut() -> Operation,
    written: u64,
}

impl Job<'_> {
    /// Whether there was room for all of it.
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

    fn window(&mut self, count: u64) -> io::Result<()> {
        let bytes = [self.written as u8 | 1; BLOCK_SIZE];
        for _ in 0..count {
            let block = u64::from((self.next)().block());
            self.file.write_all_at(&bytes, block * BLOCK_SIZE as u64)?;
        }
        self.file.sync_all()
    }
}
