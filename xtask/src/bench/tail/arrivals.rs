//! Synced overwrites on a full volume that is old, at random times.
//!
//! The rate is half of the rate that the slowest filesystem sustains on the fullest volume with one
//! request at a time. All filesystems have the same rate, so that their waits can be compared.
//! Latency counts from the arrival of a request, whether or not earlier requests have ended.

use anyhow::{Context as _, Result};

use super::{
    super::medium::Medium,
    entrant::Entrants,
    full_volume::{self, FullVolume, Scale},
    options::TailOptions,
    report::{Report, Unit},
};
use crate::scratch::Scratch;

/// Divisor of the number of requests of a sample for the measurement of the sustained rate: a card
/// takes a second for some requests.
const SUSTAINED_PART: u64 = 10;

/// Fraction of the sustained rate at which requests arrive.
const RATE_SHARE: f64 = 0.5;

/// Runs this part on a device.
pub(super) fn run(
    entrants: &Entrants,
    options: &TailOptions,
    medium: Medium,
    report: &mut Report,
) -> Result<()> {
    let scale = Scale::of(options);
    let scratch = Scratch::in_ram(scale.device_len * entrants.count() as u64)?;
    let (runs, requests) = (options.arrival_runs(), options.requests(medium));
    report.begin(
        "arrivals",
        medium,
        Unit::Milliseconds,
        format!(
            "{runs} runs of {requests} requests, a write of 4 KiB and fsync, after {} MiB of overwrites by Zipf \
             0.99; each filesystem on {}, SFS with segments of {}. \"One at a time\" measures the sustained rate; \
             the other rows have requests at random times at half of that rate",
            scale.aged_mib,
            medium.describe(scale.device_len, &scratch),
            medium.segment_size(),
        ),
    );
    let mut fullness = options.full.clone();
    fullness.sort_unstable_by(|one, other| other.cmp(one));
    let mut rate = None;
    for percent in fullness {
        let mut volumes =
            full_volume::make_all(entrants, options, medium, percent, &scratch, report);
        let rate = match rate {
            Some(rate) => rate,
            None => *rate.insert(RATE_SHARE * sustained(&mut volumes, percent, requests, report)?),
        };
        let title = format!("{percent}% full, {rate:.1} a second");
        for run in 0..runs {
            for index in Entrants::in_turn(volumes.len(), run) {
                let volume = &mut volumes[index];
                match volume.overwrite(requests, Some(rate)) {
                    Ok(outcome) => report.add(&title, &volume.entrant.name, run, outcome),
                    Err(error) => report.add_failure(&volume.entrant.name, &title, &error),
                }
            }
        }
        volumes.into_iter().try_for_each(|volume| volume.unmount())?;
    }
    Ok(())
}

/// Returns the lowest rate of all volumes with one request at a time, in requests a second.
fn sustained(
    volumes: &mut [FullVolume<'_>],
    percent: u64,
    requests: u64,
    report: &mut Report,
) -> Result<f64> {
    let title = format!("{percent}% full, one at a time");
    let mut lowest: Option<f64> = None;
    for volume in volumes {
        let mut outcome = volume.overwrite((requests / SUSTAINED_PART).max(1), None)?;
        let rate = outcome.rounds as f64 / outcome.secs;
        outcome.background.insert("requests_per_s".into(), rate);
        report.add(&title, &volume.entrant.name, 0, outcome);
        lowest = Some(lowest.map_or(rate, |lowest| lowest.min(rate)));
    }
    lowest.context("no filesystem sustains any rate")
}
