//! `sfs-lab reproduce segment-size`: the size of erase blocks that `sfs-mkfs` measures, on every profile, new and used.
//!
//! The measurement is that of `sfs-mkfs`, with its default limit of time and with ten times as much. Times are the
//! model's virtual times, so that a limit of 90 seconds is 90 seconds of a real device.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;
use sfs_lab::flash::ModelProbe;
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, run_parallel, table};
use sfs_mkfs::measure::{Budget, Measurement, Probe, Unclear, measure};
use sfs_mkfs::{Human, output};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{Ssd, SsdProfile, profiles};

const GIB: u64 = 1 << 30;

/// Largest change of the time of each request, in percent.
const NOISE_PERCENT: u32 = 20;

/// Seeds of the noise.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Longest virtual time in which a device is overwritten before it counts as used.
const USE_NS: u64 = 600_000_000_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Limits of a measurement in seconds of the device; the first default is that of sfs-mkfs.
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', default_value = "90,900")]
    measure_time: Vec<u64>,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// State of a device before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum DeviceState {
    /// Nothing was ever written.
    New,
    /// Every page was written once, in order.
    Full,
    /// Full, and then overwritten by random requests of 4 KiB.
    Used,
}

const STATES: [DeviceState; 3] = [DeviceState::New, DeviceState::Full, DeviceState::Used];

/// A measurement to make.
struct Case<'a> {
    limit_secs: u64,
    device: &'a SsdProfile,
    state: DeviceState,
    seed: u64,
}

/// A line of the CSV.
#[derive(Serialize)]
struct CsvRow<'a> {
    limit_seconds: u64,
    profile: &'a str,
    layer: String,
    capacity: u64,
    erase_block: u64,
    state: DeviceState,
    seed: u64,
    found: Option<u64>,
    reason: String,
    seconds: f64,
    written: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let devices = devices();
    let seeds =
        |limit_secs, device, state| SEEDS.map(move |seed| Case { limit_secs, device, state, seed });
    let cases: Vec<Case<'_>> = arguments
        .measure_time
        .iter()
        .flat_map(|limit| devices.iter().map(move |device| (*limit, device)))
        .flat_map(|(limit, device)| STATES.map(|state| seeds(limit, device, state)))
        .flatten()
        .collect();
    let found = run_parallel(&cases, measured)?;
    let tables = found.chunks(devices.len() * STATES.len() * SEEDS.len());
    let mut text = format!(
        "Models in virtual time, noise of {NOISE_PERCENT}% in every request, {} seeds: the sizes found, or the size at which the \
         time ran out; in parentheses the longest time of the device and the most bytes written.\n\n",
        SEEDS.len()
    );
    for (limit, found) in arguments.measure_time.iter().zip(tables) {
        text += &table_of(*limit, &devices, found);
    }
    output::print(&text)?;
    let Some(docs) = &arguments.docs else { return Ok(()) };
    let document = Document::new(docs);
    document.file("segment-size.csv", &csv(&cases, &found)?)?;
    document.section("segment-size", &text)
}

/// Returns all profiles as devices of 1 GiB, and the device of 12 GiB that was once left undecided.
fn devices() -> Vec<SsdProfile> {
    let mut devices: Vec<SsdProfile> = profiles();
    let undecided = devices.iter().find(|profile| profile.name == "ssd-m").cloned();
    // The simulator of the SFS paper has erase blocks without clusters, which a write of 4 KiB can fill at full speed.
    devices.retain(|profile| profile.name != "fast12");
    let mut devices: Vec<SsdProfile> =
        devices.into_iter().map(|profile| profile.with_capacity(GIB)).collect();
    devices.extend(
        undecided.map(|profile| {
            profile.with_layer(Layer::Fast { log_blocks: 8 }).with_capacity(12 * GIB)
        }),
    );
    devices
}

fn measured(case: &Case<'_>) -> Result<Measurement> {
    let config = case.device.config();
    let ssd = match case.state {
        DeviceState::New => Ssd::new(&config),
        _ => Ssd::filled(&config),
    };
    let (mut model, region) = ModelProbe::of(ssd.context("too few spare blocks")?);
    if case.state == DeviceState::Used {
        overwrite(&mut model, region.block_count, case.seed)?;
    }
    model.add_noise(NOISE_PERCENT, case.seed);
    let total_ns = case.limit_secs.saturating_mul(1_000_000_000);
    Ok(measure(&mut model, region, Budget { total_ns, ..Budget::DEFAULT }, &mut |_| ())?)
}

