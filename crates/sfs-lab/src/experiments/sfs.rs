//! `sfs-lab reproduce sfs`: the experiments of the SFS paper, its figures beside ours.
//!
//! Owns: the paper's figures (SSD-M), as `papers.md` has read them from its plots.
//! Promises: every figure that is called ours has just been simulated.
//! Never: says whether they agree: docs/lab.md does.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::document::{Document, table};
use sfs_lab::outcome::{Outcome, share};
use sfs_lab::run::{Experiment, Metadata};
use sfs_lab::simulation::{Buffering, HISTOGRAM_BINS, SpaceRequest, Writing};
use sfs_lab::svg::{self, Series};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

/// Write cost by number of groups, 1 to 6, for Zipf and TPC-C (papers.md 1.9).
const GROUPS: [[f64; 6]; 2] =
    [[6.96, 6.15, 5.29, 4.21, 3.78, 3.15], [5.98, 4.95, 3.79, 2.64, 2.66, 2.30]];

/// Write cost by partitioning. The paper's text calls equal width what has as many segments in every
/// group, and equal height the other (papers.md 1.4); its figures are set against what is meant.
const PARTITIONS: [(&str, [f64; 2]); 3] =
    [("sfs-equal-count", [6.03, 5.07]), ("sfs-equal-width", [4.83, 3.57]), ("sfs", [4.21, 2.64])];

/// Write cost by victim selection, 4 groups.
const VICTIMS: [(&str, [f64; 2]); 2] =
    [("cost-benefit", [4.48, 2.81]), ("cost-hotness", [4.21, 2.64])];

const UTILIZATIONS: [f64; 6] = [0.4, 0.6, 0.7, 0.8, 0.85, 0.9];

/// Write cost by utilization: LFS with cost-benefit and one group, and SFS.
const COSTS: [(&str, [[f64; 6]; 2]); 3] = [
    ("zipf:0.99", [[1.23, 2.34, 2.75, 4.42, 6.12, 17.46], [1.05, 1.82, 1.45, 2.63, 4.21, 7.91]]),
    ("uniform", [[1.24, 1.99, 2.83, 5.06, 7.55, 30.19], [1.10, 1.35, 2.00, 4.17, 7.09, 21.78]]),
    ("tpcc", [[1.03, 2.07, 3.17, 4.04, 5.42, 22.64], [1.02, 1.38, 1.86, 2.07, 2.63, 5.12]]),
];

/// The paper does not give its working set. With uniform writes, LFS at each of its utilizations has
/// the write amplification of a log whose blocks are 0.21 of the disk, whose cleaner keeps 5% clean,
/// and of which the rest is never cleaned (docs/lab.md).
const WORKING_SET: f64 = 0.21;

/// Segments of the paper's disk, about (Figure 3).
const SEGMENTS: f64 = 900.0;

const SKEWED: [&str; 2] = ["zipf:0.99", "tpcc"];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Blocks of a segment.
    #[arg(long, default_value_t = 256)]
    segment_blocks: u32,
    /// Write buffer, in segments.
    #[arg(long, default_value_t = 8)]
    buffer: u32,
    /// Blocks that are written more than once, over all blocks; the others are dummies.
    #[arg(long, default_value_t = WORKING_SET)]
    working_set: f64,
    /// Folder with lab.md, to be written into.
    #[arg(long)]
    docs: Option<PathBuf>,
}

impl Arguments {
    fn outcome(
        &self,
        workload: &str,
        (grouping, victims): (&str, &str),
        utilization: f64,
        groups: Option<u8>,
    ) -> Result<Outcome> {
        let source = Source::open(workload)?;
        let experiment = Experiment {
            source: &source,
            warm_up_source: None,
            workload: workload.to_owned(),
            // The paper's cleaner begins at 95%.
            space: SpaceRequest {
                utilization,
                live_segments: (SEGMENTS * utilization) as u32,
                segment_blocks: self.segment_blocks,
                reserve: 0.05,
                blocks: None,
            },
            exact: None,
            dummy: (1.0 - self.working_set / utilization).max(0.0),
            metadata: Metadata::NONE,
            buffering: Buffering {
                segments: self.buffer,
                writing: Writing::of(grouping),
                ..Buffering::NONE
            },
            grouping: grouping.to_owned(),
            victims: Some(victims.to_owned()),
            groups,
            warm_up: 2.0,
            measure: 2.0,
            seed: 1,
        };
        experiment.run(&mut |_, _| ())
    }
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn cost(paper: f64, outcome: &Outcome) -> [String; 2] {
    let found = format!("{:.2} ({:.2})", outcome.write_cost, outcome.amplification_log);
    [format!("{paper:.2}"), found]
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut text = format!(
        "Write cost; in parentheses log write amplification. {SEGMENTS} segments of {} blocks, a \
         buffer of {} segments, 5% kept clean, 85% full unless said otherwise, and a working set of {} \
         of all blocks: the others are written once.\n\n",
        arguments.segment_blocks, arguments.buffer, arguments.working_set
    );
    let heading =
        |first: &str| row(&[first, "Zipf, paper", "Zipf, ours", "TPC-C, paper", "TPC-C, ours"]);
    let mut ablation = |first: &str, rows: &[Ablation<'_>]| -> Result<()> {
        let mut lines = Vec::new();
        for (name, policies, groups, paper) in rows {
            let mut line = vec![name.clone()];
            for (workload, paper) in SKEWED.iter().zip(paper) {
                line.extend(cost(*paper, &arguments.outcome(workload, *policies, 0.85, *groups)?));
            }
            lines.push(line);
        }
        text += &format!("{}\n", table(&heading(first), &lines));
        Ok(())
    };
    let by_groups = (0..6).map(|no: usize| {
        let paper = [GROUPS[0][no], GROUPS[1][no]];
        ((no + 1).to_string(), ("sfs", "cost-hotness"), Some(no as u8 + 1), paper)
    });
    ablation("groups", &by_groups.collect::<Vec<_>>())?;
    ablation(
        "partitioning",
        &PARTITIONS.map(|(name, paper)| (name.to_owned(), (name, "cost-hotness"), None, paper)),
    )?;
    ablation(
        "victims",
        &VICTIMS.map(|(name, paper)| (name.to_owned(), ("sfs", name), None, paper)),
    )?;
    let document = arguments.docs.as_deref().map(Document::new);
    text += &by_utilization(arguments, document.as_ref())?;
    text += &histogram(arguments, document.as_ref())?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("reproduce", &text))
}

