//! `sfs-lab reproduce sfs-flash`: section 4.4 of the SFS paper, its filesystems and SFS on one device.
//!
//! A filesystem whose programs are not installed is left out, with a message.

mod arguments;
mod paper;
mod report;
mod run;

use anyhow::{Context, Result};
use sfs_lab::host::{Filesystem, need_disks};
use sfs_lab::report::{Document, with_bar};
use sfs_mkfs::output;

pub(crate) use arguments::Arguments;
use arguments::FULL;
use paper::{SWEEP, UTILIZATIONS};
use report::text;
use run::{curve, on_models};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Err(error) = need_disks() {
        output::complain(format_args!("skipped: {error:#}"));
        return Ok(());
    }
    let lab = std::env::current_exe().context("this program's own path")?;
    let (models, workloads) = (arguments.models()?, arguments.workloads()?);
    let filesystems = arguments.filesystems();
    let comparison = arguments.comparison();
    let sweeps: &[f64] = if arguments.no_sweep { &[] } else { &UTILIZATIONS };
    let ours: Vec<Filesystem> = arguments.ours();
    let swept = workloads.iter().take(SWEEP.len());
    let runs = workloads.len() * filesystems.len()
        + swept.clone().count() * ours.len() * sweeps.len().saturating_sub(1);
    let (mut compared, mut curves) = (Vec::new(), Vec::new());
    with_bar(|progress| {
        let total = runs as u64 * comparison.writes();
        let mut done = 0;
        for (name, source) in &workloads {
            let mut rows = Vec::new();
            for filesystem in &filesystems {
                let recorded = comparison.record(&lab, filesystem, source, FULL, &mut |writes| {
                    progress(done + writes, total);
                });
                rows.push(on_models(filesystem, recorded, &models)?);
                done += comparison.writes();
            }
            compared.push((*name, rows));
        }
        for ((name, source), (_, runs)) in swept.zip(&compared) {
            for filesystem in ours.iter().filter(|_| !sweeps.is_empty()) {
                let known = runs.iter().find(|run| run.filesystem == filesystem.name());
                let mut points = Vec::new();
                for &utilization in sweeps {
                    if let (true, Some(run)) = (utilization == FULL, known) {
                        points.push(run.speeds());
                        continue;
                    }
                    let at = |writes| progress(done + writes, total);
                    points.push(curve(
                        (&comparison, &lab, &models),
                        (filesystem, source, utilization),
                        &mut { at },
                    )?);
                    done += comparison.writes();
                }
                curves.push((*name, filesystem.name(), points));
            }
        }
        anyhow::Ok(())
    })?;
    let document = arguments.docs.as_deref().map(Document::flash);
    let text = text(arguments, &compared, &curves, document.as_ref())?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("sfs-flash", &text))
}
