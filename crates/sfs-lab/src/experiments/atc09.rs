//! `sfs-lab reproduce atc09`: Block Management in Solid-State Devices (Rajimwale et al., ATC 2009).
//!
//! Computes the paper's tables 1 to 6, its figure 2, its section 3.3 and its scheduler (shortest wait time first) in virtual
//! time, and prints them beside the paper's figures.

mod contract;
mod device;
mod large_writes;
mod mixed_cells;
mod priority;
mod saw_tooth;

use std::path::PathBuf;

use anyhow::{Context, Result};
use sfs_lab::block_trace::TraceFolder;
use sfs_lab::random::WorkloadRng;
use sfs_lab::report::{Document, Series, mb_per_s, table, with_bar};
use sfs_mkfs::output;
use sfs_ssd::{HostRequest, RequestKind, RequestQueue, Scheduling, Ssd, SsdConfig, SsdProfile};

use super::informed_cleaning;
use device::{PAGE, cells, filled};

/// Table 2: sequential and random MB/s, of reads and of writes.
const BANDWIDTHS: [(&str, [f64; 4]); 6] = [
    ("paper, HDD", [86.2, 0.6, 86.8, 1.3]),
    ("paper, S1slc", [205.6, 18.7, 169.4, 53.8]),
    ("paper, S2slc", [40.3, 4.4, 32.8, 0.1]),
    ("paper, S3slc", [72.5, 29.9, 75.8, 0.5]),
    ("paper, S4slc_sim", [30.5, 29.1, 24.4, 18.4]),
    ("paper, S5mlc", [68.3, 21.3, 22.5, 15.3]),
];

/// Table 3: mean response in ms by the probability of a sequential write.
const SEQUENTIAL: [f64; 5] = [0.0, 0.2, 0.4, 0.6, 0.8];
const UNALIGNED_MS: [f64; 5] = [10.6, 10.6, 10.5, 10.2, 10.5];
const ALIGNED_MS: [f64; 5] = [10.6, 10.4, 8.9, 7.6, 5.6];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
    /// Number of runs of Postmark for each number of transactions of table 5.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Leave out table 5, which needs Postmark, FUSE and loop devices.
    #[arg(long)]
    no_postmark: bool,
    /// Folder of lab/flash.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let document = arguments.docs.as_deref().map(Document::flash);
    let text = with_bar(|progress| {
        let mut done = 0;
        let mut step = || {
            done += 1;
            progress(done, 9);
        };
        let mut text = contract::table1()?;
        step();
        text += &mixed_cells::section3_3()?;
        step();
        text += &bandwidths()?;
        step();
        text += &saw_tooth::figure2(document.as_ref())?;
        step();
        text += &swtf()?;
        step();
        text += &alignment(document.as_ref())?;
        step();
        text += &large_writes::table4(&arguments.traces)?;
        step();
        if !arguments.no_postmark {
            text += &informed_cleaning::table5(arguments.runs)?;
        }
        step();
        text += &priority::table6(document.as_ref())?;
        step();
        anyhow::Ok(text)
    })?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("atc09", &text))
}

/// Returns the throughput in MB/s of requests of `len` bytes, one after the other, `total` bytes in all.
fn bandwidth(ssd: &mut Ssd, kind: RequestKind, len: u64, total: u64, random: bool) -> f64 {
    let mut draw = WorkloadRng::new(1);
    let slots = (ssd.capacity() / len) as u32;
    let begun_ns = ssd.idle_ns();
    let mut now_ns = begun_ns;
    for no in 0..total / len {
        let slot = if random { draw.below(slots) } else { (no % u64::from(slots)) as u32 };
        let request = HostRequest::new(kind, u64::from(slot) * len, len);
        now_ns = ssd.serve(&request, now_ns).ended_ns;
    }
    mb_per_s(total / len * len, now_ns - begun_ns)
}

/// Returns table 2: the bandwidths of devices.
fn bandwidths() -> Result<String> {
    let heading = cells(&[
        "table 2",
        "read: sequential",
        "random",
        "ratio",
        "write: sequential",
        "random",
        "ratio",
    ]);
    let line = |name: &str, [sr, rr, sw, rw]: [f64; 4]| {
        let ratio = |sequential: f64, random: f64| format!("{:.1}", sequential / random.max(1e-9));
        let mb = |speed: f64| format!("{speed:.2}");
        vec![name.to_owned(), mb(sr), mb(rr), ratio(sr, rr), mb(sw), mb(rw), ratio(sw, rw)]
    };
    let mut rows: Vec<Vec<String>> =
        BANDWIDTHS.iter().map(|(name, speeds)| line(name, *speeds)).collect();
    let named = ["ssd-h", "ssd-m", "ssd-l", "sandisk", "mtron", "sd"];
    let mut configs = vec![("eight packages".to_owned(), SsdConfig::eight_packages(1, 1, 100))];
    for name in named {
        let profile = SsdProfile::by_name(name).context("a profile")?.with_capacity(1 << 30);
        let shown = format!("{name}, {}", profile.layer);
        configs.push((shown, profile.config()));
    }
    for (name, config) in configs {
        let mut ssd = filled(&config)?;
        let total = ssd.capacity().min(256 << 20);
        let speeds = [
            bandwidth(&mut ssd, RequestKind::Read, 1 << 20, total, false),
            bandwidth(&mut ssd, RequestKind::Read, PAGE, total / 16, true),
            bandwidth(&mut ssd, RequestKind::Write, 1 << 20, total, false),
            bandwidth(&mut ssd, RequestKind::Write, PAGE, total / 64, true),
        ];
        rows.push(line(&name, speeds));
    }
    Ok(format!(
        "MB/s, one request at a time. Ours: sequential requests of 1 MiB and random requests of 4 KiB, on full devices.\n\n{}\n",
        table(&heading, &rows)
    ))
}

