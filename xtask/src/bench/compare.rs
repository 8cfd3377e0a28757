//! `cargo xtask bench compare`: the rows of `bench fuse` for two builds of SFS, or for one with a mount option and without.
//!
//! Both are mounted at once and take turns within every row of every round, in an order that
//! changes from round to round. A row has changed if the median of each lies outside the
//! range of the other.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use anyhow::Result;
use clap::Args;

use super::{DEVICE_LEN, ROWS, Sample, Target, Unit, spread::Spread, table::median};
use crate::{
    filesystem::FilesystemKind,
    machine::{self, Rings},
    scratch::Scratch,
    workspace::{Profile, Programs, Workspace},
};

#[derive(Args)]
pub(crate) struct CompareOptions {
    /// Directory with the programs of the earlier build (`target/release` of another checkout).
    #[arg(long, required_unless_present = "with")]
    before: Option<PathBuf>,
    /// Mount option of the later build: without `--before` the same build is compared with and without it.
    #[arg(long, value_name = "OPTION")]
    with: Option<String>,
    /// Transports to compare.
    #[arg(long, value_delimiter = ',', default_value = "uring,dev")]
    transports: Vec<String>,
    /// Number of samples of each row.
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// Measure only these rows. Rows on existing files need the row that makes them:
    /// `create,rename`.
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Run less of everything.
    #[arg(long)]
    quick: bool,
}

/// Samples of one row and transport, of the earlier build and of this one.
type Pair = [Vec<Sample>; 2];

pub(crate) fn run(workspace: &Workspace, options: &CompareOptions) -> Result<()> {
    let load = workspace.build(Profile::Release, &["sfs-bench"])?.path("fuse-load");
    let after = FilesystemKind::Sfs.build(workspace, Profile::Release)?;
    let before = match &options.before {
        Some(dir) => Programs::of_build(dir)?,
        None => after.clone(),
    };
    let builds = [before, after.with(options.with.clone().map(Into::into))];
    FilesystemKind::Sfs.need()?;
    let _rings = Rings::enable()?;
    let scratch = Scratch::in_ram(DEVICE_LEN * 2 * options.transports.len() as u64)?;
    let mut targets = Vec::new();
    for transport in &options.transports {
        for (build, programs) in builds.iter().enumerate() {
            let name = format!("{}-{transport}", ["before", "after"][build]);
            let programs = programs.clone().over(transport);
            targets.push((
                build,
                transport,
                Target::new(FilesystemKind::Sfs, &programs, &name, &scratch)?,
            ));
        }
    }
    let mut pairs: BTreeMap<(usize, &str), Pair> = BTreeMap::new();
    for round in 0..options.rounds {
        println!("round {} of {}", round + 1, options.rounds);
        for (index, (row, ..)) in ROWS.iter().enumerate() {
            if !options.rows.is_empty() && !options.rows.iter().any(|only| only == row) {
                continue;
            }
            for turn in 0..targets.len() {
                // In every other round the later build is measured first.
                let turn = if round % 2 == 0 { turn } else { targets.len() - 1 - turn };
                let (build, transport, target) = &targets[turn];
                let sample = target.measure(&load, row, options.quick)?;
                pairs.entry((index, transport)).or_default()[*build].push(sample);
            }
        }
    }
    println!("\n{}\n", machine::description());
    println!(
        "| | before: median (range) | after: median (range) | ratio | by round: median (middle half) | CPU us before, after | |"
    );
    println!("|---|---:|---:|---:|---:|---:|---|");
    for ((row, transport), pair) in &pairs {
        println!("{}", Line { row: *row, transport, pair });
    }
    targets.into_iter().try_for_each(|(_, _, target)| target.unmount())
}

/// One row of the table.
struct Line<'a> {
    row: usize,
    transport: &'a str,
    pair: &'a Pair,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, title, unit) = &ROWS[self.row];
        let rates = |samples: &Vec<Sample>| {
            Spread::of(samples.iter().map(|sample| sample.rate(*unit))).unwrap_or_default()
        };
        let [before, after] = self.pair.each_ref().map(rates);
        let [earlier, later] = self.pair;
        // The machine is more alike within a round than from one to the next.
        let by_round = earlier
            .iter()
            .zip(later)
            .map(|(earlier, later)| later.rate(*unit) / earlier.rate(*unit));
        let cpu = self
            .pair
            .each_ref()
            .map(|samples| median(samples.iter().map(Sample::cpu_us)).unwrap_or_default());
        let verdict = match (before.excludes(&after), after.median < before.median) {
            (false, _) => "within the spread",
            (true, true) => "**slower**",
            (true, false) => "faster",
        };
        let unit = if *unit == Unit::Bytes { "MB/s" } else { "calls/s" };
        write!(
            f,
            "| {title}, {unit}, {} | {before} | {after} | {:.2} | {:.2} | {:.1}, {:.1} | {verdict} |",
            self.transport,
            after.median / before.median,
            Spread::of_middle(by_round).unwrap_or_default(),
            cpu[0],
            cpu[1],
        )
    }
}
