//! `sfs-lab simulate`: runs one experiment, or one for each trace in a folder, and prints the outcome as text, JSON or CSV.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use sfs_core::policy;
use sfs_lab::simulation::SimulationOutcome;
use sfs_lab::simulation::{
    Buffering, SyncRemainder, VolumeSize, VolumeSizeRequest, WriteOutPolicy,
};
use sfs_lab::simulation::{Experiment, MetadataOverhead, ORACLE, ORACLE_VICTIMS};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

use sfs_lab::report::{run_parallel, with_bar};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Workload: zipf:THETA, uniform, hotcold:90/10, shift, tpcc, sequential, pieces:BLOCKS, streams, or trace:FILE, in a format of
    /// `sfs-lab replay`, or trace:FOLDER for every trace in it.
    #[arg(long, default_value = "zipf:0.99")]
    workload: String,
    /// Grouping policy, which chooses the blocks that are written together: see --list.
    #[arg(long = "policy", alias = "placement", default_value = "sfs")]
    grouping: String,
    /// Victim policy, which chooses the segment that is cleaned; by default that of the grouping policy.
    #[arg(long = "victim", alias = "victims")]
    victims: Option<String>,
    /// Number of groups, for a grouping policy with a choice.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=8))]
    groups: Option<u8>,
    /// Utilization: users' blocks over all blocks.
    #[arg(long, default_value_t = 0.85)]
    utilization: f64,
    /// Number of segments that users' blocks fill.
    #[arg(long, default_value_t = 512)]
    live_segments: u32,
    /// Number of blocks in a segment; for a trace --live-segments determines this number.
    #[arg(long, default_value_t = 512)]
    segment_blocks: u32,
    /// Number of segments of the volume, instead of --utilization and --live-segments.
    #[arg(long, requires = "live_blocks")]
    segments: Option<u32>,
    /// Number of users' blocks, with --segments.
    #[arg(long, requires = "segments")]
    live_blocks: Option<u32>,
    /// Part of the segments that the cleaner keeps clean.
    #[arg(long, default_value_t = 0.02)]
    reserve: f64,
    /// Number of segments that the cleaner keeps clean, with --segments.
    #[arg(long, requires = "segments")]
    reserve_segments: Option<u32>,
    /// Part of the users' blocks that is written first and never again.
    #[arg(long, default_value_t = 0.0)]
    dummy: f64,
    /// Part of every segment that summaries take.
    #[arg(long, default_value_t = 0.0)]
    summaries: f64,
    /// Number of tree nodes written for each block of data.
    #[arg(long, default_value_t = 0.0)]
    nodes: f64,
    /// Size of the write buffer, in segments.
    #[arg(long, default_value_t = 0)]
    buffer: u32,
    /// Size of the write buffer, in blocks.
    #[arg(long, conflicts_with = "buffer")]
    buffer_blocks: Option<u32>,
    /// Blocks that are written when the buffer is full; by default deferred for sfs-fast12, heads for sfs.
    #[arg(long)]
    writing: Option<WriteOutPolicy>,
    /// Heads to which a sync writes blocks that fill no segment.
    #[arg(long, default_value = "pure")]
    remainder: SyncRemainder,
    /// Number of users' writes from one sync to the next.
    #[arg(long)]
    sync_interval: Option<u64>,
    /// Number of writes before measuring, in multiples of the users' blocks.
    #[arg(long, default_value_t = 3.0)]
    warm_up: f64,
    /// Workload of the warm-up; by default the measured one.
    #[arg(long)]
    warm_up_workload: Option<String>,
    /// Number of measured writes, in multiples of the users' blocks.
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
            "grouping policies: {} {ORACLE}\nvictim policies: {} {ORACLE_VICTIMS}\n",
            policy::GROUPING_POLICIES.join(" "),
            policy::VICTIM_POLICIES.join(" ")
        ))?;
        return Ok(());
    }
    let warm_up = arguments.warm_up_workload.as_deref().map(Source::open).transpose()?;
    let path = arguments.workload.strip_prefix("trace:").map(Path::new);
    if let Some(folder) = path.filter(|path| path.is_dir()) {
        return run_folder(arguments, folder, warm_up.as_ref());
    }
    if let Some(path) = path.filter(|path| !path.exists()) {
        output::complain(format_args!("skipped: no trace {}", path.display()));
        return Ok(());
    }
    let source = Source::open(&arguments.workload)?;
    let experiment = arguments.experiment(&arguments.workload, &source, warm_up.as_ref());
    let outcome = with_bar(|progress| experiment.run(progress))?;
    if arguments.json {
        output::print(format_args!("{}\n", serde_json::to_string_pretty(&outcome)?))?;
        return Ok(());
    }
    print(arguments, &[outcome])
}

/// Runs every trace in a folder. Reports traces that do not fit the arguments on standard error.
fn run_folder(arguments: &Arguments, folder: &Path, warm_up: Option<&Source>) -> Result<()> {
    let sources = Source::open_folder(folder)?;
    let results = run_parallel(&sources, |(name, source)| {
        let outcome = arguments.experiment(name, source, warm_up).run(&mut |_, _| ());
        Ok(outcome.with_context(|| folder.join(name).display().to_string()))
    })?;
    let mut outcomes = Vec::new();
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => output::complain(format_args!("skipped: {error:#}")),
        }
    }
    ensure!(!outcomes.is_empty(), "{}: no trace fits these arguments", folder.display());
    if arguments.json {
        output::print(format_args!("{}\n", serde_json::to_string_pretty(&outcomes)?))?;
        return Ok(());
    }
    print(arguments, &outcomes)
}

/// Prints outcomes as text or CSV.
fn print(arguments: &Arguments, outcomes: &[SimulationOutcome]) -> Result<()> {
    if arguments.csv {
        output::print(SimulationOutcome::csv(outcomes))?;
    } else {
        output::print(outcomes.iter().map(SimulationOutcome::text).collect::<String>())?;
    }
    Ok(())
}

impl Arguments {
    /// Returns the exact sizes of the volume, if they are given.
    fn exact(&self) -> Option<VolumeSize> {
        let (segments, blocks) = self.segments.zip(self.live_blocks)?;
        let share = (f64::from(segments) * self.reserve).round() as u32;
        let reserve_segments = self.reserve_segments.unwrap_or(share).max(2);
        Some(VolumeSize { blocks, segment_blocks: self.segment_blocks, segments, reserve_segments })
    }

    fn experiment<'a>(
        &self,
        workload: &str,
        source: &'a Source,
        warm_up_source: Option<&'a Source>,
    ) -> Experiment<'a> {
        Experiment {
            source,
            warm_up_source,
            workload: workload.to_owned(),
            space: VolumeSizeRequest {
                utilization: self.utilization,
                live_segments: self.live_segments,
                segment_blocks: self.segment_blocks,
                reserve: self.reserve,
                blocks: None,
            },
            exact: self.exact(),
            dummy: self.dummy,
            metadata: MetadataOverhead { summaries: self.summaries, nodes: self.nodes },
            buffering: Buffering {
                segments: self.buffer,
                blocks: self.buffer_blocks,
                writing: self.writing.unwrap_or_else(|| WriteOutPolicy::of(&self.grouping)),
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
