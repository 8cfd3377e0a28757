//! `cargo xtask bench card`: real programs on models of cards and disks, or on a real card.
//!
//! Each program has its own module. A run prepares the program in virtual time, works in real time up to
//! the final write-back, and reads the counts of the model. The filesystems take turns within each run.

mod ageing;
mod camera;
mod dpkg;
mod figures;
mod git;
mod image;
mod journal;
mod load;
mod materials;
mod medium;
mod options;
mod picture;
mod postgres;
mod process;
mod real;
mod report;
mod session;
mod sqlite;
mod state;
mod together;
mod variant;
mod volume;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};

pub(crate) use self::options::CardOptions;
use self::{
    load::Program,
    medium::last_name,
    real::RealDevice,
    report::{Report, explanation},
    session::Session,
};
use super::table;
use crate::{
    machine,
    report::StepOutcome,
    run::Cmd,
    workspace::{Profile, Workspace},
};

/// Number of units of each program in the test of CI.
const SMOKE_UNITS: u64 = 150;

/// Runs the chosen programs, and prints or publishes their tables.
pub(crate) fn run(workspace: &Workspace, options: &CardOptions) -> Result<()> {
    options.check()?;
    if options.list {
        return options.print_names();
    }
    if let Some(path) = &options.draw {
        let csv = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        return draw(workspace, &csv);
    }
    if options.small {
        let outcome = smoke(workspace)?;
        println!("{}", outcome.notes.join("\n"));
        ensure!(outcome.failed == 0, "{} checks failed", outcome.failed);
        return Ok(());
    }
    ensure!(machine::is_root(), "models and mounts need root");
    let real = options.device.as_deref().map(RealDevice::open).transpose()?;
    let len = real.as_ref().map(RealDevice::len).transpose()?;
    println!("{}", options.estimate(len)?);
    let mut facts = String::new();
    if let Some(real) = &real {
        if !options.yes {
            real.ask()?;
        }
        facts = format!("{}.\n\n", real.description()?);
    }
    let before = real.as_ref().and_then(RealDevice::life_time);
    let report = measure(workspace, options, Profile::Release)?;
    let after = real.as_ref().and_then(RealDevice::life_time);
    if let Some((before, after)) = before.zip(after) {
        facts +=
            &format!("Used life, in steps of 10 %, before: {before}; afterwards: {after}.\n\n");
    }
    let has_times = options.units.is_none();
    let text = format!(
        "{}.\n\n{facts}{}\n\n{}\n\n{}",
        machine::description(),
        caption(options),
        report.markdown(has_times).trim_end(),
        explanation()
    );
    println!("\n{text}");
    if let Some(path) = &options.csv {
        report.write_csv(path)?;
    }
    if let Some(real) = &real {
        write_report(options, real, &format!("{text}\n\n{}", report.csv()))?;
    }
    if options.publish {
        table::publish(&workspace.root.join("docs/bench-card.md"), "card", &(text + "\n"))?;
        fs::write(workspace.root.join("docs/bench-card.csv"), report.csv())?;
        draw(workspace, &report.csv())?;
    }
    Ok(())
}

/// Draws the picture of the README.
fn draw(workspace: &Workspace, csv: &str) -> Result<()> {
    let svg = picture::draw(csv).context("no program ran on SFS and on ext4")?;
    let path = workspace.root.join("docs/images/cards.svg");
    fs::write(&path, svg).with_context(|| format!("{}", path.display()))
}

/// Describes the runs.
fn caption(options: &CardOptions) -> String {
    let CardOptions { runs, seconds, size_mib, .. } = options;
    let amount = match options.units {
        Some(units) => format!("{units} units in virtual time"),
        None => format!("{seconds} s"),
    };
    let device = match options.device {
        Some(_) => String::new(),
        None => format!(" on models of {size_mib} MiB"),
    };
    format!(
        "Medians of {runs} runs of {amount}{device}, in parentheses the lowest and the highest."
    )
}

fn measure(workspace: &Workspace, options: &CardOptions, profile: Profile) -> Result<Report> {
    let mut report = Report::default();
    let session = Session::new(workspace, options, profile, &mut report)?;
    session.run(&mut report)?;
    Ok(report)
}

/// Writes the file that can be sent in.
fn write_report(options: &CardOptions, real: &RealDevice, text: &str) -> Result<()> {
    let path = match &options.report {
        Some(path) => path.clone(),
        None => {
            let date = Cmd::new("date").arg("+%Y%m%d-%H%M").read()?;
            PathBuf::from(format!("bench-card-{}-{date}.txt", last_name(&real.device().path)))
        }
    };
    fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    println!("written to {}: please send it in, as docs/bench-card.md says", path.display());
    Ok(())
}

/// Counts two programs on the model of an SD card in virtual time. The outcome is a failure if SFS programs
/// as many flash pages as ext4, or if a run failed.
pub(crate) fn smoke(workspace: &Workspace) -> Result<StepOutcome> {
    let options = CardOptions::smoke(SMOKE_UNITS);
    options.check()?;
    let report = measure(workspace, &options, Profile::Dev)?;
    println!("{}", report.markdown(false));
    let mut outcome = StepOutcome::default();
    outcome.passed += report.samples().len() as u64;
    outcome.failed += report.failures().len() as u64;
    outcome.notes.extend(report.failures().iter().cloned());
    for program in [Program::Rollback, Program::Journal] {
        let pages = |filesystem| report.pages(program, filesystem);
        let (Some(sfs), Some(ext4)) = (pages("SFS"), pages("ext4")) else {
            outcome.failed += 1;
            outcome.notes.push(format!("{}: no flash pages were counted", program.name()));
            continue;
        };
        let note = format!("{}: {sfs:.1} flash pages a unit, ext4 {ext4:.1}", program.name());
        let is_less = sfs < ext4;
        outcome.passed += u64::from(is_less);
        outcome.failed += u64::from(!is_less);
        outcome.notes.push(note);
    }
    Ok(outcome)
}
