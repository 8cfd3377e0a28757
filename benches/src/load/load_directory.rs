//! The directory of the load on the filesystem under test.
//!
//! The type names the files of the load and evicts them from the kernel's caches.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
};

use anyhow::{Context as _, Result};
use rustix::fs::{Advice, fadvise, syncfs};

/// A directory on the filesystem under test, and the device below the filesystem if there is one.
pub struct LoadDirectory {
    dir: PathBuf,
    device: Option<PathBuf>,
    pub(super) seed: u64,
}

impl LoadDirectory {
    /// Creates the value; the page cache of `device` is dropped together with that of the files.
    pub fn new(dir: PathBuf, device: Option<PathBuf>, seed: u64) -> Self {
        Self { dir, device, seed }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join("file")
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.dir.join("many")
    }

    /// Writes out all earlier changes, so that their write-back does not disturb the measurement.
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

    /// Drops the pages of the file and of the device from the page cache.
    pub(super) fn forget_data(&self) -> Result<()> {
        drop_pages(File::open(self.file())?)?;
        if let Some(device) = &self.device {
            drop_pages(File::open(device)?)?;
        }
        Ok(())
    }

    /// Drops the names and inodes of the whole machine from the kernel's caches, but not the page
    /// cache.
    pub(super) fn forget_names(&self) -> Result<()> {
        drop_pages(File::open(self.directory())?)?;
        fs::write("/proc/sys/vm/drop_caches", "2").context("dropping cached names: run as root")
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
