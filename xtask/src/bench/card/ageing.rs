//! Ageing of a volume: it is filled, and then overwritten as by some years of use.
//!
//! A third of the bytes overwrites blocks of 4 KiB in one file, synced every 64 blocks, with 80 % of them in
//! 20 % of the file. Two thirds replace whole files of 16 KiB to 4 MiB, in random order.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use super::{
    load::{sync_filesystem, used_percent},
    sqlite::Numbers,
};
use crate::cleanup;

/// Bytes that the ageing writes, in sizes of the volume.
pub(super) const TIMES: u64 = 3;

const BLOCK: usize = 4096;

/// Blocks from one sync to the next.
const SYNC_BLOCKS: u64 = 64;

/// Blocks that are overwritten, and bytes that are replaced, in a round.
const ROUND_BLOCKS: u64 = 2048;
const ROUND_BYTES: u64 = 2 * ROUND_BLOCKS * BLOCK as u64;

/// Part of the files left after the ageing that is the file with random overwrites, one in so many.
const DATABASE_PART: u64 = 2;

const SIZES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// The files of an aged volume.
struct Files {
    dir: PathBuf,
    database: File,
    database_blocks: u64,
    files: Vec<(PathBuf, usize)>,
    number: u64,
    numbers: Numbers,
    content: Vec<u8>,
}

/// Fills `dir`, the only directory of a volume of `len` bytes, up to `percent`, and overwrites it. Afterwards removes
/// files at random down to `left_percent`, which makes room for the programs.
pub(super) fn age(dir: &Path, len: u64, percent: f64, left_percent: f64) -> Result<()> {
    fs::create_dir_all(dir)?;
    let database_blocks = (len as f64 * left_percent / 100.0) as u64 / DATABASE_PART / BLOCK as u64;
    let mut numbers = Numbers::new(4);
    let content = (0..SIZES[SIZES.len() - 1]).map(|_| numbers.below(256) as u8).collect();
    let database = File::create(dir.join("database"))?;
    let (dir, files) = (dir.to_owned(), Vec::new());
    let mut aged = Files { dir, database, database_blocks, files, number: 0, numbers, content };
    aged.fill(percent)?;
    let mut written = 0;
    while written < len * TIMES {
        if cleanup::is_stopping() {
            bail!("stopped");
        }
        written += aged.overwrite()? + aged.replace()?;
    }
    aged.shrink(left_percent)
}

impl Files {
    fn fill(&mut self, percent: f64) -> Result<()> {
        for block in 0..self.database_blocks {
            self.write_block(block)?;
        }
        self.database.sync_all()?;
        // Some filesystems count written data as used space only after a sync.
        loop {
            let before = self.files.len();
            while used_percent(&self.dir)? < percent && self.files.len() < before + 64 {
                let size = SIZES[self.numbers.below(SIZES.len() as u64) as usize];
                self.create(size)?;
            }
            sync_filesystem(&self.dir)?;
            if used_percent(&self.dir)? >= percent || cleanup::is_stopping() {
                return Ok(());
            }
        }
    }

    fn write_block(&mut self, block: u64) -> io::Result<()> {
        let from = self.numbers.below((self.content.len() - BLOCK) as u64) as usize;
        self.database.write_all_at(&self.content[from..from + BLOCK], block * BLOCK as u64)
    }

    /// Overwrites blocks of the database, and returns the number of bytes.
    fn overwrite(&mut self) -> Result<u64> {
        if self.database_blocks == 0 {
            return Ok(0);
        }
        for no in 1..=ROUND_BLOCKS {
            let hot = self.numbers.below(5) > 0;
            let range = if hot { (self.database_blocks / 5).max(1) } else { self.database_blocks };
            let block = self.numbers.below(range);
            self.write_block(block).or_else(|error| self.remove_for(error))?;
            if no.is_multiple_of(SYNC_BLOCKS) {
                self.database.sync_data().or_else(|error| self.remove_for(error))?;
            }
        }
        Ok(ROUND_BLOCKS * BLOCK as u64)
    }

    /// Replaces files by new ones of the same size, and returns the number of bytes.
    fn replace(&mut self) -> Result<u64> {
        let mut written = 0;
        while written < ROUND_BYTES && !self.files.is_empty() {
            let size = self.remove_any()?;
            // The removed file's space may come back only after a sync.
            self.create(size).or_else(|error| self.remove_for(error))?;
            written += size as u64;
        }
        // As the kernel does after half a minute.
        sync_filesystem(&self.dir)?;
        Ok(written)
    }

    /// Removes a file if `error` is for want of space.
    fn remove_for(&mut self, error: io::Error) -> Result<()> {
        if error.kind() != io::ErrorKind::StorageFull || self.files.is_empty() {
            return Err(error.into());
        }
        self.remove_any()?;
        sync_filesystem(&self.dir)
    }

    /// Removes a file at random, and returns its size.
    fn remove_any(&mut self) -> io::Result<usize> {
        let victim = self.numbers.below(self.files.len() as u64) as usize;
        let (path, size) = self.files.swap_remove(victim);
        fs::remove_file(path)?;
        Ok(size)
    }

    /// Removes files at random down to `percent`.
    fn shrink(&mut self, percent: f64) -> Result<()> {
        sync_filesystem(&self.dir)?;
        while used_percent(&self.dir)? > percent && !self.files.is_empty() {
            for _ in 0..self.files.len().min(8) {
                self.remove_any()?;
            }
            // Some filesystems count the space as free only after a sync.
            sync_filesystem(&self.dir)?;
        }
        Ok(())
    }

    fn create(&mut self, size: usize) -> io::Result<()> {
        self.number += 1;
        let path = self.dir.join(format!("file-{}", self.number));
        let from = self.numbers.below((self.content.len() - size + 1) as u64) as usize;
        let mut file = File::create_new(&path)?;
        let written = file.write_all(&self.content[from..from + size]);
        if written.is_err() {
            fs::remove_file(&path)?;
        }
        written?;
        self.files.push((path, size));
        Ok(())
    }
}

/// Fills a volume with one file up to `percent`, or until it is full.
pub(super) fn fill_up(file: &Path, percent: f64) -> Result<()> {
    const PART: usize = 1 << 20;
    let dir = file.parent().unwrap_or(Path::new("/"));
    let mut numbers = Numbers::new(5);
    let part: Vec<u8> = (0..PART).map(|_| numbers.below(256) as u8).collect();
    let mut file = File::create(file)?;
    loop {
        let before = file.metadata()?.len();
        while used_percent(dir)? < percent && file.metadata()?.len() < before + (32 << 20) {
            match file.write_all(&part) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                written => written?,
            }
        }
        file.sync_all()?;
        if used_percent(dir)? >= percent || cleanup::is_stopping() {
            return Ok(());
        }
    }
}
