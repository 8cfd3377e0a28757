//! The files of a [`Playground`] before any measurement.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use anyhow::{Context as _, Result};
use clap::Args;
use sfs_testkit::SeededRng;

use super::Playground;

/// Amounts of data in the playground. The preparation and the loads need the same amounts.
#[derive(Args, Clone, Debug)]
pub struct Amounts {
    /// Length of the file of which random blocks are read, in MiB.
    #[arg(long, default_value_t = 256)]
    pub cold_mib: u64,
    /// Number of names whose attributes are looked up.
    #[arg(long, default_value_t = 32_768)]
    pub names: u64,
    /// Length of all files of the stream together, in MiB.
    #[arg(long, default_value_t = 768)]
    pub stream_mib: u64,
    /// Length of the file that is overwritten and synced, in MiB.
    #[arg(long, default_value_t = 64)]
    pub database_mib: u64,
    /// Number of files in the tree that is copied.
    #[arg(long, default_value_t = 2_000)]
    pub tree_files: u64,
}

/// Number of files in each directory of the tree that is copied.
const TREE_FILES_PER_DIRECTORY: u64 = 100;

/// Lengths of the files in the tree that is copied, in bytes.
const TREE_FILE_LENS: [usize; 5] = [200, 1_000, 3_000, 6_000, 20_000];

/// Makes the files of the playground and syncs them. Files in the caches stay there: the caller mounts
/// the filesystem anew.
pub fn prepare(place: &Playground, amounts: &Amounts, seed: u64) -> Result<()> {
    let mut random = SeededRng::new(seed);
    write_file(&place.cold_file(), amounts.cold_mib, &mut random)?;
    write_file(&place.database(), amounts.database_mib, &mut random)?;
    make_names(place, amounts.names).context("making names")?;
    make_tree(place, amounts.tree_files, &mut random).context("making the tree")?;
    fs::create_dir(place.new_files())?;
    File::create(place.journal())?;
    place.sync()
}

/// Writes a file of `mib` MiB.
pub(super) fn write_file(path: &Path, mib: u64, random: &mut SeededRng) -> Result<()> {
    let bytes = random.bytes(1 << 20);
    let file = File::create(path)?;
    for no in 0..mib {
        file.write_all_at(&bytes, no << 20).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

fn make_names(place: &Playground, names: u64) -> Result<()> {
    for no in 0..Playground::name_directories(names) {
        fs::create_dir(place.name_directory(no))?;
    }
    for no in 0..names {
        File::create_new(place.cold_name(no))?;
    }
    Ok(())
}

fn make_tree(place: &Playground, files: u64, random: &mut SeededRng) -> Result<()> {
    fs::create_dir(place.tree())?;
    for no in 0..files {
        let directory = place.tree().join(format!("{:03}", no / TREE_FILES_PER_DIRECTORY));
        if no % TREE_FILES_PER_DIRECTORY == 0 {
            fs::create_dir(&directory)?;
        }
        let len = random.pick(&TREE_FILE_LENS);
        fs::write(directory.join(format!("file-{no:05}")), random.bytes(len))?;
    }
    Ok(())
}
