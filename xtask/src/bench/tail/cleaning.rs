//! Synced overwrites on a full volume that is old, one at a time.
//!
//! All filesystems are mounted at once, and take turns.

use anyhow::Result;

use super::{
    super::medium::Medium,
    entrant::Entrants,
    full_volume::{self, Scale},
    options::TailOptions,
    report::{Report, Unit},
};
use crate::scratch::Scratch;

/// Number of requests of a run.
const REQUESTS: u64 = 10_000;
const REQUESTS_QUICK: u64 = 500;

/// Runs this part, on RAM.
pub(super) fn run(entrants: &Entrants, options: &TailOptions, report: &mut Report) -> Result<()> {
    let scale = Scale::of(options);
    let scratch = Scratch::in_ram(scale.device_len * entrants.count() as u64)?;
    let requests = if options.quick { REQUESTS_QUICK } else { REQUESTS };
    report.begin(
        "cleaning",
        Medium::Ram,
        Unit::Microseconds,
        format!(
            "{} runs of {requests} requests, a write of 4 KiB and fsync, after {} MiB of overwrites by Zipf \
             0.99; each filesystem on {}, SFS with segments of {}",
            options.runs(),
            scale.aged_mib,
            Medium::Ram.describe(scale.device_len, &scratch),
            Medium::Ram.segment_size(),
        ),
    );
    for &percent in &options.full {
        let title = format!("{percent}% full");
        let mut volumes =
            full_volume::make_all(entrants, options, Medium::Ram, percent, &scratch, report);
        for run in 0..options.runs() {
            for index in Entrants::in_turn(volumes.len(), run) {
                let volume = &mut volumes[index];
                match volume.overwrite(requests, None) {
                    Ok(outcome) => report.add(&title, &volume.entrant.name, run, outcome),
                    Err(error) => report.add_failure(&volume.entrant.name, &title, &error),
                }
            }
        }
        volumes.into_iter().try_for_each(|volume| volume.unmount())?;
    }
    Ok(())
}
