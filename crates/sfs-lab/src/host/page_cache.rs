//! The kernel's page cache of a mounted filesystem.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

/// Drops what the page cache has of the contents of the files below `dir`, which must be synced.
pub fn drop_pages(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            drop_pages(&path)?;
        } else if kind.is_file() {
            fadvise(File::open(&path)?, 0, None, Advice::DontNeed)
                .with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
