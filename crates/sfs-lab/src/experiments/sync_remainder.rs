//! `sfs-lab sync-remainder`: the cost of the two choices of heads for blocks that a sync has to write and
//! that fill no segment.
//!
//! Both choices see the same writes and the same syncs.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use sfs_lab::report::{Document, run_parallel, table};
use sfs_lab::simulation::SimulationOutcome;
use sfs_lab::simulation::{Buffering, SyncRemainder, VolumeSizeRequest, WriteOutPolicy};
use sfs_lab::simulation::{Experiment, MetadataOverhead};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

const WORKLOADS: [&str; 4] = ["uniform", "zipf:0.99", "hotcold:90/10", "tpcc"];

const POLICIES: [&str; 3] = ["sfs-fast12", "sfs-log", "sfs"];

/// Numbers of users' writes from one sync to the next, in segments.
const INTERVALS_SEGMENTS: [f64; 3] = [0.125, 1.0, 8.0];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of blocks in a segment.
    #[arg(long, default_value_t = 256)]
    segment_blocks: u32,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let sources = WORKLOADS.map(|workload| (workload, Source::open(workload)));
    let (mut names, mut experiments) = (Vec::new(), Vec::new());
    for (workload, source) in &sources {
        let source = source.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        for grouping in POLICIES {
            names.push(format!("{workload} {grouping}"));
            for interval in INTERVALS_SEGMENTS {
                for remainder in [SyncRemainder::Pure, SyncRemainder::Mixed] {
                    let policies = (*workload, grouping);
                    experiments.push(experiment(arguments, source, policies, interval, remainder));
                }
            }
        }
    }
    let outcomes = run_parallel(&experiments, |experiment| experiment.run(&mut |_, _| ()))?;
    let rows: Vec<Vec<String>> = names
        .into_iter()
        .zip(outcomes.chunks(2 * INTERVALS_SEGMENTS.len()))
        .map(|(name, outcomes)| std::iter::once(name).chain(outcomes.iter().map(cell)).collect())
        .collect();
    let columns = INTERVALS_SEGMENTS.iter().flat_map(|interval| {
        ["pure", "mixed"].map(|name| format!("every {interval} segments, {name}"))
    });
    let heading: Vec<String> = ["a sync".to_owned()].into_iter().chain(columns).collect();
    let text = format!(
        "Blocks written over users' writes, buffer of 8 segments; in parentheses the heads to which a \
         sync writes.\n\n{}",
        table(&heading, &rows)
    );
    output::print(&text)?;
    match &arguments.docs {
        Some(docs) => Document::new(docs).section("sync-remainder", &text),
        None => Ok(()),
    }
}

fn cell(outcome: &SimulationOutcome) -> String {
    format!("{:.2} ({:.1})", outcome.amplification_user, outcome.counters.heads_per_sync())
}

fn experiment<'a>(
    arguments: &Arguments,
    source: &'a Source,
    (workload, grouping): (&str, &str),
    interval: f64,
    remainder: SyncRemainder,
) -> Experiment<'a> {
    let segment_blocks = arguments.segment_blocks;
    Experiment {
        source,
        workload: workload.to_owned(),
        warm_up_source: None,
        space: VolumeSizeRequest {
            utilization: 0.85,
            live_segments: 512,
            segment_blocks,
            reserve: 0.02,
            blocks: None,
        },
        exact: None,
        dummy: 0.0,
        metadata: MetadataOverhead::NONE,
        buffering: Buffering {
            segments: 8,
            writing: WriteOutPolicy::Deferred,
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