/// Writes as many random blocks as there are, for [`USE_NS`] at most.
fn overwrite(model: &mut ModelProbe, block_count: u64, seed: u64) -> Result<()> {
    let mut random = WorkloadRng::new(seed);
    let end_ns = model.now_ns() + USE_NS;
    for _ in 0..block_count {
        if model.now_ns() >= end_ns {
            break;
        }
        model.write(u64::from(random.below(block_count as u32)), 1)?;
    }
    Ok(())
}

/// Returns the table of measurements with a limit of `limit` seconds.
fn table_of(limit: u64, devices: &[SsdProfile], found: &[Measurement]) -> String {
    let first = format!("at most {limit} s");
    let heading = [&first, "erase block", "new", "full", "used"].map(str::to_owned);
    let (mut rows, mut right, mut answers) = (Vec::new(), 0, 0);
    for (device, found) in devices.iter().zip(found.chunks(STATES.len() * SEEDS.len())) {
        let size = device.geometry.cluster_size();
        let capacity = Human(device.geometry.capacity());
        let mut row = vec![format!("{}, {}, {capacity}", device.name, device.layer)];
        row.push(Human(size).to_string());
        row.extend(found.chunks(SEEDS.len()).map(cell));
        right += found.iter().filter(|one| one.segment_size == Some(size)).count();
        answers += found.iter().filter(|one| one.segment_size.is_some()).count();
        rows.push(row);
    }
    format!(
        "{}\nRight in {right} of {} measurements, another size in {}, no answer in {}.\n\n",
        table(&heading, &rows),
        found.len(),
        answers - right,
        found.len() - answers
    )
}

/// Returns what the seeds found, or the reason why they found nothing.
fn cell(seeds: &[Measurement]) -> String {
    let answer = |one: &Measurement| match (one.segment_size, one.unclear) {
        (Some(size), _) => Human(size).to_string(),
        (None, Some(Unclear::TimeRanOut { size })) => format!("time, at {}", Human(size)),
        (None, Some(Unclear::TooSlow)) => "too slow".to_owned(),
        (None, Some(Unclear::Unsettled)) => "cleaning up".to_owned(),
        (None, reason) => reason.map_or("nothing".to_owned(), |reason| reason.to_string()),
    };
    let mut answers: Vec<String> = seeds.iter().map(answer).collect();
    answers.dedup();
    let ms = seeds.iter().map(|one| one.elapsed_ms).max().unwrap_or(0);
    let written = seeds.iter().map(|one| one.written_bytes).max().unwrap_or(0);
    format!("{} ({:.0} s, {})", answers.join(" / "), ms as f64 / 1e3, Human(written))
}

fn csv(cases: &[Case<'_>], found: &[Measurement]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (case, found) in cases.iter().zip(found) {
        writer.serialize(CsvRow {
            limit_seconds: case.limit_secs,
            profile: case.device.name,
            layer: case.device.layer.to_string(),
            capacity: case.device.geometry.capacity(),
            erase_block: case.device.geometry.cluster_size(),
            state: case.state,
            seed: case.seed,
            found: found.segment_size,
            reason: found.unclear.map_or(String::new(), |reason| reason.to_string()),
            seconds: found.elapsed_ms as f64 / 1e3,
            written: found.written_bytes,
        })?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a used page-mapped device has no answer.
    #[test]
    fn the_default_time_is_enough_except_for_a_page_mapped_device_that_cleans_up() {
        for device in &devices() {
            let size = device.geometry.cluster_size();
            for state in STATES {
                let found = measured(&Case { limit_secs: 90, device, state, seed: 1 });
                let found = found.expect("a model");
                let is_cleaning = device.layer == Layer::GREEDY && state == DeviceState::Used;
                let expected = (!is_cleaning).then_some(size);
                let name = device.name;
                assert_eq!(found.segment_size, expected, "{name}, {state:?}:\n{found}");
            }
        }
    }
}
