//! `sfs-lab table`: every policy on every generator and every trace.
//!
//! A missing trace is left out, with a message.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::report::{Document, run_parallel, table};
use sfs_lab::simulation::SimulationOutcome;
use sfs_lab::simulation::{Buffering, VolumeSizeRequest, WriteOutPolicy};
use sfs_lab::simulation::{Experiment, MetadataOverhead, ORACLE, ORACLE_VICTIMS};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

use sfs_lab::block_trace::TraceFolder;

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

/// Policies that are tried with a buffer, beside [`UNBUFFERED`].
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
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    docs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workloads = workloads(arguments)?;
    let unbuffered = Results::of(arguments, &workloads, 0, &UNBUFFERED)?;
    let policies = [&UNBUFFERED[..], &BUFFERED].concat();
    let buffered = Results::of(arguments, &workloads, BUFFER_SEGMENTS, &policies)?;
    let text = format!(
        "Unbuffered: log write amplification.\n\n{}\nBuffer of {BUFFER_SEGMENTS} segments: blocks written \
         over users' writes, and in parentheses log write amplification.\n\n{}\nUnbuffered: \
         nanoseconds of a processor for each of the users' writes, workload and cleaning included.\n\n{}",
        unbuffered.table(|outcome| format!("{:.2}", outcome.amplification_log)),
        buffered.table(|outcome| {
            format!("{:.2} ({:.2})", outcome.amplification_user, outcome.amplification_log)
        }),
        unbuffered.table(|outcome| format!("{:.0}", outcome.nanoseconds_per_write)),
    );
    output::print(&text)?;
    if let Some(docs) = &arguments.docs {
        let document = Document::new(docs);
        document.section("table", &text)?;
        let outcomes = unbuffered.outcomes().chain(buffered.outcomes());
        document.file("table.csv", &SimulationOutcome::csv(outcomes))?;
    }
    Ok(())
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
        workloads: &'a [(String, Source)],
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
            experiment.run(&mut |_, _| ())
        })?
        .into_iter();
        let row = |(name, _): &'a (String, Source)| {
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

fn workloads(arguments: &Arguments) -> Result<Vec<(String, Source)>> {
    let mut workloads = Vec::new();
    for name in GENERATORS {
        workloads.push((name.to_owned(), Source::open(name)?));
    }
    for name in TRACES {
        let Some(path) = arguments.traces.find(format!("{name}.csv.zst")) else { continue };
        let source = Source::open(&format!("trace:{}", path.display()))?;
        if source.block_count().is_some_and(|count| count > arguments.blocks_max) {
            output::complain(format_args!(
                "skipped: {name} has more than {} blocks",
                arguments.blocks_max
            ));
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
    (grouping, victims, writing): PolicySet,
    buffer: u32,
) -> Experiment<'a> {
    // A small trace has fewer segments, but the open segments must not be a large part of them.
    let live_segments = source.block_count().map_or(512, |blocks| (blocks / 16).clamp(128, 512));
    Experiment {
        source,
        workload: name.to_owned(),
        warm_up_source: None,
        space: VolumeSizeRequest {
            utilization: 0.85,
            live_segments,
            segment_blocks: arguments.segment_blocks,
            reserve: 0.02_f64.max(10.0 * 0.85 / f64::from(live_segments)),
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
