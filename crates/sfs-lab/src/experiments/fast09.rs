//! `sfs-lab reproduce fast09`: figures 2 and 3 of the FAST 2009 paper (a performance model and space
//! allocation schemes for SSDs).
//!
//! Owns: response times by request on Mtron's flash, throughput by request size on three devices.
//! Promises: every figure that is called ours has just been computed, in virtual time.
//! Never: says whether they agree: docs/lab/flash.md does.

pub(crate) mod schemes;

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_lab::document::{Document, table};
use sfs_lab::random::Random;
use sfs_lab::svg::{self, Series};
use sfs_mkfs::measure::{measure, sweep};
use sfs_mkfs::{Human, output};
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdProfile};

use crate::commands::model::{BUDGET, ModelProbe};
use crate::commands::progress::with_bar;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes that the paper writes in each run, and of our devices.
const WRITTEN: u64 = 1 << 30;

/// Figure 2: sizes of requests.
const SIZES: [u64; 3] = [8 * KIB, MIB, 4 * MIB];

/// Requests that a plot shows.
const SHOWN: usize = 1500;

/// A response is a spike if it takes so many times the median.
const SPIKE: u64 = 2;

/// Figure 3: the logical blocks that the paper found.
const LOGICAL_BLOCKS: [(&str, u64); 3] =
    [("sandisk", 4 * MIB), ("samsung", 8 * MIB), ("mtron", 4 * MIB)];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder with lab/flash.md, to be written into.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let document = arguments.docs.as_deref().map(Document::flash);
    let total = (SIZES.len() + LOGICAL_BLOCKS.len()) as u64;
    let text = with_bar(|progress| {
        let spikes = spikes(document.as_ref(), &mut |done| progress(done, total))?;
        let sizes =
            sizes(document.as_ref(), &mut |done| progress(SIZES.len() as u64 + done, total))?;
        anyhow::Ok(format!("{spikes}\n{sizes}"))
    })?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("fast09", &text))
}

/// Response times in ns of `WRITTEN` bytes in requests of `len`, each place once, on Mtron's flash.
fn responses(len: u64, random: bool) -> Result<Vec<u64>> {
    let profile = SsdProfile::by_name("mtron").context("a profile")?.with_capacity(WRITTEN);
    let mut ssd = Ssd::new(&profile.config()).context("too few spare blocks")?;
    let mut now_ns = 0;
    for place in 0..WRITTEN / MIB {
        now_ns =
            ssd.serve(&HostRequest::new(RequestKind::Write, place * MIB, MIB), now_ns).ended_ns;
    }
    let places = (WRITTEN / len) as u32;
    let order =
        if random { Random::new(1).permutation(places) } else { (0..places).collect::<Vec<_>>() };
    let serve = |place: u32| {
        let request = HostRequest::new(RequestKind::Write, u64::from(place) * len, len);
        let begun_ns = now_ns;
        now_ns = ssd.serve(&request, begun_ns).ended_ns;
        now_ns - begun_ns
    };
    Ok(order.into_iter().map(serve).collect())
}

fn spikes(document: Option<&Document>, progress: &mut dyn FnMut(u64)) -> Result<String> {
    let heading = [
        "figure 2: request",
        "order",
        "median, ms",
        "99%, ms",
        "longest, ms",
        "spikes",
        "time in spikes",
    ];
    let mut rows = Vec::new();
    for (no, len) in (1..).zip(SIZES) {
        let mut series: Vec<Series> = Vec::new();
        for (name, random) in [("random", true), ("sequential", false)] {
            let responses = responses(len, random)?;
            let points = responses.iter().take(SHOWN).enumerate();
            let points = points.map(|(no, &ns)| (no as f64, ns as f64 / 1e6));
            series.push((name.to_owned(), points.collect()));
            rows.push(spike_row(len, name, responses));
        }
        if let Some(document) = document {
            let title = format!("Mtron, response by request, {}", Human(len));
            let plot = svg::lines(&title, "request", "ms", &series);
            document.file(&format!("fast09-spikes-{}k.svg", len / KIB), &plot)?;
        }
        progress(no);
    }
    Ok(format!(
        "1 GiB in each order, each place once, on 1 GiB of Mtron's flash (FAST) that is full. A spike takes more \
         than {SPIKE} medians.\n\n{}",
        table(&heading.map(str::to_owned), &rows)
    ))
}

