//! `sfs-lab evidence`: the default policy against the others and against the bound, in every
//! combination of workload, utilization and interval of syncs, over several seeds.
//!
//! A missing trace is left out, with a message.

mod cell;
mod figure;
mod report;

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::block_trace::TraceFolder;
use sfs_lab::report::{Document, run_parallel};
use sfs_lab::simulation::Experiment;
use sfs_mkfs::output;

use super::workloads::{self, TraceSelection};
use cell::{Cell, POLICIES};
use figure::Figure;
use report::Row;

/// Number of different blocks above which a trace is left out.
const BLOCKS_MAX: u32 = 2_000_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
    /// Number of seeds for each generator.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Prefixes of the names of the workloads to run; all workloads by default.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut workloads = workloads::generators()?;
    workloads.extend(workloads::traces(&arguments.traces, &TraceSelection::of_blocks(BLOCKS_MAX))?);
    let wanted = &arguments.workloads;
    workloads.retain(|(name, _)| {
        wanted.is_empty() || wanted.iter().any(|begin| name.starts_with(begin))
    });
    let rows = rows(workloads.iter().flat_map(Cell::all).collect(), arguments.seeds)?;
    let text = report::text(&rows);
    output::print(&text)?;
    if let Some(docs) = &arguments.docs {
        let document = Document::new(docs);
        document.section("evidence", &text)?;
        document.file("evidence.csv", &report::csv(&rows))?;
    }
    Ok(())
}

/// Runs every policy in every cell with every seed.
fn rows<'a>(cells: Vec<Cell<'a>>, seeds: u64) -> Result<Vec<Row<'a>>> {
    let all: Vec<Experiment<'a>> = cells.iter().flat_map(|cell| experiments(cell, seeds)).collect();
    let mut outcomes = run_parallel(&all, |one| one.run(&mut |_, _| ()))?.into_iter();
    let row = |cell: Cell<'a>| {
        let count = cell.seed_count(seeds) as usize;
        let mut figure = || {
            let outcomes: Vec<_> = outcomes.by_ref().take(count).collect();
            Figure::of(&cell.workload.1, &outcomes)
        };
        let figures = POLICIES.map(|_| figure()).into();
        Row { cell, figures }
    };
    Ok(cells.into_iter().map(row).collect())
}

/// Returns the experiments of a cell: all seeds of the first policy, then those of the next.
fn experiments<'a>(cell: &Cell<'a>, seeds: u64) -> Vec<Experiment<'a>> {
    let seeds = 1..=cell.seed_count(seeds);
    let of = |policy| seeds.clone().map(move |seed| cell.experiment(policy, seed));
    POLICIES.into_iter().flat_map(of).collect()
}
