//! The directory of the loads, and the names in it.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rustix::fs::syncfs;

/// Number of names in each directory of cold names.
const NAMES_PER_DIRECTORY: u64 = 512;

/// A directory on the filesystem under test.
#[derive(Clone, Debug)]
pub struct Playground {
    dir: PathBuf,
}

impl Playground {
    /// Creates the value.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns the path of the directory itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the file of which random blocks are read.
    pub(super) fn cold_file(&self) -> PathBuf {
        self.dir.join("cold")
    }

    /// Returns the file to which synced records are appended.
    pub(super) fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Returns the file of which random blocks are overwritten and synced.
    pub fn database(&self) -> PathBuf {
        self.dir.join("database")
    }

    /// Returns the directory of new files.
    pub(super) fn new_files(&self) -> PathBuf {
        self.dir.join("new")
    }

    /// Returns the tree of small files that is copied.
    pub(super) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    /// Returns the place of a copy of the tree.
    pub(super) fn copy(&self, name: &str) -> PathBuf {
        self.dir.join(format!("copy-{name}"))
    }

    /// Returns a file of the stream.
    pub(super) fn stream_file(&self, no: u64) -> PathBuf {
        self.dir.join(format!("stream-{no}"))
    }

    /// Returns a directory of cold names.
    pub(super) fn name_directory(&self, no: u64) -> PathBuf {
        self.dir.join(format!("names-{no:03}"))
    }

    /// Returns a cold name. Names are spread over directories of [`NAMES_PER_DIRECTORY`].
    pub(super) fn cold_name(&self, no: u64) -> PathBuf {
        self.name_directory(no / NAMES_PER_DIRECTORY).join(format!("name-{no:06}"))
    }

    /// Returns the number of directories of `names` cold names.
    pub(super) fn name_directories(names: u64) -> u64 {
        names.div_ceil(NAMES_PER_DIRECTORY)
    }

    /// Writes out all earlier changes.
    pub(super) fn sync(&self) -> Result<()> {
        syncfs(File::open(&self.dir)?).context("syncfs")
    }
}
