//! `sfs-lab table`: every policy on every generator and every recorded trace, or on the traces in a folder.
//!
//! A missing trace is left out, with a message; in a folder also one that is no trace, or too small.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use sfs_lab::report::{Document, run_parallel, table};
use sfs_lab::simulation::SimulationOutcome;
use sfs_lab::simulation::{Buffering, VolumeSizeRequest, WriteOutPolicy};
use sfs_lab::simulation::{Experiment, MetadataOverhead, ORACLE, ORACLE_VICTIMS};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

use sfs_lab::block_trace::TraceFolder;

use super::workloads::{self, NamedSource, TraceSelection};

/// Grouping policy, victim policy, and policy of writing a buffer out.
type PolicySet = (&'static str, &'static str, WriteOutPolicy);

const UNBUFFERED: [PolicySet; 11] = [
    ("none", "greedy", WriteOutPolicy::Heads),
    ("none", "cost-benefit", WriteOutPolicy::Heads),
    ("sep-gc", "cost-benefit", WriteOutPolicy::Heads),
    ("dac", "cost-benefit-sqrt", WriteOutPolicy::Heads),
    ("sfs-fast12", "cost-hotness", WriteOutPolicy::Deferred),
    ("sfs-log", "cost-benefit", WriteOutPolicy::Deferred),
    ("sfs-log", "index", WriteOutPolicy::Deferred),
    ("sepbit", "greedy", WriteOutPolicy::Heads),
    ("sepbit", "cost-benefit-sqrt", WriteOutPolicy::Heads),
    ("sfs", "index", WriteOutPolicy::Heads),
    (ORACLE, ORACLE_VICTIMS, WriteOutPolicy::Heads),
];

