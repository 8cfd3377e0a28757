//! `sfs-lab table`: every policy on every generator and every trace.
//!
//! Owns: which policies and workloads the table has.
//! Promises: a trace that is not there is left out, with a message.
//! Never: keeps figures from one run to the next.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::document::{Document, table};
use sfs_lab::outcome::Outcome;
use sfs_lab::run::{Experiment, ORACLE, ORACLE_VICTIMS};
use sfs_lab::simulation::{Buffering, SpaceRequest, Writing};
use sfs_lab::workload::Source;

use crate::simulate::with_bar;

const GENERATORS: [&str; 7] =
    ["uniform", "zipf:0.8", "zipf:0.99", "zipf:1.2", "hotcold:90/10", "shift", "tpcc"];

const TRACES: [&str; 6] = [
    "cloudphysics-vm",
    "opencas-rocksdb-ycsb-a-xfs",
    "disksim-postmark",
    "msr-rsrch_1-full-week",
    "tpcc-small",
    "msr-mds_0-first1000w",
];

/// Placement and victim selection.
const POLICIES: [(&str, &str); 11] = [
    ("none", "greedy"),
    ("none", "cost-benefit"),
    ("sep-gc", "cost-benefit"),
    ("dac", "cost-benefit-sqrt"),
    ("sfs", "cost-hotness"),
    ("sfs-log", "cost-benefit"),
    ("sfs-log", "index"),
    ("sepbit", "greedy"),
    ("sepbit", "cost-benefit-sqrt"),
    ("lifetime", "index"),
    (ORACLE, ORACLE_VICTIMS),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the traces.
    #[arg(long, default_value = "../shared/traces")]
    traces: PathBuf,
    /// Blocks of a segment, for the generators.
    #[arg(long, default_value_t = 256)]
    segment_blocks: u32,
    /// Largest trace, in different blocks; larger ones are left out, with a message.
    #[arg(long, default_value_t = 2_000_000)]
    blocks_max: u32,
    /// Folder with lab.md, to be written into.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workloads = workloads(arguments)?;
    let mut text = String::new();
    let mut csv = format!("{}\n", Outcome::CSV_HEADING);
    for buffer in [0, 8] {
        let mut rows = Vec::new();
        for (name, source) in &workloads {
            let outcomes = with_bar(|progress| {
                let mut outcomes = Vec::new();
                for (no, (placement, victims)) in (0..).zip(POLICIES) {
                    let experiment =
                        experiment(arguments, name, source, placement, victims, buffer);
                    let all = POLICIES.len() as u64;
                    let run = experiment.run(&mut |done, of| progress(no * of + done, all * of));
                    outcomes.push(run?);
                }
                anyhow::Ok(outcomes)
            })?;
            let cell = |outcome: &Outcome| match buffer {
                0 => format!("{:.2}", outcome.amplification_log),
                _ => {
                    format!("{:.2} ({:.2})", outcome.amplification_user, outcome.amplification_log)
                }
            };
            rows.push([name.clone()].into_iter().chain(outcomes.iter().map(cell)).collect());
            csv.extend(outcomes.iter().map(|outcome| outcome.csv() + "\n"));
        }
        let policies = POLICIES.map(|(placement, victims)| format!("{placement} {victims}"));
        let heading: Vec<String> = ["workload".to_owned()].into_iter().chain(policies).collect();
        text += match buffer {
            0 => "Unbuffered: log write amplification.\n\n",
            _ => {
                "\nBuffer of 8 segments: blocks written over users' writes, and in parentheses \
                  log write amplification.\n\n"
            }
        };
        text += &table(&heading, &rows);
    }
    print!("{text}");
    if let Some(docs) = &arguments.docs {
        let document = Document::new(docs);
        document.section("table", &text)?;
        document.file("table.csv", &csv)?;
    }
    Ok(())
}

fn workloads(arguments: &Arguments) -> Result<Vec<(String, Source)>> {
    let mut workloads = Vec::new();
    for name in GENERATORS {
        workloads.push((name.to_owned(), Source::open(name)?));
    }
    for name in TRACES {
        let path = arguments.traces.join(format!("{name}.csv.zst"));
        if !path.exists() {
            eprintln!("skipped: there is no trace {}", path.display());
            continue;
        }
        let source = Source::open(&format!("trace:{}", path.display()))?;
        if source.block_count().is_some_and(|count| count > arguments.blocks_max) {
            eprintln!("skipped: {name} has more than {} blocks", arguments.blocks_max);
            continue;
        }
        workloads.push((name.to_owned(), source));
    }
    Ok(workloads)
}

fn experiment<'a>(
    arguments: &Arguments,
    name: &str,
    source: &'a Source,
    placement: &str,
    victims: &str,
    buffer: u32,
) -> Experiment<'a> {
    // A small trace has fewer segments: a head of each group must not be a great part of them.
    let live_segments = source.block_count().map_or(512, |blocks| (blocks / 16).clamp(128, 512));
    Experiment {
        source,
        workload: name.to_owned(),
        space: SpaceRequest {
            utilization: 0.85,
            live_segments,
            segment_blocks: arguments.segment_blocks,
            reserve: 0.02_f64.max(10.0 * 0.85 / f64::from(live_segments)),
            blocks: None,
        },
        exact: None,
        dummy: 0.0,
        buffering: Buffering {
            segments: buffer,
            writing: Writing::of(placement),
            ..Buffering::NONE
        },
        placement: placement.to_owned(),
        victims: Some(victims.to_owned()),
        groups: None,
        warm_up: 3.0,
        measure: 5.0,
        seed: 1,
    }
}
