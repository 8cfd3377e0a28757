//! `sfs-lab simulate`: one experiment, printed.
//!
//! Owns: its options.
//! Promises: only the outcome is on standard output.
//! Never: computes.

use std::path::Path;

use anyhow::Result;
use sfs_core::policy;
use sfs_lab::outcome::Outcome;
use sfs_lab::run::{Experiment, Metadata, ORACLE, ORACLE_VICTIMS};
use sfs_lab::simulation::{Buffering, Remainder, Space, SpaceRequest, Writing};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

use crate::commands::progress::with_bar;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// zipf:THETA, uniform, hotcold:90/10, shift, tpcc, sequential, or trace:FILE (CSV, zstd).
    #[arg(long, default_value = "zipf:0.99")]
    workload: String,
    /// Grouping policy, which says which blocks belong together: see --list.
    #[arg(long = "policy", alias = "placement", default_value = "sfs")]
    grouping: String,
    /// Which segment is cleaned; by default what goes with the grouping.
    #[arg(long)]
    victims: Option<String>,
    /// Number of groups, where the grouping lets it be chosen.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8))]
    groups: Option<u8>,
    /// Users' blocks over all blocks.
    #[arg(long, default_value_t = 0.85)]
    utilization: f64,
    /// Segments that users' blocks fill.
    #[arg(long, default_value_t = 512)]
    live_segments: u32,
    /// Blocks of a segment; a trace has its own size.
    #[arg(long, default_value_t = 512)]
    segment_blocks: u32,
    /// All segments of the volume, instead of what --utilization and --live-segments say.
    #[arg(long, requires = "live_blocks")]
    segments: Option<u32>,
    /// Users' blocks, with --segments.
    #[arg(long, requires = "segments")]
    live_blocks: Option<u32>,
    /// Part of the segments that is kept clean.
    #[arg(long, default_value_t = 0.02)]
    reserve: f64,
    /// Segments that are kept clean, with --segments.
    #[arg(long, requires = "segments")]
    reserve_segments: Option<u32>,
    /// Part of the users' blocks that is written first, and never again.
    #[arg(long, default_value_t = 0.0)]
    dummy: f64,
    /// Part of every segment that is summaries.
    #[arg(long, default_value_t = 0.0)]
    summaries: f64,
    /// Tree nodes written for each block of data.
    #[arg(long, default_value_t = 0.0)]
    nodes: f64,
    /// Write buffer, in segments.
    #[arg(long, default_value_t = 0)]
    buffer: u32,
    /// Write buffer, in blocks.
    #[arg(long, conflicts_with = "buffer")]
    buffer_blocks: Option<u32>,
    /// How the buffer is written; by default deferred for sfs, on heads for others.
    #[arg(long)]
    writing: Option<Writing>,
    /// Where a sync writes what waits.
    #[arg(long, default_value = "pure")]
    remainder: Remainder,
    /// Writes of users from one sync to the next.
    #[arg(long)]
    sync_interval: Option<u64>,
    /// Writes before measuring, in sizes of the users' space.
    #[arg(long, default_value_t = 3.0)]
    warm_up: f64,
    /// The workload of these; by default the one that is measured.
    #[arg(long)]
    warm_up_workload: Option<String>,
    /// Writes that are measured, in the same.
    #[arg(long, default_value_t = 5.0)]
    measure: f64,
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print a heading and a line of CSV.
    #[arg(long)]
    csv: bool,
    /// Print the names of the policies.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        output::print(format_args!(
            "grouping policies: {} {ORACLE}\nvictims: {} {ORACLE_VICTIMS}\n",
            policy::GROUPING_POLICIES.join(" "),
            policy::VICTIM_POLICIES.join(" ")
        ))?;
        return Ok(());
    }
    if let Some(path) = arguments.workload.strip_prefix("trace:")
        && !Path::new(path).exists()
    {
        output::complain(format_args!("skipped: there is no trace {path}"));
        return Ok(());
    }
    let source = Source::open(&arguments.workload)?;
    let warm_up = arguments.warm_up_workload.as_deref().map(Source::open).transpose()?;
    let experiment = arguments.experiment(&source, warm_up.as_ref());
    let outcome = with_bar(|progress| experiment.run(progress))?;
    if arguments.json {
        output::print(format_args!("{}\n", serde_json::to_string_pretty(&outcome)?))?;
    } else if arguments.csv {
        output::print(format_args!("{}\n{}\n", Outcome::CSV_HEADING, outcome.csv()))?;
    } else {
        output::print(outcome.text())?;
    }
    Ok(())
}

impl Arguments {
    fn exact(&self) -> Option<Space> {
        let (segments, blocks) = self.segments.zip(self.live_blocks)?;
        let share = (f64::from(segments) * self.reserve).round() as u32;
        let reserve = self.reserve_segments.unwrap_or(share).max(2);
        Some(Space { blocks, segment_blocks: self.segment_blocks, segments, reserve })
    }

    fn experiment<'a>(
        &self,
        source: &'a Source,
        warm_up_source: Option<&'a Source>,
    ) -> Experiment<'a> {
        Experiment {
            source,
            warm_up_source,
            workload: self.workload.clone(),
            space: SpaceRequest {
                utilization: self.utilization,
                live_segments: self.live_segments,
                segment_blocks: self.segment_blocks,
                reserve: self.reserve,
                blocks: None,
            },
            exact: self.exact(),
            dummy: self.dummy,
            metadata: Metadata { summaries: self.summaries, nodes: self.nodes },
            buffering: Buffering {
                segments: self.buffer,
                blocks: self.buffer_blocks,
                writing: self.writing.unwrap_or_else(|| Writing::of(&self.grouping)),
                remainder: self.remainder,
                sync_interval: self.sync_interval,
            },
            grouping: self.grouping.clone(),
            victims: self.victims.clone(),
            groups: self.groups,
            warm_up: self.warm_up,
            measure: self.measure,
            seed: self.seed,
        }
    }
}
