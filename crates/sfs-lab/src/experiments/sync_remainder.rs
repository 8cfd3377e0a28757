//! `sfs-lab remainder`: where a sync writes what waits, and what that costs.
//!
//! Owns: which grouping policies, workloads and intervals are compared.
//! Promises: both variants see the same writes and the same syncs.
//! Never: says which is better: docs/lab.md does.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::document::{Document, table};
use sfs_lab::outcome::Outcome;
use sfs_lab::run::{Experiment, Metadata};
use sfs_lab::simulation::{Buffering, Remainder, SpaceRequest, Writing};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

use crate::commands::progress::with_bar;

const WORKLOADS: [&str; 4] = ["uniform", "zipf:0.99", "hotcold:90/10", "tpcc"];

const POLICIES: [&str; 3] = ["sfs", "sfs-log", "lifetime"];

/// Users' writes from one sync to the next, in segments.
const INTERVALS: [f64; 3] = [0.125, 1.0, 8.0];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Blocks of a segment.
    #[arg(long, default_value_t = 256)]
    segment_blocks: u32,
    /// Folder with lab.md, to be written into.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let source = Source::open(workload)?;
        for grouping in POLICIES {
            let mut row = vec![format!("{workload} {grouping}")];
            for interval in INTERVALS {
                for remainder in [Remainder::Pure, Remainder::Mixed] {
                    let experiment =
                        experiment(arguments, &source, (workload, grouping), interval, remainder);
                    row.push(cell(&with_bar(|progress| experiment.run(progress))?));
                }
            }
            rows.push(row);
        }
    }
    let columns = INTERVALS.iter().flat_map(|interval| {
        ["pure", "mixed"].map(|name| format!("every {interval} segments, {name}"))
    });
    let heading: Vec<String> = ["a sync".to_owned()].into_iter().chain(columns).collect();
    let text = format!(
        "Blocks written over users' writes, buffer of 8 segments; in parentheses the heads that a \
         sync writes to.\n\n{}",
        table(&heading, &rows)
    );
    output::print(&text)?;
    match &arguments.docs {
        Some(docs) => Document::new(docs).section("remainder", &text),
        None => Ok(()),
    }
}

fn cell(outcome: &Outcome) -> String {
    format!("{:.2} ({:.1})", outcome.amplification_user, outcome.counters.heads_of_a_sync())
}

fn experiment<'a>(
    arguments: &Arguments,
    source: &'a Source,
    (workload, grouping): (&str, &str),
    interval: f64,
    remainder: Remainder,
) -> Experiment<'a> {
    let segment_blocks = arguments.segment_blocks;
    Experiment {
        source,
        workload: workload.to_owned(),
        warm_up_source: None,
        space: SpaceRequest {
            utilization: 0.85,
            live_segments: 512,
            segment_blocks,
            reserve: 0.02,
            blocks: None,
        },
        exact: None,
        dummy: 0.0,
        metadata: Metadata::NONE,
        buffering: Buffering {
            segments: 8,
            writing: Writing::Deferred,
            remainder,
            sync_interval: Some((f64::from(segment_blocks) * interval) as u64),
            ..Buffering::NONE
        },
        grouping: grouping.to_owned(),
        victims: None,
        groups: None,
        warm_up: 3.0,
        measure: 5.0,
        seed: 1,
    }
}
