//! Random direct reads of 4 KiB of a file, first of each block once, then of blocks that were read before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sfs_device::{BLOCK_SIZE, Block};

use crate::random::WorkloadRng;

/// Name of the file.
const NAME: &str = "read-at-random";

/// Number of blocks of a write, and of reads between two looks for a signal.
const TURN_BLOCKS: usize = 256;

/// The file and its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomReads {
    /// Number of blocks of the file.
    pub blocks: u32,
    /// Number of reads of [`RandomReads::read_again`].
    pub count: u32,
}

impl RandomReads {
    /// Writes the file in order, and syncs it.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let file = File::create_new(dir.join(NAME))?;
        let mut blocks = Block::zeroed(TURN_BLOCKS);
        for first in (0..self.blocks).step_by(TURN_BLOCKS) {
            let count = blocks.len().min((self.blocks - first) as usize);
            for (no, block) in (first..).zip(&mut blocks[..count]) {
                block.0[..4].copy_from_slice(&no.to_le_bytes());
            }
            let offset = u64::from(first) * BLOCK_SIZE as u64;
            file.write_all_at(Block::bytes_of(&blocks[..count]), offset)?;
        }
        Ok(file.sync_all()?)
    }

    /// Reads each block of the file once, in random order.
    pub fn read_each(&self, dir: &Path, check: &dyn Fn() -> Result<()>) -> Result<()> {
        read(dir, &WorkloadRng::new(1).permutation(self.blocks), check)
    }

    /// Reads blocks of the file at random.
    pub fn read_again(&self, dir: &Path, check: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut random = WorkloadRng::new(2);
        let order: Vec<u32> = (0..self.count).map(|_| random.below(self.blocks)).collect();
        read(dir, &order, check)
    }
}

/// Reads these blocks, and verifies that each is the right one.
fn read(dir: &Path, order: &[u32], check: &dyn Fn() -> Result<()>) -> Result<()> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(dir.join(NAME))?;
    let mut block = Block::zeroed(1);
    for turn in order.chunks(TURN_BLOCKS) {
        check()?;
        for no in turn {
            let offset = u64::from(*no) * BLOCK_SIZE as u64;
            file.read_exact_at(Block::bytes_of_mut(&mut block), offset).context("a random read")?;
            ensure!(block[0].0[..4] == no.to_le_bytes(), "block {no} has other content");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_that_were_written_are_read() {
        let folder = tempfile::tempdir().expect("a directory");
        let reads = RandomReads { blocks: 300, count: 50 };
        reads.write(folder.path()).expect("written");
        reads.read_each(folder.path(), &|| Ok(())).expect("read");
        reads.read_again(folder.path(), &|| Ok(())).expect("read");
        let interrupted = || anyhow::bail!("a signal");
        let error = reads.read_again(folder.path(), &interrupted).expect_err("interrupted");
        assert_eq!(error.to_string(), "a signal");
    }
}
