//! `sfs-lab overwrite`: overwrites the blocks of a file as a workload does, on any filesystem.
//!
//! The blocks follow from the workload, the size of the file and the seed. A run that skips the writes of
//! an earlier run continues with the same frequent blocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use sfs_device::BLOCK_SIZE;
use sfs_lab::workload::{BlockOperation, Source, Workload};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File that is overwritten; its size does not change.
    file: PathBuf,
    /// Workload: zipf:THETA, uniform, hotcold:90/10, shift, tpcc, sequential, pieces:BLOCKS or streams.
    #[arg(long, default_value = "zipf:0.99")]
    workload: String,
    /// Number of writes, each of a block of 4 KiB.
    #[arg(long)]
    writes: u64,
    /// Number of writes of the workload that are left out before the first one.
    #[arg(long, default_value_t = 0)]
    skip: u64,
    /// Number of writes from one fsync to the next; by default, only the last write is followed by one.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    sync_interval: Option<u64>,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { file: path, workload, writes, skip, sync_interval, seed } = arguments;
    let source = Source::open(workload)?;
    ensure!(source.block_count().is_none(), "{workload}: choose a generator, not a trace");
    let (file, blocks) = open(path).with_context(|| format!("{}", path.display()))?;
    let mut stream = source.stream(blocks, *seed);
    for _ in 0..*skip {
        next_write(&mut *stream);
    }
    let mut overwriting = || -> io::Result<()> {
        for number in 1..=*writes {
            let block = u64::from(next_write(&mut *stream));
            let mut bytes = [0; BLOCK_SIZE];
            bytes[..8].copy_from_slice(&(skip + number).to_le_bytes());
            file.write_all_at(&bytes, block * BLOCK_SIZE as u64)?;
            if sync_interval.is_some_and(|interval| number % interval == 0) || number == *writes {
                file.sync_data()?;
            }
        }
        Ok(())
    };
    overwriting().with_context(|| format!("overwriting {}", path.display()))
}

/// Opens the file, and returns its number of whole blocks.
fn open(path: &Path) -> Result<(File, u32)> {
    let file = OpenOptions::new().write(true).open(path)?;
    let metadata = file.metadata()?;
    ensure!(metadata.is_file(), "not a regular file");
    let blocks = u32::try_from(metadata.len() / BLOCK_SIZE as u64)
        .ok()
        .filter(|blocks| (2..=i32::MAX as u32).contains(blocks));
    Ok((file, blocks.context("the file must have 8 KiB to 8 TiB; write it first")?))
}

/// Returns the block of the workload's next write.
fn next_write(stream: &mut dyn Workload) -> u32 {
    std::iter::repeat_with(|| stream.next())
        .find(|operation: &BlockOperation| !operation.is_delete())
        .expect("a workload is endless")
        .block()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_continues_an_earlier_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let overwrite = |name: &str, runs: &[(u64, u64)]| {
            let file = dir.path().join(name);
            std::fs::write(&file, [0xFF; 16 * BLOCK_SIZE]).expect("a file");
            for &(skip, writes) in runs {
                let (workload, sync_interval) = ("hotcold:90/10".to_owned(), Some(7));
                let file = file.clone();
                run(&Arguments { file, workload, writes, skip, sync_interval, seed: 3 })
                    .expect("the file can be overwritten");
            }
            std::fs::read(&file).expect("a file")
        };
        let at_once = overwrite("at once", &[(0, 30)]);
        assert_eq!(at_once.len(), 16 * BLOCK_SIZE);
        assert_eq!(overwrite("in parts", &[(0, 10), (10, 20)]), at_once);
        assert_ne!(overwrite("less", &[(0, 10)]), at_once);
    }

    #[test]
    fn a_file_without_blocks_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("small");
        std::fs::write(&file, "x").expect("a file");
        let (workload, sync_interval) = ("uniform".to_owned(), None);
        let arguments = Arguments { file, workload, writes: 1, skip: 0, sync_interval, seed: 1 };
        let error = run(&arguments).expect_err("one byte is no block");
        assert!(format!("{error:#}").contains("8 KiB to 8 TiB"), "{error:#}");
    }
}
