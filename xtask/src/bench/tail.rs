//! `cargo xtask bench tail`: the longest waits of small requests, on filesystems side by side.
//!
//! Each part of the benchmark has its own module. The filesystems take turns within each run, in an
//! order that changes from run to run. Every figure is the median of all runs with its range.

mod arrivals;
mod cleaning;
mod entrant;
mod full_volume;
mod options;
mod playground;
mod report;

use anyhow::Result;

use self::{entrant::Entrants, report::Report};
use super::table;
use crate::{
    machine,
    report::StepOutcome,
    workspace::{Profile, Workspace},
};

use self::options::Part;
pub(crate) use self::options::TailOptions;

/// Runs the parts, and prints or publishes their tables.
pub(crate) fn run(workspace: &Workspace, options: &TailOptions) -> Result<()> {
    options.check()?;
    let report = measure(workspace, options, Profile::Release)?;
    let text = format!("{}.\n\n{}", machine::description(), report.markdown());
    println!("\n{text}");
    if let Some(path) = &options.csv {
        report.write_csv(path)?;
    }
    if options.publish {
        table::publish(&workspace.root.join("docs/benchmarks.md"), "tail", &text)?;
    }
    Ok(())
}

/// Runs most parts for a moment, with development builds; `arrivals` overwrites as `cleaning` does. The
/// outcome is a failure if a filesystem failed.
pub(crate) fn smoke(workspace: &Workspace) -> Result<StepOutcome> {
    let options = TailOptions::smoke();
    let report = measure(workspace, &options, Profile::Dev)?;
    println!("{}", report.markdown());
    let mut outcome = StepOutcome::default();
    outcome.passed += report.sample_count() as u64;
    outcome.failed += report.failures().len() as u64;
    outcome.notes.extend(report.failures().iter().cloned());
    Ok(outcome)
}

fn measure(workspace: &Workspace, options: &TailOptions, profile: Profile) -> Result<Report> {
    let mut report = Report::default();
    let entrants = Entrants::of(workspace, options, profile, &mut report)?;
    for &part in &options.parts {
        for &medium in options.devices_of(part) {
            let entrants = &entrants;
            match part {
                Part::Stream => {
                    playground::run(entrants, options, medium, &playground::STREAM, &mut report)?;
                }
                Part::Others => {
                    playground::run(entrants, options, medium, &playground::OTHERS, &mut report)?;
                }
                Part::Cleaning => cleaning::run(entrants, options, &mut report)?,
                Part::Arrivals => arrivals::run(entrants, options, medium, &mut report)?,
            }
        }
    }
    Ok(report)
}
