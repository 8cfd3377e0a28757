//! `sfs-lab reproduce fast09`: figures 2 and 3 and table 2 of the FAST 2009 paper (a performance model and space
//! allocation schemes for SSDs).
//!
//! Computes, in virtual time, the response of every request on Mtron's flash, and the throughput by size of
//! request on three devices; and the memory of the allocation schemes.

mod memory;

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_lab::flash::{BUDGET, ModelProbe};
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, Series, table, with_bar};
use sfs_mkfs::measure::{measure, sweep};
use sfs_mkfs::{Human, output};
use sfs_ssd::ftl::Layer;
use sfs_ssd::{HostRequest, RequestKind, Ssd, SsdProfile};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Number of bytes that the paper writes in each run, and the size of our devices.
const WRITTEN: u64 = 1 << 30;

/// Sizes of requests in figure 2, in bytes.
const SIZES: [u64; 3] = [8 * KIB, MIB, 4 * MIB];

/// Layers of figure 2, by the bound on the number of logical blocks that share a log block: all, four, and one. The figures show
/// the first.
const LAYERS: [Layer; 3] = [
    Layer::Fast { log_blocks: 8 },
    Layer::Superblock { log_blocks: 8, width: 4 },
    Layer::Bast { log_blocks: 8 },
];

/// Number of requests that a plot shows.
const SHOWN: usize = 1500;

/// Multiple of the median above which a response is a spike.
const SPIKE_MEDIANS: u64 = 2;

/// Sizes of the logical blocks that the paper found (figure 3), in bytes.
const LOGICAL_BLOCKS: [(&str, u64); 3] =
    [("sandisk", 4 * MIB), ("samsung", 8 * MIB), ("mtron", 4 * MIB)];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of lab/flash.md, whose section is replaced.
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
        anyhow::Ok(format!("{spikes}\n{sizes}{}", memory::table2(&LOGICAL_BLOCKS)?))
    })?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("fast09", &text))
}

/// Returns the response times in ns of writes of `len` bytes on Mtron's flash with another layer, `WRITTEN` bytes
/// together. Every offset is written once.
fn responses(layer: Layer, len: u64, random: bool) -> Result<Vec<u64>> {
    let profile = SsdProfile::by_name("mtron").context("a profile")?;
    let profile = profile.with_layer(layer).with_capacity(WRITTEN);
    let mut ssd = Ssd::new(&profile.config()).context("too few spare blocks")?;
    let mut now_ns = 0;
    for no in 0..WRITTEN / MIB {
        now_ns = ssd.serve(&HostRequest::new(RequestKind::Write, no * MIB, MIB), now_ns).ended_ns;
    }
    let slots = (WRITTEN / len) as u32;
    let order = if random {
        WorkloadRng::new(1).permutation(slots)
    } else {
        (0..slots).collect::<Vec<_>>()
    };
    let serve = |slot: u32| {
        let request = HostRequest::new(RequestKind::Write, u64::from(slot) * len, len);
        let begun_ns = now_ns;
        now_ns = ssd.serve(&request, begun_ns).ended_ns;
        now_ns - begun_ns
    };
    Ok(order.into_iter().map(serve).collect())
}

/// Returns figure 2: the response of every request.
fn spikes(document: Option<&Document>, progress: &mut dyn FnMut(u64)) -> Result<String> {
    let heading = [
        "figure 2: request",
        "order",
        "layer",
        "median, ms",
        "99%, ms",
        "longest, ms",
        "spikes",
        "time in spikes",
    ];
    let mut rows = Vec::new();
    for (no, len) in (1..).zip(SIZES) {
        let mut series: Vec<Series> = Vec::new();
        for layer in LAYERS {
            for (name, random) in [("random", true), ("sequential", false)] {
                let responses = responses(layer, len, random)?;
                if layer == LAYERS[0] {
                    let points = responses.iter().take(SHOWN).enumerate();
                    let points = points.map(|(no, &ns)| (no as f64, ns as f64 / 1e6));
                    series.push(Series::new(name, points.collect()));
                }
                rows.push(spike_row(len, name, layer, responses));
            }
        }
        if let Some(document) = document {
            document.figure(&format!("fast09-spikes-{}k", len / KIB), &series)?;
        }
        progress(no);
    }
    Ok(format!(
        "Writes of 1 GiB in each order, every offset once, on a full device of 1 GiB with Mtron's flash. A \
         spike takes longer than {SPIKE_MEDIANS} medians.\n\n{}",
        table(&heading.map(str::to_owned), &rows)
    ))
}

fn spike_row(len: u64, name: &str, layer: Layer, mut responses: Vec<u64>) -> Vec<String> {
    responses.sort_unstable();
    let at = |share: f64| responses[((responses.len() - 1) as f64 * share) as usize];
    let ms = |ns: u64| format!("{:.2}", ns as f64 / 1e6);
    let first = responses.partition_point(|&ns| ns <= SPIKE_MEDIANS * at(0.5));
    let sum = |part: &[u64]| part.iter().sum::<u64>() as f64;
    let share = (responses.len() - first) as f64 / responses.len() as f64;
    vec![
        Human(len).to_string(),
        name.to_owned(),
        layer.to_string(),
        ms(at(0.5)),
        ms(at(0.99)),
        ms(at(1.0)),
        format!("{:.1}%", share * 100.0),
        format!("{:.0}%", sum(&responses[first..]) / sum(&responses) * 100.0),
    ]
}

/// Returns figure 3: the throughput by size of request.
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
        let found = found.map_or("not found".into(), |size| Human(size).to_string());
        rows.push(vec![name.to_owned(), Human(paper).to_string(), found]);
        let mb = |kb_per_s: u64| kb_per_s as f64 / 1000.0;
        let points = |random: bool| -> Vec<(f64, f64)> {
            let mut points: Vec<(f64, f64)> = measured
                .iter()
                .map(|row| {
                    let kb = if random { row.random_kb_per_s } else { row.sequential_kb_per_s };
                    ((row.size / KIB) as f64, mb(kb))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points
        };
        let series =
            [Series::new("sequential", points(false)), Series::new("random", points(true))];
        curves.push((name, measured.clone()));
        if let Some(document) = document {
            document.figure(&format!("fast09-sizes-{name}"), &series)?;
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
