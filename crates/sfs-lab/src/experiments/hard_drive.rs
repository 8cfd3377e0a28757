//! `sfs-lab reproduce hard-drive`: the model of a hard drive against its data sheet, in virtual time.
//!
//! Four tables: the times that the data sheet states; the bandwidth of each zone; random reads a second by the
//! depth of the command queue; equation 1 of the FAST 2009 paper.

mod equation;

use std::path::PathBuf;

use anyhow::Result;
use sfs_hdd::{CommandQueue, DriveProfile, HardDrive, SECTOR_SIZE, profiles};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, Series, table};
use sfs_mkfs::output;
use sfs_ssd::{HostRequest, RequestKind};

/// Depths of the command queue.
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Number of reads of a measurement of random reads.
const READS: u64 = 4096;

/// Seeds of the random reads.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Length of the sequential reads, and of one of them, in bytes.
const SEQUENTIAL: u64 = 16 << 20;
const COMMAND: u64 = 128 << 10;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut text = String::new();
    for profile in profiles() {
        text += &format!("{} ({}).\n\n", profile.device, profile.source);
        text += &data_sheet(&profile);
        text.push('\n');
        text += &zones(&profile);
        text.push('\n');
        text += &depths(&profile);
        text.push('\n');
        let points = equation::points(&profile, mean_seek_ms(&profile));
        text += &equation::text(&points);
        if let Some(docs) = &arguments.docs {
            Document::new(docs).figure("hard-drive-seek", &[seek_series(&profile)])?;
            Document::new(docs).figure("hard-drive-zones", &zone_series(&profile))?;
            Document::new(docs).figure("hard-drive-depth", &depth_series(&profile))?;
            Document::new(docs).figure("hard-drive-equation", &equation::series(&points))?;
        }
    }
    output::print(&text)?;
    match &arguments.docs {
        Some(docs) => Document::new(docs).section("hard-drive", &text),
        None => Ok(()),
    }
}

fn row(name: &str, stated: f64, model: f64) -> Vec<String> {
    let ratio = model / stated;
    vec![name.to_owned(), format!("{stated:.2}"), format!("{model:.2}"), format!("{ratio:.3}")]
}

/// Returns the table of the figures that the data sheet states.
fn data_sheet(profile: &DriveProfile) -> String {
    let sheet = &profile.data_sheet;
    let last = profile.geometry.zones.len() - 1;
    let rows = [
        row("mean read seek, ms", sheet.mean_seek_ms, mean_seek_ms(profile)),
        row("sustained, zone 0, MB/s", sheet.outer_mb_per_s, zone_mb_per_s(profile, 0)),
        row(
            &format!("sustained, zone {last}, MB/s"),
            sheet.inner_mb_per_s,
            zone_mb_per_s(profile, last),
        ),
        row("16 MiB from zone 0, s", sheet.outer_16mib_s, sheet.typical * read_s(profile, 0)),
        row(
            &format!("16 MiB from zone {last}, s"),
            sheet.inner_16mib_s,
            sheet.typical * read_s(profile, last),
        ),
        row(
            "4,096 random reads of a sector, s",
            sheet.random_4096_s,
            sheet.typical * READS as f64 / random_per_s(profile, 1, SECTOR_SIZE, 1),
        ),
    ];
    let heading = ["", "data sheet", "model", "ratio"].map(str::to_owned);
    table(&heading, &rows)
}

/// Returns the mean time of the seeks between all pairs of cylinders, in milliseconds.
fn mean_seek_ms(profile: &DriveProfile) -> f64 {
    let (curve, cylinders) = (profile.seek_curve(), profile.geometry.cylinders());
    let number = f64::from(cylinders);
    let weight = |distance: u32| 2.0 * (number - f64::from(distance)) / (number * (number - 1.0));
    (1..cylinders).map(|distance| weight(distance) * curve.ns(distance) as f64 / 1e6).sum()
}

/// Returns the first byte of a zone that begins a block.
fn zone_offset(profile: &DriveProfile, zone: usize) -> u64 {
    (profile.geometry.zone_start(zone) * SECTOR_SIZE).next_multiple_of(4096)
}