fn spike_row(len: u64, name: &str, mut responses: Vec<u64>) -> Vec<String> {
    responses.sort_unstable();
    let at = |share: f64| responses[((responses.len() - 1) as f64 * share) as usize];
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let first = responses.partition_point(|&ns| ns <= SPIKE * at(0.5));
    let sum = |part: &[u64]| part.iter().sum::<u64>() as f64;
    let share = (responses.len() - first) as f64 / responses.len() as f64;
    vec![
        Human(len).to_string(),
        name.to_owned(),
        ms(at(0.5)),
        ms(at(0.99)),
        ms(at(1.0)),
        format!("{:.1}%", share * 100.0),
        format!("{:.0}%", sum(&responses[first..]) / sum(&responses) * 100.0),
    ]
}

fn sizes(document: Option<&Document>, progress: &mut dyn FnMut(u64)) -> Result<String> {
    let heading = ["figure 3: device", "logical block: paper", "ours"];
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    for (no, (name, paper)) in (1..).zip(LOGICAL_BLOCKS) {
        let config =
            SsdProfile::by_name(name).context("a profile")?.with_capacity(WRITTEN).config();
        let (mut probe, region) = ModelProbe::new(&config)?;
        let found = measure(&mut probe, region, BUDGET, &mut |_| ())?.segment_size;
        let (mut probe, region) = ModelProbe::new(&config)?;
        let measured = sweep(&mut probe, region, BUDGET, 4 * KIB)?;
        let found = found.map_or("could not tell".into(), |size| Human(size).to_string());
        rows.push(vec![name.to_owned(), Human(paper).to_string(), found]);
        let mb = |kb_per_s: u64| kb_per_s as f64 / 1000.0;
        let points = |random: bool| -> Vec<(f64, f64)> {
            let mut points: Vec<(f64, f64)> = measured
                .iter()
                .map(|row| {
                    let kb = if random { row.random_kb_per_s } else { row.sequential_kb_per_s };
                    (((row.size / KIB) as f64).log2(), mb(kb))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let series: [Series; 2] =
            [("sequential".into(), points(false)), ("random".into(), points(true))];
        curves.push((name, measured.clone()));
        if let Some(document) = document {
            let title = format!("{name}: throughput by size of request");
            let plot = svg::lines(&title, "log2 of KiB", "MB/s", &series);
            document.file(&format!("fast09-sizes-{name}.svg"), &plot)?;
        }
        progress(no);
    }
    let mut text = table(&heading.map(str::to_owned), &rows);
    let mut heading = vec!["MB/s, sequential / random".to_owned()];
    heading.extend(curves.iter().map(|(name, _)| (*name).to_owned()));
    let mut all: Vec<u64> =
        curves.iter().flat_map(|(_, measured)| measured.iter().map(|row| row.size)).collect();
    all.sort_unstable();
    all.dedup();
    let line = |&size: &u64| {
        let mut line = vec![Human(size).to_string()];
        line.extend(curves.iter().map(|(_, measured)| {
            let row = measured.iter().find(|row| row.size == size);
            row.map_or(String::new(), |row| {
                let mb = |kb_per_s: u64| kb_per_s as f64 / 1000.0;
                format!("{:.1} / {:.1}", mb(row.sequential_kb_per_s), mb(row.random_kb_per_s))
            })
        }));
        line
    };
    text.push('\n');
    text += &table(&heading, &all.iter().map(line).collect::<Vec<_>>());
    Ok(text)
}
