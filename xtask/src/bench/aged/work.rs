//! The work: writing a file and a tree, overwriting the file, and reading both.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::{counts::RequestCounter, report::Figures};
use crate::fio;

/// Part of the device that the file takes, in percent: 1.4 GB of 2 GiB.
const FILE_PERCENT: u64 = 65;

/// Number of directories of the tree, and of files in each.
const TREE: (u64, u64) = (100, 100);

/// Length of each small file, in bytes: within one block, and too long to be a part of the metadata.
const SMALL_LEN: usize = 3000;

/// Amounts of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) device_mib: u64,
    pub(super) overwrite_mib: u64,
    /// Seconds of each random load.
    pub(super) seconds: u64,
}

impl Scale {
    /// Returns the length of the file in bytes.
    pub(super) fn file_len(&self) -> u64 {
        (self.device_mib * FILE_PERCENT / 100) << 20
    }
}

/// The work on one filesystem.
pub(super) struct Session {
    pub(super) counter: RequestCounter,
    pub(super) scale: Scale,
    pub(super) file: PathBuf,
    pub(super) tree: PathBuf,
    /// File for the reports of fio.
    pub(super) out: PathBuf,
}

impl Session {
    /// Writes the file in order, and the tree.
    pub(super) fn fill(&self) -> Result<()> {
        self.fio(&["--rw=write", "--bs=1m", "--end_fsync=1"])?;
        for no in 0..TREE.0 {
            let dir = self.tree.join(format!("directory-{no}"));
            fs::create_dir_all(&dir)?;
            for no in 0..TREE.1 {
                let mut file = File::create(dir.join(format!("file-{no}")))?;
                file.write_all(&[no as u8; SMALL_LEN])?;
            }
        }
        Ok(())
    }

    /// Overwrites the file at random.
    pub(super) fn age(&self) -> Result<()> {
        let amount = format!("--io_size={}m", self.scale.overwrite_mib);
        let zipf = "--random_distribution=zipf:0.99";
        // Without a map of what was overwritten, blocks come as often as the distribution says.
        self.fio(&["--rw=randwrite", "--bs=4k", zipf, "--norandommap", &amount, "--end_fsync=1"])?;
        Ok(())
    }

    /// Reads the file from one end to the other.
    pub(super) fn read_in_order(&self, figures: &mut Figures) -> Result<()> {
        figures.in_order = self.counter.during(|| {
            let mut file = File::open(&self.file)?;
            let mut buffer = vec![0; 1 << 20];
            while file.read(&mut buffer)? > 0 {}
            Ok(())
        })?;
        Ok(())
    }

    /// Reads single blocks past the cache, one at a time and sixteen at a time.
    pub(super) fn read_at_random(&self, figures: &mut Figures) -> Result<()> {
        let time = format!("--runtime={}", self.scale.seconds);
        for (depth, rate) in [(1, &mut figures.depth_1), (16, &mut figures.depth_16)] {
            // Threads: with most kernels asynchronous direct requests to FUSE wait for each other (decision 17).
            let threads = format!("--numjobs={depth}");
            let load = ["--rw=randread", "--bs=4k", "--direct=1", "--norandommap", "--time_based"];
            let more = [&threads[..], "--group_reporting", "--thread", &time];
            *rate = self.fio(&[&load[..], &more].concat())?.read.iops;
        }
        Ok(())
    }

    /// Lists the tree with the attributes of each file.
    pub(super) fn walk(&self, figures: &mut Figures) -> Result<()> {
        figures.walk = self.counter.during(|| walk(&self.tree))?;
        Ok(())
    }

    fn fio(&self, arguments: &[&str]) -> Result<fio::Job> {
        fio::run(&self.file, self.scale.file_len(), &self.out, arguments)
    }
}

/// Looks at the attributes of everything below `dir`.
fn walk(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            walk(&entry.path())?;
        }
    }
    Ok(())
}
