//! `cargo xtask bench store`: volumes in object stores beside other ways to use a bucket.
//!
//! Two stores: a simulated one, whose requests take 30 ms and whose bytes pass at 100 MB/s, and versitygw on this machine.
//! All contenders take turns within every row of every round, with the same store. Each measurement has a mount and a local cache of
//! its own, so that nothing is read from a cache that an earlier one has filled.

mod contender;
mod processor;
mod report;
mod serve;
mod target;
mod work;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::{
    contender::{Contender, Place},
    report::Report,
    target::{StoreName, Target},
    work::{Scale, Step},
};
use super::table;
use crate::{
    machine,
    scratch::Scratch,
    test_store,
    workspace::{Profile, Programs, Workspace},
};

/// The arguments of `cargo xtask bench store`.
#[derive(Args)]
pub(crate) struct StoreBenchOptions {
    /// Number of rounds; the median is shown.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only these stores.
    #[arg(long, value_enum, value_delimiter = ',')]
    stores: Vec<StoreName>,
    /// Only these contenders.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Contender>,
    /// Only the rows whose names contain this text.
    #[arg(long)]
    row: Option<String>,
    /// MiB of the large file.
    #[arg(long, default_value_t = 512)]
    mib: u64,
    /// Write the tables into docs/object-storage.md.
    #[arg(long)]
    publish: bool,
    /// Take the programs from this directory, which has another build.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Be the simulated store.
    #[arg(long, hide = true)]
    serve: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &StoreBenchOptions) -> Result<()> {
    if options.serve {
        return serve::run();
    }
    machine::need_fuse()?;
    if !machine::is_root() {
        bail!("the mounts of this benchmark need root");
    }
    let packages = ["sfs", "sfs-mkfs", "sfs-store"];
    let programs = match &options.programs {
        Some(dir) => Programs::of_build(dir)?,
        None => workspace.build(Profile::Release, &packages)?,
    };
    let scale = Scale { mib: options.mib };
    let mut report = Report::new(options.rounds, scale);
    for store in [StoreName::Simulated, StoreName::Versitygw] {
        if !options.stores.is_empty() && !options.stores.contains(&store) {
            continue;
        }
        let result = (|| {
            if store == StoreName::Versitygw {
                test_store::need_versitygw(workspace)?;
            }
            // A disk would be measured with the rest. The large file is there twice, or three times with the objects of a server.
            let scratch = Scratch::in_ram(4 * scale.bytes())?;
            let target = Target::start(store, workspace, &scratch)?;
            measure(&target, &programs, &scratch, options, scale, &mut report)
        })();
        if let Err(error) = result {
            report.skip(format!("{} is skipped: {error:#}", store.title()));
        }
    }
    let text = report.markdown();
    println!("\n{text}");
    match options.publish {
        true => table::publish(&workspace.root.join("docs/object-storage.md"), "store", &text)
            .context("docs/object-storage.md"),
        false => Ok(()),
    }
}

/// Measures all contenders in turn, in all rounds. One that fails is left out from there on.
fn measure(
    target: &Target,
    programs: &Programs,
    scratch: &Scratch,
    options: &StoreBenchOptions,
    scale: Scale,
    report: &mut Report,
) -> Result<()> {
    let mut places = Vec::new();
    for contender in Contender::ALL {
        if !options.only.is_empty() && !options.only.contains(&contender) {
            continue;
        }
        if let Err(error) = contender.need() {
            report.skip(format!("{} is skipped: {error:#}", contender.title()));
            continue;
        }
        let dir = scratch.directory(&format!("{contender:?}-{:?}", target.name))?;
        places.push(Place { contender, target, programs, dir });
    }
    for round in 0..options.rounds {
        for step in Step::ALL {
            let mut rows = step.rows().iter();
            if options.row.as_ref().is_some_and(|only| !rows.any(|row| row.name().contains(only))) {
                continue;
            }
            for turn in 0..places.len() {
                let place = &places[super::place_in_turn(turn, round as usize, places.len())];
                if !step.has(place.contender)
                    || report.has_failed(target.name, place.contender, step)
                {
                    continue;
                }
                println!(
                    "{}, round {}, {step:?}: {}",
                    target.name.title(),
                    round + 1,
                    place.contender.title()
                );
                match work::measure(place, step, scale) {
                    Ok(samples) => report.add(target.name, place.contender, &samples),
                    Err(error) => {
                        eprintln!("{error:#}");
                        report.fail(target.name, place.contender, step, &error);
                    }
                }
            }
        }
    }
    Ok(())
}
