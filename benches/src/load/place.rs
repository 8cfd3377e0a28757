//! Where the load works: a directory on the filesystem under test.
//!
//! Owns the names of the files there and what makes them cold again. Never leaves the directory.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use rustix::fs::{Advice, fadvise, syncfs};

/// A directory on the filesystem under test, and the device below it if there is one.
pub struct Place {
    dir: PathBuf,
    device: Option<PathBuf>,
    pub(super) seed: u64,
}

impl Place {
    /// `device`: its page cache is dropped together with the files'.
    pub fn new(dir: PathBuf, device: Option<PathBuf>, seed: u64) -> Self {
        Self { dir, device, seed }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join("file")
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.dir.join("many")
    }

    /// Everything written so far is out of the way of what is measured.
    pub(super) fn sync(&self) -> Result<()> {
        syncfs(File::open(&self.dir)?).context("syncfs")
    }

    pub(super) fn remove_file(&self) -> Result<()> {
        absent_is_fine(fs::remove_file(self.file()))
    }

    pub(super) fn empty_directory(&self) -> Result<()> {
        absent_is_fine(fs::remove_dir_all(self.directory()))?;
        fs::create_dir(self.directory()).context("making the directory")
    }

    /// The file's pages, and the device's, leave the page cache.
    pub(super) fn forget_data(&self) -> Result<()> {
        drop_pages(File::open(self.file())?)?;
        if let Some(device) = &self.device {
            drop_pages(File::open(device)?)?;
        }
        Ok(())
    }

    /// The kernel's names and inodes go. They go for the whole machine, page cache excepted.
    pub(super) fn forget_names(&self) -> Result<()> {
        drop_pages(File::open(self.directory())?)?;
        fs::write("/proc/sys/vm/drop_caches", "2").context("dropping names needs root")
    }
}

fn drop_pages(file: File) -> Result<()> {
    fadvise(&file, 0, None, Advice::DontNeed).context("dropping pages")
}

fn absent_is_fine(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