/// Serves reads in order from the beginning of a zone, after one at the other end of the drive, and returns the
/// seconds that they take.
fn sequential_s(profile: &DriveProfile, zone: usize, bytes: u64) -> f64 {
    let mut drive = HardDrive::new(profile.clone());
    let from = zone_offset(profile, zone);
    let middle = zone_offset(profile, profile.geometry.zones.len() / 2);
    let away = HostRequest::new(RequestKind::Read, middle, SECTOR_SIZE);
    let began_ns = drive.serve(&away, 0).ended_ns;
    let mut now_ns = began_ns;
    for offset in (from..from + bytes).step_by(COMMAND as usize) {
        let request = HostRequest::new(RequestKind::Read, offset, COMMAND);
        now_ns = drive.serve(&request, now_ns).ended_ns;
    }
    (now_ns - began_ns) as f64 / 1e9
}

fn zone_mb_per_s(profile: &DriveProfile, zone: usize) -> f64 {
    let bytes = 16 * SEQUENTIAL;
    bytes as f64 / 1e6 / sequential_s(profile, zone, bytes)
}

fn read_s(profile: &DriveProfile, zone: usize) -> f64 {
    sequential_s(profile, zone, SEQUENTIAL)
}

/// Returns random reads a second.
fn random_per_s(profile: &DriveProfile, depth: usize, len: u64, seed: u64) -> f64 {
    let mut drive = HardDrive::new(profile.clone());
    let places = (drive.capacity() / len) as u32;
    let mut rng = WorkloadRng::new(seed);
    let requests = (0..READS)
        .map(move |_| HostRequest::new(RequestKind::Read, u64::from(rng.below(places)) * len, len));
    let ended_ns = CommandQueue::new(depth).run(&mut drive, 0, requests, |_, _| ());
    READS as f64 / (ended_ns as f64 / 1e9)
}

/// Returns the table of the bandwidth by zone.
fn zones(profile: &DriveProfile) -> String {
    let last = profile.geometry.zones.len() - 1;
    let heading = ["zone", "sectors of a track", "MB/s"].map(str::to_owned);
    let rows: Vec<Vec<String>> = (0..=last)
        .filter(|zone| zone.is_multiple_of(5) || *zone == last)
        .map(|zone| {
            let sectors = profile.geometry.zones[zone].track_sectors;
            vec![
                zone.to_string(),
                sectors.to_string(),
                format!("{:.1}", zone_mb_per_s(profile, zone)),
            ]
        })
        .collect();
    table(&heading, &rows)
}

/// Returns the reads a second at a depth, one for each seed.
fn by_seed(profile: &DriveProfile, depth: usize) -> Vec<f64> {
    SEEDS.iter().map(|&seed| random_per_s(profile, depth, 4096, seed)).collect()
}

/// Returns the table of random reads by the depth of the queue.
fn depths(profile: &DriveProfile) -> String {
    let heading = ["depth", "reads of 4 KiB a second", "least", "greatest"].map(str::to_owned);
    let rows: Vec<Vec<String>> = DEPTHS
        .iter()
        .map(|&depth| {
            let rates = by_seed(profile, depth);
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = rates.iter().copied().fold(0.0, f64::max);
            let mut row = vec![depth.to_string()];
            row.extend([mean, least, greatest].map(|rate| format!("{rate:.1}")));
            row
        })
        .collect();
    table(&heading, &rows)
}

fn seek_series(profile: &DriveProfile) -> Series {
    let (curve, cylinders) = (profile.seek_curve(), profile.geometry.cylinders());
    let point = |part: u32| {
        let distance = (cylinders - 1) * part / 100;
        (f64::from(part), curve.ns(distance.max(1)) as f64 / 1e6)
    };
    Series::new("model", (0..=100).map(point).collect())
}

fn zone_series(profile: &DriveProfile) -> Vec<Series> {
    let last = profile.geometry.zones.len() - 1;
    let model = (0..=last).map(|zone| (zone as f64, zone_mb_per_s(profile, zone))).collect();
    let sheet = &profile.data_sheet;
    // Two points; a line between them would claim more than the data sheet says.
    let outer = Series::new("data sheet, zone 0", vec![(0.0, sheet.outer_mb_per_s)]);
    let inner =
        Series::new(format!("data sheet, zone {last}"), vec![(last as f64, sheet.inner_mb_per_s)]);
    vec![Series::new("model", model), outer, inner]
}

fn depth_series(profile: &DriveProfile) -> Vec<Series> {
    let mean = |depth| {
        let rates = by_seed(profile, depth);
        rates.iter().sum::<f64>() / rates.len() as f64
    };
    let model = DEPTHS.iter().map(|&depth| (depth as f64, mean(depth))).collect();
    let sheet = &profile.data_sheet;
    let stated = vec![(1.0, READS as f64 * sheet.typical / sheet.random_4096_s)];
    vec![Series::new("model", model), Series::new("data sheet", stated)]
}
