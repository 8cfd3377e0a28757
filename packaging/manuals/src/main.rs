//! Writes the manual pages and completions below a directory, as below `/usr/share`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use sfs_manuals::{completions, pages};

fn main() -> Result<()> {
    let out: PathBuf = std::env::args_os().nth(1).context("usage: sfs-manuals DIRECTORY")?.into();
    for file in pages().into_iter().chain(completions()) {
        let path = out.join(&file.path);
        fs::create_dir_all(path.parent().context("the path has a directory")?)?;
        fs::write(&path, file.text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
