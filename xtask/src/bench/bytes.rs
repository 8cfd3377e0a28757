//! `cargo xtask bench bytes`: bytes that reach the device for each byte that a program writes, by
//! grouping policy.
//!
//! A cell is a load on a volume of its own. A file is written once, overwritten once to warm up, and
//! overwritten for the measurement; the program syncs after a fixed number of writes. Beside the
//! policies stands the least figure of a cleaner that knows the rate of every block, in the space
//! that was really there. Counters do not depend on the speed of the machine, so several volumes
//! may be measured at once.

mod cell;
mod table;

use std::{
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::{
    cell::{CELLS, Cell, Figures},
    table::Table,
};
use crate::{
    filesystem::FilesystemKind,
    machine,
    workspace::{Profile, Programs, Workspace},
};

#[derive(Args)]
pub(crate) struct BytesOptions {
    /// Grouping policies; the first is compared with all others.
    #[arg(long, value_delimiter = ',', default_value = "sfs,none,sepbit,sfs-log,dac")]
    policies: Vec<String>,
    /// Measure only the cells whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    cells: Vec<String>,
    /// Volumes that are measured at the same time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    jobs: u8,
    /// Measure the programs of another build, in this directory.
    #[arg(long)]
    build: Option<PathBuf>,
    /// Run the filesystem in one process on a device in RAM: exact and fast, without FUSE and the kernel's page cache.
    #[arg(long)]
    in_memory: bool,
    /// Print the names of the cells.
    #[arg(long)]
    list: bool,
    /// Write all figures to this CSV file.
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Replace the table in `docs/benchmarks.md`.
    #[arg(long)]
    publish: bool,
}

/// Measurement of a cell with a policy, by their indices.
type Measurement = ((usize, usize), Result<Figures>);

pub(crate) fn run(workspace: &Workspace, options: &BytesOptions) -> Result<()> {
    if options.list {
        CELLS.iter().for_each(|cell| println!("{}", cell.name()));
        return Ok(());
    }
    let cells = options.chosen_cells()?;
    FilesystemKind::Sfs.need()?;
    let built = workspace.build(Profile::Release, &["sfs", "sfs-mkfs", "sfs-lab"])?;
    let programs = match &options.build {
        Some(dir) => Programs::of_build(dir)?,
        None => built.clone(),
    };
    let measured = options.measure((&programs, &built), &cells);
    let mut table = Table::new(&options.policies, &cells);
    for ((cell, policy), figures) in measured {
        let at = || format!("{}, {}", cells[cell].name(), options.policies[policy]);
        let figures = figures.with_context(at)?;
        let bound = figures.bound(&built, cells[cell])?;
        table.add(cell, policy, figures, bound);
    }
    if let Some(path) = &options.csv {
        table.write_csv(path)?;
    }
    let text = format!("{}.\n\n{}", machine::description(), table.markdown());
    println!("\n{text}");
    if options.publish {
        super::table::publish(&workspace.root.join("docs/benchmarks.md"), "bytes", &text)?;
    }
    Ok(())
}

impl BytesOptions {
    fn chosen_cells(&self) -> Result<Vec<&'static Cell>> {
        let is_chosen = |cell: &&Cell| {
            self.cells.is_empty() || self.cells.iter().any(|part| cell.name().contains(part))
        };
        let cells: Vec<_> = CELLS.iter().filter(is_chosen).collect();
        ensure!(!cells.is_empty(), "--cells: no name contains that; --list prints all names");
        Ok(cells)
    }

    /// Measures every cell with every policy, [`BytesOptions::jobs`] volumes at once.
    fn measure(&self, programs: (&Programs, &Programs), cells: &[&Cell]) -> Vec<Measurement> {
        let next = AtomicUsize::new(0);
        let measured = Mutex::new(Vec::new());
        let policies = self.policies.len();
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cell) = cells.get(index / policies) else { break };
                        let policy = &self.policies[index % policies];
                        let figures = match self.in_memory {
                            true => cell.measure_in_memory(programs.0, policy),
                            false => cell.measure(programs, policy),
                        };
                        if let Ok(figures) = &figures {
                            println!("{}, {policy}: {figures}", cell.name());
                        }
                        let at = (index / policies, index % policies);
                        measured.lock().expect("no thread panics").push((at, figures));
                    }
                });
            }
        });
        let mut measured = measured.into_inner().expect("no thread panics");
        measured.sort_by_key(|(at, _)| *at);
        measured
    }
}
