//! `sfs-lab wear-levelling`: the erasures of the blocks of raw flash, with and without `-o wear_levelling=`.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::raw_flash::{Job, JobCounts};
use sfs_lab::report::{Document, table};
use sfs_mkfs::output;

/// Bounds that are compared; `None` is the default.
const BOUNDS: [Option<u16>; 4] = [None, Some(32), Some(16), Some(8)];

/// Cycles that a block endures.
const ENDURANCE: f64 = 3000.0;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Size of the volume in MiB.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(16..=4096))]
    mib: u64,
    /// Size of an erase block in KiB.
    #[arg(long, default_value_t = 128)]
    block_kib: u64,
    /// Part of the volume with data that never changes.
    #[arg(long, default_value_t = 0.6)]
    cold: f64,
    /// Part of the volume with data that is overwritten.
    #[arg(long, default_value_t = 0.2)]
    hot: f64,
    /// Bytes that are overwritten, in sizes of the volume.
    #[arg(long, default_value_t = 30.0)]
    overwrites: f64,
    /// Seed of the overwrites.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { mib, block_kib, cold, hot, overwrites, seed, .. } = *arguments;
    let mut rows = Vec::new();
    for wear_levelling in BOUNDS {
        let job = Job {
            device_bytes: mib << 20,
            segment_bytes: block_kib << 10,
            cold,
            hot,
            overwrites,
            wear_levelling,
            seed,
        };
        rows.push(row(wear_levelling, &job.run()?));
    }
    let heading = [
        "`wear_levelling=`",
        "least erasures",
        "mean",
        "most",
        "spread",
        "bytes moved for a byte written",
        "volumes written until a block has had 3,000",
    ];
    let text = format!(
        "A volume of {mib} MiB with erase blocks of {block_kib} KiB: {:.0}% of it never change, {:.0}% are overwritten at \
         random, {overwrites} times the size of the volume.\n\n{}",
        100.0 * cold,
        100.0 * hot,
        table(&heading.map(str::to_owned), &rows)
    );
    output::print(&text)?;
    match &arguments.docs {
        Some(docs) => Document::new(docs).section("wear-levelling", &text),
        None => Ok(()),
    }
}

fn row(wear_levelling: Option<u16>, counts: &JobCounts) -> Vec<String> {
    let JobCounts { erases, written_bytes, counters, .. } = counts;
    let least = *erases.iter().min().unwrap_or(&0);
    let most = *erases.iter().max().unwrap_or(&0);
    let sum: u64 = erases.iter().map(|count| u64::from(*count)).sum();
    let mean = sum as f64 / erases.len().max(1) as f64;
    let moved = counters.cleaning_bytes as f64 / *written_bytes as f64;
    // Blocks wear on at the same pace.
    let life = ENDURANCE / f64::from(most.max(1)) * *written_bytes as f64;
    let volumes = life / (counts.device_bytes as f64);
    vec![
        wear_levelling.map_or("off".to_owned(), |bound| bound.to_string()),
        least.to_string(),
        format!("{mean:.1}"),
        most.to_string(),
        (most - least).to_string(),
        format!("{moved:.3}"),
        format!("{volumes:.0}"),
    ]
}