/// Returns the comparison of schedulers of section 3.2: random requests, two thirds of them reads.
fn swtf() -> Result<String> {
    let heading = cells(&[
        "SWTF: mean gap between requests, ms",
        "FCFS, ms",
        "SWTF, ms",
        "shorter by (the paper: about 8%)",
    ]);
    let config = SsdConfig::eight_packages(1, 1, 100);
    let mut rows = Vec::new();
    for gap_ns in [400_000, 300_000, 250_000, 200_000, 150_000] {
        let requests = |pages: u32| {
            let mut random = WorkloadRng::new(7);
            let mut at_ns = 0;
            (0..20_000).map(move |_| {
                at_ns += u64::from(random.below(gap_ns));
                let read = random.below(3) > 0;
                let kind = if read { RequestKind::Read } else { RequestKind::Write };
                let offset = u64::from(random.below(pages)) * PAGE;
                HostRequest { arrival_ns: at_ns, ..HostRequest::new(kind, offset, PAGE) }
            })
        };
        let pages = config.geometry.pages();
        let fcfs = RequestQueue::FCFS.respond(&mut filled(&config)?, requests(pages)).mean_ms();
        let queue = RequestQueue { scheduling: Scheduling::Swtf, ..RequestQueue::FCFS };
        let swtf = queue.respond(&mut filled(&config)?, requests(pages)).mean_ms();
        rows.push(vec![
            format!("{:.3}", f64::from(gap_ns) / 2e6),
            format!("{fcfs:.3}"),
            format!("{swtf:.3}"),
            format!("{:.1}%", (1.0 - swtf / fcfs) * 100.0),
        ]);
    }
    Ok(format!("{}\n", table(&heading, &rows)))
}

/// Returns table 3: responses of writes that are aligned to the pages of the device, and of others.
fn alignment(document: Option<&Document>) -> Result<String> {
    let heading = cells(&[
        "table 3: probability of a sequential write",
        "unaligned, ms: paper",
        "ours",
        "aligned, ms: paper",
        "ours",
        "aligned / unaligned: paper",
        "ours",
    ]);
    let config = SsdConfig::eight_packages(8, 8, 200);
    let merging = RequestQueue { merging: true, ..RequestQueue::FCFS };
    let (mut rows, mut curves) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (no, sequential) in SEQUENTIAL.into_iter().enumerate() {
        let requests = || runs(config.geometry.capacity(), sequential);
        let plain = RequestQueue::FCFS.respond(&mut filled(&config)?, requests()).mean_ms();
        let aligned = merging.respond(&mut filled(&config)?, requests()).mean_ms();
        curves[0].push((sequential, ALIGNED_MS[no] / UNALIGNED_MS[no]));
        curves[1].push((sequential, aligned / plain));
        rows.push(vec![
            format!("{sequential:.1}"),
            format!("{:.1}", UNALIGNED_MS[no]),
            format!("{plain:.2}"),
            format!("{:.1}", ALIGNED_MS[no]),
            format!("{aligned:.2}"),
            format!("{:.2}", ALIGNED_MS[no] / UNALIGNED_MS[no]),
            format!("{:.2}", aligned / plain),
        ]);
    }
    if let Some(document) = document {
        let [paper, ours] = curves;
        let series = [Series::new("paper", paper), Series::new("ours", ours)];
        document.figure("atc09-alignment", &series)?;
    }
    Ok(format!("{}\n", table(&heading, &rows)))
}

/// Returns writes of 4 KiB, each of which continues the one before with probability `sequential`.
fn runs(capacity: u64, sequential: f64) -> impl Iterator<Item = HostRequest> {
    let mut random = WorkloadRng::new(3);
    let (mut at_ns, mut block) = (0, 0);
    (0..10_000).map(move |_| {
        at_ns += u64::from(random.below(3_500_000));
        let blocks = (capacity / PAGE) as u32;
        block = match random.unit() < sequential {
            true => (block + 1) % blocks,
            false => random.below(blocks),
        };
        let request = HostRequest::new(RequestKind::Write, u64::from(block) * PAGE, PAGE);
        HostRequest { arrival_ns: at_ns, ..request }
    })
}
