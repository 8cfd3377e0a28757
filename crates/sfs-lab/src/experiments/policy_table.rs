//! `sfs-lab table`: every policy on every generator and every trace.
//!
//! Owns: which policies and workloads the table has.
//! Promises: a trace that is not there is left out, with a message.
//! Never: keeps figures from one run to the next.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Result;
use sfs_lab::document::{Document, table};
use sfs_lab::outcome::Outcome;
use sfs_lab::run::{Experiment, Metadata, ORACLE, ORACLE_VICTIMS};
use sfs_lab::simulation::{Buffering, SpaceRequest, Writing};
use sfs_lab::workload::Source;
use sfs_mkfs::output;

use crate::commands::progress::with_bar;
use crate::commands::traces::TraceFolder;

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

/// Grouping policy, victim selection, and how a buffer is written.
type Policy = (&'static str, &'static str, Writing);

const UNBUFFERED: [Policy; 11] = [
    ("none", "greedy", Writing::Heads),
    ("none", "cost-benefit", Writing::Heads),
    ("sep-gc", "cost-benefit", Writing::Heads),
    ("dac", "cost-benefit-sqrt", Writing::Heads),
    ("sfs", "cost-hotness", Writing::Deferred),
    ("sfs-log", "cost-benefit", Writing::Deferred),
    ("sfs-log", "index", Writing::Deferred),
    ("sepbit", "greedy", Writing::Heads),
    ("sepbit", "cost-benefit-sqrt", Writing::Heads),
    ("lifetime", "index", Writing::Heads),
    (ORACLE, ORACLE_VICTIMS, Writing::Heads),
];

/// What is tried with a buffer beside [`UNBUFFERED`].
const BUFFERED: [Policy; 3] = [
    ("sepbit", "cost-benefit-sqrt", Writing::Coldest),
    ("lifetime", "index", Writing::Largest),
    ("lifetime", "index", Writing::Coldest),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traces: TraceFolder,
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
    let unbuffered = Results::of(arguments, &workloads, 0, &UNBUFFERED)?;
    let policies = [&UNBUFFERED[..], &BUFFERED].concat();
    let buffered = Results::of(arguments, &workloads, BUFFER, &policies)?;
    let text = format!(
        "Unbuffered: log write amplification.\n\n{}\nBuffer of {BUFFER} segments: blocks written \
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
        let csv = format!("{}\n{}{}", Outcome::CSV_HEADING, unbuffered.csv(), buffered.csv());
        document.file("table.csv", &csv)?;
    }
    Ok(())
}

/// The buffer that is compared, in segments.
const BUFFER: u32 = 8;

/// Of every workload the outcome of every policy.
struct Results<'a> {
    policies: &'a [Policy],
    rows: Vec<(&'a str, Vec<Outcome>)>,
}

impl<'a> Results<'a> {
    fn of(
        arguments: &Arguments,
        workloads: &'a [(String, Source)],
        buffer: u32,
        policies: &'a [Policy],
    ) -> Result<Self> {
        let mut experiments = Vec::new();
        for (name, source) in workloads {
            for policy in policies {
                experiments.push(experiment(arguments, name, source, *policy, buffer));
            }
        }
        let mut outcomes = side_by_side(&experiments)?.into_iter();
        let row = |(name, _): &'a (String, Source)| {
            (name.as_str(), outcomes.by_ref().take(policies.len()).collect())
        };
        Ok(Self { policies, rows: workloads.iter().map(row).collect() })
    }

    fn table(&self, cell: impl Fn(&Outcome) -> String) -> String {
        let policy = |(grouping, victims, writing): &Policy| match writing {
            Writing::Largest | Writing::Coldest => format!("{grouping} {victims}, {writing}"),
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

    fn csv(&self) -> String {
        self.rows.iter().flat_map(|(_, outcomes)| outcomes).map(|o| o.csv() + "\n").collect()
    }
}

/// Carries out the experiments, as many at a time as there are processors.
fn side_by_side(experiments: &[Experiment<'_>]) -> Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let work = |send: mpsc::Sender<_>| {
        while let Some((no, experiment)) = {
            let no = next.fetch_add(1, Ordering::Relaxed);
            experiments.get(no).map(|experiment| (no, experiment))
        } {
            // Nobody listens any more once an experiment has failed.
            let _ = send.send((no, experiment.run(&mut |_, _| ())));
        }
    };
    let mut outcomes = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (work, send) = (&work, send.clone());
            scope.spawn(move || work(send));
        }
        drop(send);
        with_bar(|progress| {
            let mut outcomes = Vec::new();
            for (no, outcome) in receive {
                outcomes.push((no, outcome?));
                progress(outcomes.len() as u64, experiments.len() as u64);
            }
            anyhow::Ok(outcomes)
        })
    })?;
    outcomes.sort_unstable_by_key(|(no, _)| *no);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
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
    (grouping, victims, writing): Policy,
    buffer: u32,
) -> Experiment<'a> {
    // A small trace has fewer segments: a head of each group must not be a great part of them.
    let live_segments = source.block_count().map_or(512, |blocks| (blocks / 16).clamp(128, 512));
    Experiment {
        source,
        workload: name.to_owned(),
        warm_up_source: None,
        space: SpaceRequest {
            utilization: 0.85,
            live_segments,
            segment_blocks: arguments.segment_blocks,
            reserve: 0.02_f64.max(10.0 * 0.85 / f64::from(live_segments)),
            blocks: None,
        },
        exact: None,
        dummy: 0.0,
        metadata: Metadata::NONE,
        buffering: Buffering { segments: buffer, writing, ..Buffering::NONE },
        grouping: grouping.to_owned(),
        victims: Some(victims.to_owned()),
        groups: None,
        warm_up: 3.0,
        measure: 5.0,
        seed: 1,
    }
}