/// A row: its name, grouping and victim selection, groups, and the paper's two figures.
type Ablation<'a> = (String, (&'a str, &'a str), Option<u8>, [f64; 2]);

fn by_utilization(arguments: &Arguments, document: Option<&Document>) -> Result<String> {
    let heading = row(&[
        "workload, utilization",
        "LFS-CB, paper",
        "LFS-CB, ours",
        "SFS, paper",
        "SFS, ours",
        "sfs-log cost-benefit",
        "lifetime index",
    ]);
    let mut rows = Vec::new();
    for (workload, [lfs, sfs]) in COSTS {
        let mut series: [Series; 4] =
            ["LFS-CB", "SFS", "sfs-log", "lifetime"].map(|name| (name.to_owned(), Vec::new()));
        for (no, utilization) in UTILIZATIONS.into_iter().enumerate() {
            let mut line = vec![format!("{workload}, {:.0}%", utilization * 100.0)];
            let policies = [
                ("none", "cost-benefit", Some(lfs[no])),
                ("sfs", "cost-hotness", Some(sfs[no])),
                ("sfs-log", "cost-benefit", None),
                ("lifetime", "index", None),
            ];
            for ((grouping, victims, paper), series) in policies.into_iter().zip(&mut series) {
                let outcome =
                    arguments.outcome(workload, (grouping, victims), utilization, None)?;
                series.1.push((utilization, outcome.write_cost));
                let [paper_cell, ours] = cost(paper.unwrap_or(0.0), &outcome);
                line.extend(paper.map(|_| paper_cell));
                line.push(ours);
            }
            rows.push(line);
        }
        if let Some(document) = document {
            let title = format!("Write cost, {workload}");
            let plot = svg::lines(&title, "utilization", "write cost", &series);
            document.file(&format!("cost-{}.svg", workload.replace(':', "-")), &plot)?;
        }
    }
    Ok(format!("{}\n", table(&heading, &rows)))
}

fn histogram(arguments: &Arguments, document: Option<&Document>) -> Result<String> {
    let mut series = Vec::new();
    let mut rows = Vec::new();
    for workload in ["zipf:0.99", "tpcc", "uniform"] {
        for policies in [("none", "cost-benefit"), ("sfs", "cost-hotness"), ("lifetime", "index")] {
            let outcome = arguments.outcome(workload, policies, 0.7, None)?;
            let name = format!("{workload} {}", policies.0);
            let volume = outcome.counters.histogram_volume;
            let shares = (0..HISTOGRAM_BINS).map(|bin| share(&volume, bin));
            let mut line = vec![name.clone()];
            line.extend(shares.clone().map(|share| format!("{share:.3}")));
            line.push(format!("{:.2}", outcome.victim_utilization));
            rows.push(line);
            if workload == "zipf:0.99" {
                let middle = |bin: usize| (bin as f64 + 0.5) / HISTOGRAM_BINS as f64;
                let points = shares.enumerate().map(|(bin, share)| (middle(bin), share));
                series.push((policies.0.to_owned(), points.collect()));
            }
        }
    }
    if let Some(document) = document {
        let title = "Segments by utilization at 70%, Zipf 0.99";
        let plot = svg::lines(title, "segment utilization", "share", &series);
        document.file("histogram-zipf.svg", &plot)?;
    }
    let bins = (1..=HISTOGRAM_BINS).map(|bin| format!("to .{bin}").replace(".10", "1"));
    let mut heading = row(&["segments by utilization, volume 70% full"]);
    heading.extend(bins);
    heading.push("victims' mean".to_owned());
    Ok(table(&heading, &rows))
}
