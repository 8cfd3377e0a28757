//! `sfs-lab reproduce random-writes`: figure 1 of the SFS paper, random write bandwidth by the size of the requests, in
//! virtual time.
//!
//! Each size has a device of its own, which is full, and was overwritten twice by random requests of the same size.

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, Series, mb_per_s, run_parallel, table};
use sfs_mkfs::{Human, output, parse_size};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdProfile};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The devices, with the paper's MB/s of random writes of 4 KiB and of sequential writes (table 1), and the size from which
/// on random writes are as fast as sequential ones.
const DEVICES: [(&str, f64, f64, u64); 3] = [
    ("ssd-h", 5.3, 170.0, 16 * MIB),
    ("ssd-m", 0.6, 87.0, 32 * MIB),
    ("ssd-l", 0.002, 38.0, 16 * MIB),
];

/// Binary logarithms of the sizes of the requests: 4 KiB to 64 MiB.
const SIZES_LOG2: std::ops::RangeInclusive<u32> = 12..=26;

/// Seeds of the order of the requests.
const SEEDS: [u64; 3] = [1, 2, 3];

/// Longest virtual time of the overwriting before a measurement, and of a measurement: a device that merges a block for
/// each request is in a steady state long before.
const LIMIT_NS: u64 = 1_200_000_000_000;

/// Least share of the sequential bandwidth at which random writes count as equally fast.
const CLOSE: f64 = 0.95;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Size of the devices.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4G")]
    size: u64,
    /// Folder of lab/flash.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// A measurement on a device.
struct Case {
    device: &'static str,
    len: u64,
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let sizes = || SIZES_LOG2.map(|bits| 1_u64 << bits).filter(|len| *len * 8 <= arguments.size);
    let case = |device, len| SEEDS.map(|seed| Case { device, len, seed });
    let cases: Vec<Case> =
        DEVICES.iter().flat_map(|(name, ..)| sizes().flat_map(|len| case(*name, len))).collect();
    let rates = run_parallel(&cases, |case| random_mb_per_s(case, arguments.size))?;
    let curves: Vec<Vec<MeanRange>> = rates
        .chunks(sizes().count() * SEEDS.len())
        .map(|device| device.chunks(SEEDS.len()).map(MeanRange::of).collect())
        .collect();
    let sizes: Vec<u64> = sizes().collect();
    let text = text(arguments, &sizes, &curves);
    output::print(&text)?;
    let Some(docs) = &arguments.docs else { return Ok(()) };
    let document = Document::flash(docs);
    document.figure("random-writes", &series(&sizes, &curves))?;
    document.section("random-writes", &text)
}

/// Mean, least and greatest of the seeds, in MB/s.
struct MeanRange {
    mean: f64,
    least: f64,
    greatest: f64,
}

impl MeanRange {
    fn of(rates: &[f64]) -> Self {
        Self {
            mean: rates.iter().sum::<f64>() / rates.len() as f64,
            least: rates.iter().copied().fold(f64::INFINITY, f64::min),
            greatest: rates.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Returns the throughput of random writes on a used device.
fn random_mb_per_s(case: &Case, size: u64) -> Result<f64> {
    let profile = SsdProfile::by_name(case.device).context("a profile")?.with_capacity(size);
    let mut ssd = Ssd::filled(&profile.config()).context("too few spare blocks")?;
    let slots = (ssd.capacity() / case.len) as u32;
    let mut random = WorkloadRng::new(case.seed);
    let mut now_ns = ssd.idle_ns();
    let mut write = |bytes: u64| {
        let (began_ns, mut written) = (now_ns, 0);
        while written < bytes && now_ns - began_ns < LIMIT_NS {
            let offset = u64::from(random.below(slots)) * case.len;
            now_ns =
                ssd.serve(&HostRequest::new(RequestKind::Write, offset, case.len), now_ns).ended_ns;
            written += case.len;
        }
        mb_per_s(written, now_ns - began_ns)
    };
    write(2 * size);
    Ok(write(size))
}

fn text(arguments: &Arguments, sizes: &[u64], curves: &[Vec<MeanRange>]) -> String {
    let mut heading = vec!["MB/s of random writes".to_owned()];
    heading.extend(DEVICES.iter().map(|(name, ..)| (*name).to_owned()));
    let digits = |rate: f64| if rate < 1.0 { format!("{rate:.3}") } else { format!("{rate:.1}") };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (no, len) in sizes.iter().enumerate() {
        let cell = |curve: &Vec<MeanRange>| {
            let MeanRange { mean, least, greatest } = curve[no];
            format!("{} ({}..{})", digits(mean), digits(least), digits(greatest))
        };
        rows.push([Human(*len).to_string()].into_iter().chain(curves.iter().map(cell)).collect());
    }
    let mut paper = |name: &str, cell: &dyn Fn(usize) -> String| {
        let cells = (0..DEVICES.len()).map(cell);
        rows.push([name.to_owned()].into_iter().chain(cells).collect());
    };
    paper("paper: 4 KiB", &|no| DEVICES[no].1.to_string());
    paper("paper: sequential", &|no| DEVICES[no].2.to_string());
    paper("paper: as fast as sequential from", &|no| Human(DEVICES[no].3).to_string());
    paper("ours: as fast as sequential from", &|no| {
        let is_fast = |range: &MeanRange| range.mean >= CLOSE * DEVICES[no].2;
        let first = curves[no].iter().position(is_fast);
        first.map_or("none".into(), |first| Human(sizes[first]).to_string())
    });
    format!(
        "Devices of {}, full and overwritten twice at random before the measurement of as much again, each at most {:.0} \
         minutes of the device; means of {} seeds, and the least and greatest.\n\n{}",
        Human(arguments.size),
        LIMIT_NS as f64 / 60e9,
        SEEDS.len(),
        table(&heading, &rows)
    )
}

fn series(sizes: &[u64], curves: &[Vec<MeanRange>]) -> Vec<Series> {
    let kib = |len: u64| (len / KIB) as f64;
    let mut series = Vec::new();
    for ((name, random, sequential, equal), curve) in DEVICES.iter().zip(curves) {
        let points = sizes.iter().zip(curve).map(|(len, range)| (kib(*len), range.mean));
        series.push(Series::new(*name, points.collect()));
        let paper = vec![(4.0, *random), (kib(*equal), *sequential)];
        series.push(Series::new(format!("{name}, paper"), paper));
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_writes_of_whole_erase_blocks_are_fast() {
        let speed = |len| {
            random_mb_per_s(&Case { device: "ssd-h", len, seed: 1 }, 512 * MIB).expect("a device")
        };
        assert!(speed(16 * MIB) > CLOSE * 170.0);
        assert!(speed(8 * MIB) < 0.7 * 170.0);
    }
}
