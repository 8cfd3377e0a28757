//! `sfs-lab age`: ages a mounted filesystem, after a check that the directory is the root of an empty
//! filesystem. Only files that the command made are deleted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use sfs_lab::host::Ageing;
use sfs_mkfs::{output, parse_size};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Mount point of an empty filesystem, which is filled completely first.
    dir: PathBuf,
    /// Utilization at the end, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    utilization: u8,
    /// Seed of the files and deletions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Size of the smallest file.
    #[arg(long, default_value = "1K", value_parser = size)]
    smallest: u64,
    /// Size of the largest file.
    #[arg(long, default_value = "16M", value_parser = size)]
    largest: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { seed, smallest, largest, ref dir, .. } = *arguments;
    ensure!(smallest > 0, "--smallest must be at least one byte");
    ensure!(smallest <= largest, "--smallest must not be larger than --largest");
    expect_empty_mount(dir)?;
    let utilization = f64::from(arguments.utilization) / 100.0;
    let ageing = Ageing { seed, smallest, largest, utilization };
    let spinner = ProgressBar::new_spinner();
    let aged = ageing
        .run(dir, &mut |used| spinner.set_message(format!("{:.1}% used", used * 100.0)))
        .with_context(|| format!("{}", dir.display()))?;
    spinner.finish_and_clear();
    if arguments.json {
        output::print(format_args!("{}\n", serde_json::to_string(&aged)?))?;
        return Ok(());
    }
    output::print(format_args!(
        "{}: {} files of {:.1} MiB, {:.1}% used; {} deleted, {:.1}% used\n",
        dir.display(),
        aged.files,
        aged.bytes as f64 / f64::from(1 << 20),
        aged.utilization_full * 100.0,
        aged.deleted,
        aged.utilization * 100.0
    ))?;
    Ok(())
}

/// Returns an error unless `dir` is the root of a mounted filesystem without files, so that no other disk
/// is filled by mistake.
fn expect_empty_mount(dir: &Path) -> Result<()> {
    let shown = dir.display();
    let root = fs::metadata(dir).with_context(|| format!("{shown}"))?;
    ensure!(root.is_dir(), "{shown}: not a directory");
    let parent = fs::metadata(dir.join("..")).with_context(|| format!("{shown}"))?;
    if root.dev() == parent.dev() {
        bail!("{shown}: not a mount point; mount an empty filesystem there");
    }
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if name != "lost+found" {
            bail!("{shown}: not empty: it contains {}; age a new filesystem", name.display());
        }
    }
    Ok(())
}
