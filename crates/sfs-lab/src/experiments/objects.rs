//! `sfs-lab objects`: files over blocks, over blocks with trim, and over the object interface of a device (ATC 2009,
//! section 3.7).
//!
//! The paper has no figure of its own for objects; its table 5 has one for free-page information, which objects imply.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_lab::object_load::{Interface, ObjectLoad, ObjectOutcome};
use sfs_lab::report::{Document, MedianRange, run_parallel, table};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::SsdProfile;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Profile of the device.
    #[arg(long, default_value = "fast12")]
    profile: String,
    /// Size of the device.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    size: u64,
    /// Parts of the device that the files fill.
    #[arg(long, value_delimiter = ',', default_value = "0.5,0.7,0.9")]
    utilizations: Vec<f64>,
    /// Size of the smallest file.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "9K")]
    smallest: u64,
    /// Size of the largest file.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "15K")]
    largest: u64,
    /// Files created and deleted, in multiples of the number of files.
    #[arg(long, default_value_t = 4.0)]
    turnover: f64,
    /// Number of seeds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Folder of lab/flash.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// A history on a device over an interface.
#[derive(Clone, Copy)]
struct Run {
    utilization: f64,
    interface: Interface,
    seed: u64,
}

/// A line of the CSV.
#[derive(Serialize)]
struct CsvRow {
    utilization: f64,
    interface: Interface,
    seed: u64,
    pages_moved: u64,
    moving_ns: u64,
    amplification: f64,
    elapsed_ns: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut runs = Vec::new();
    for &utilization in &arguments.utilizations {
        for interface in Interface::ALL {
            runs.extend((1..=arguments.seeds).map(|seed| Run { utilization, interface, seed }));
        }
    }
    let outcomes = run_parallel(&runs, |run| arguments.outcome(*run))?;
    let text = arguments.text(&outcomes);
    output::print(&text)?;
    let Some(docs) = &arguments.docs else { return Ok(()) };
    let document = Document::flash(docs);
    document.file("objects.csv", &csv(&runs, &outcomes)?)?;
    document.section("objects", &text)
}

impl Arguments {
    fn outcome(&self, run: Run) -> Result<ObjectOutcome> {
        let profile = SsdProfile::by_name(&self.profile)
            .with_context(|| format!("no profile {}", self.profile))?;
        let load = ObjectLoad {
            profile: profile.with_capacity(self.size),
            utilization: run.utilization,
            sizes: (self.smallest, self.largest.max(self.smallest)),
            turnover: self.turnover,
        };
        load.run(run.interface, run.seed)
    }

    fn text(&self, outcomes: &[ObjectOutcome]) -> String {
        let seeds = self.seeds as usize;
        let mut rows = Vec::new();
        let by_utilization = outcomes.chunks(seeds * Interface::ALL.len());
        for (utilization, outcomes) in self.utilizations.iter().zip(by_utilization) {
            let blocks = &outcomes[..seeds];
            for (interface, found) in Interface::ALL.into_iter().zip(outcomes.chunks(seeds)) {
                let against = |value: fn(&ObjectOutcome) -> f64| {
                    let ratio = |(one, blocks)| value(one) / value(blocks).max(1.0);
                    MedianRange::of(found.iter().zip(blocks).map(ratio).collect()).text(2)
                };
                let plain = found.iter().map(|outcome| outcome.amplification);
                rows.push(vec![
                    format!("{:.0}% full, {}", utilization * 100.0, interface.name()),
                    against(|outcome| outcome.pages_moved as f64),
                    against(|outcome| outcome.moving_ns as f64),
                    against(|outcome| outcome.elapsed_ns as f64),
                    MedianRange::of(plain.collect()).text(2),
                ]);
            }
        }
        let heading =
            ["section 3.7: objects", "pages moved", "cleaning time", "time of all", "flash WA"];
        format!(
            "Files of {} to {}, created and deleted at random on {} of {}; one in 40 never changes. The first three columns are over those \
             of blocks without trim. Medians of {} seeds, and the least and greatest.\n\n{}",
            Human(self.smallest),
            Human(self.largest),
            Human(self.size),
            self.profile,
            self.seeds,
            table(&heading.map(str::to_owned), &rows)
        )
    }
}

fn csv(runs: &[Run], outcomes: &[ObjectOutcome]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (run, outcome) in runs.iter().zip(outcomes) {
        let Run { utilization, interface, seed } = *run;
        let ObjectOutcome { pages_moved, moving_ns, amplification, elapsed_ns } = *outcome;
        writer.serialize(CsvRow {
            utilization,
            interface,
            seed,
            pages_moved,
            moving_ns,
            amplification,
            elapsed_ns,
        })?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}