/// Policies that are run only with a buffer, in addition to [`UNBUFFERED`].
const BUFFERED: [PolicySet; 3] = [
    ("sepbit", "cost-benefit-sqrt", WriteOutPolicy::Coldest),
    ("sfs", "index", WriteOutPolicy::Largest),
    ("sfs", "index", WriteOutPolicy::Coldest),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
    /// Number of blocks in a segment, for the generators.
    #[arg(long, default_value_t = 256)]
    segment_blocks: u32,
    /// Number of different blocks above which a trace is left out, with a message.
    #[arg(long, default_value_t = 2_000_000)]
    blocks_max: u32,
    /// Run every trace in this folder, in any format of `sfs-lab replay`, instead of the generators and recorded traces.
    #[arg(long, value_name = "DIR", conflicts_with = "docs")]
    folder: Option<PathBuf>,
    /// Print CSV.
    #[arg(long)]
    csv: bool,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

impl Arguments {
    fn workloads(&self) -> Result<Vec<NamedSource>> {
        let can_run = |name: &str, source: &Source| self.can_run(name, source);
        let selection = TraceSelection { blocks_max: self.blocks_max, can_run: &can_run };
        match &self.folder {
            Some(folder) => {
                let traces = workloads::in_folder(folder, &selection)?;
                ensure!(!traces.is_empty(), "no trace in the folder can be simulated");
                Ok(traces)
            }
            None => {
                let mut workloads = workloads::generators()?;
                workloads.extend(workloads::traces(&self.traces, &selection)?);
                Ok(workloads)
            }
        }
    }

    /// Returns an error if a volume of a trace's size has no room for every policy.
    fn can_run(&self, name: &str, source: &Source) -> Result<()> {
        UNBUFFERED.iter().try_for_each(|&policies| {
            let trial = experiment(self, name, source, policies, BUFFER_SEGMENTS);
            Experiment { warm_up: 0.0, measure: 0.0, ..trial }.run(&mut |_, _| ()).map(|_| ())
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workloads = arguments.workloads()?;
    let unbuffered = Results::of(arguments, &workloads, 0, &UNBUFFERED)?;
    let policies = [&UNBUFFERED[..], &BUFFERED].concat();
    let buffered = Results::of(arguments, &workloads, BUFFER_SEGMENTS, &policies)?;
    let deferred =
        UNBUFFERED.map(|(grouping, victims, _)| (grouping, victims, WriteOutPolicy::Deferred));
    let deferred = Results::of(arguments, &workloads, BUFFER_SEGMENTS, &deferred)?;
    let text = format!(
        "Unbuffered: log write amplification.\n\n{}\nBuffer of {BUFFER_SEGMENTS} segments: blocks written \
         over users' writes, and in parentheses log write amplification.\n\n{}\nThe same with all policies written out \
         in the same way, `deferred`.\n\n{}\nUnbuffered: nanoseconds of a processor for each of the users' writes, workload and cleaning included.\n\n{}",
        unbuffered.table(|outcome| format!("{:.2}", outcome.amplification_log)),
        buffered.table(of_user_and_log),
        deferred.table(of_user_and_log),
        unbuffered.table(|outcome| format!("{:.0}", outcome.nanoseconds_per_write)),
    );
    let outcomes = || unbuffered.outcomes().chain(buffered.outcomes()).chain(deferred.outcomes());
    if arguments.csv {
        output::print(SimulationOutcome::csv(outcomes()))?;
    } else {
        output::print(&text)?;
    }
    if let Some(docs) = &arguments.docs {
        let document = Document::new(docs);
        document.section("table", &text)?;
        document.file("table.csv", &SimulationOutcome::csv(outcomes()))?;
    }
    Ok(())
}

/// Returns the cell of a buffered run.
fn of_user_and_log(outcome: &SimulationOutcome) -> String {
    format!("{:.2} ({:.2})", outcome.amplification_user, outcome.amplification_log)
}

/// Size of the buffer, in segments.
const BUFFER_SEGMENTS: u32 = 8;

/// The outcomes of all policies under all workloads.
struct Results<'a> {
    policies: &'a [PolicySet],
    rows: Vec<(&'a str, Vec<SimulationOutcome>)>,
}

impl<'a> Results<'a> {
    fn of(
        arguments: &Arguments,
        workloads: &'a [NamedSource],
        buffer: u32,
        policies: &'a [PolicySet],
    ) -> Result<Self> {
        let mut experiments = Vec::new();
        for (name, source) in workloads {
            for policy in policies {
                experiments.push(experiment(arguments, name, source, *policy, buffer));
            }
        }
        let mut outcomes = run_parallel(&experiments, |experiment: &Experiment<'_>| {
            let name = || format!("{} with {}", experiment.workload, experiment.grouping);
            experiment.run(&mut |_, _| ()).with_context(name)
        })?
        .into_iter();
        let row = |(name, _): &'a NamedSource| {
            (name.as_str(), outcomes.by_ref().take(policies.len()).collect())
        };
        Ok(Self { policies, rows: workloads.iter().map(row).collect() })
    }

    fn table(&self, cell: impl Fn(&SimulationOutcome) -> String) -> String {
        let policy = |(grouping, victims, writing): &PolicySet| match writing {
            WriteOutPolicy::Largest | WriteOutPolicy::Coldest => {
                format!("{grouping} {victims}, {writing}")
            }
            _ => format!("{grouping} {victims}"),
        };
        let heading = ["workload".to_owned()].into_iter().chain(self.policies.iter().map(policy));
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|(name, outcomes)| {
                [(*name).to_owned()].into_iter().chain(outcomes.iter().map(&cell)).collect()
            })
            .collect();
        table(&heading.collect::<Vec<_>>(), &rows)
    }

    fn outcomes(&self) -> impl Iterator<Item = &SimulationOutcome> {
        self.rows.iter().flat_map(|(_, outcomes)| outcomes)
    }
}

fn experiment<'a>(
    arguments: &Arguments,
    name: &str,
    source: &'a Source,
    (grouping, victims, writing): PolicySet,
    buffer: u32,
) -> Experiment<'a> {
    let live_segments = workloads::live_segments(source);
    Experiment {
        source,
        workload: name.to_owned(),
        warm_up_source: None,
        space: VolumeSizeRequest {
            utilization: 0.85,
            live_segments,
            segment_blocks: arguments.segment_blocks,
            reserve: workloads::reserve(live_segments),
            blocks: None,
        },
        exact: None,
        dummy: 0.0,
        metadata: MetadataOverhead::NONE,
        buffering: Buffering { segments: buffer, writing, ..Buffering::NONE },
        grouping: grouping.to_owned(),
        victims: Some(victims.to_owned()),
        groups: None,
        warm_up: 3.0,
        measure: 5.0,
        seed: 1,
    }
}
