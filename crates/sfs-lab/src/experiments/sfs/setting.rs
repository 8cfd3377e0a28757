//! The setting of the paper's experiments: the disk, its dummies and buffer, and one simulation in it.

use std::path::PathBuf;

use anyhow::Result;
use sfs_lab::block_trace::TraceFolder;
use sfs_lab::report::run_parallel;
use sfs_lab::simulation::{Buffering, Experiment, MetadataOverhead, SimulationOutcome};
use sfs_lab::simulation::{VolumeSizeRequest, WriteOutPolicy};
use sfs_lab::workload::Source;

pub(super) const UTILIZATIONS: [f64; 6] = [0.4, 0.6, 0.7, 0.8, 0.85, 0.9];

/// Write cost by utilization, of LFS with cost-benefit and one group, and of SFS.
pub(super) const COSTS: [(&str, [[f64; 6]; 2]); 3] = [
    ("zipf:0.99", [[1.23, 2.34, 2.75, 4.42, 6.12, 17.46], [1.05, 1.82, 1.45, 2.63, 4.21, 7.91]]),
    ("uniform", [[1.24, 1.99, 2.83, 5.06, 7.55, 30.19], [1.10, 1.35, 2.00, 4.17, 7.09, 21.78]]),
    ("tpcc", [[1.03, 2.07, 3.17, 4.04, 5.42, 22.64], [1.02, 1.38, 1.86, 2.07, 2.63, 5.12]]),
];

/// Trace in place of the paper's RES, which is not available.
pub(super) const RES_STAND_IN: &str = "cloudphysics-vm";

/// Overwritten blocks over all blocks of the disk, which the paper does not give. With uniform writes, LFS at
/// each of the paper's utilizations has the write amplification of a log with 0.21 of the disk and 5% kept
/// clean, while the other data is never cleaned (docs/lab.md).
const WORKING_SET: f64 = 0.21;

/// Approximate number of segments of the paper's disk (figure 3).
pub(super) const SEGMENTS: f64 = 900.0;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of blocks in a segment.
    #[arg(long, default_value_t = 256)]
    pub(super) segment_blocks: u32,
    /// Size of the write buffer, in segments.
    #[arg(long, default_value_t = 8)]
    pub(super) buffer: u32,
    /// Blocks that are overwritten, over all blocks; the others are written once (the paper's dummy blocks).
    #[arg(long, default_value_t = WORKING_SET)]
    pub(super) working_set: f64,
    #[command(flatten)]
    traces: TraceFolder,
    /// Folder of lab.md, whose section is replaced.
    #[arg(long)]
    pub(super) docs: Option<PathBuf>,
}

/// One simulation.
#[derive(Clone, Copy)]
pub(super) struct SimulationCase<'a> {
    pub(super) workload: &'a str,
    /// Grouping policy and victim policy.
    pub(super) policies: (&'a str, &'a str),
    pub(super) utilization: f64,
    pub(super) groups: Option<u8>,
    /// Size of the write buffer in segments, if it differs from that of the other cases.
    pub(super) buffer: Option<u32>,
}

impl<'a> SimulationCase<'a> {
    /// Returns the case of a workload with these policies, 85% full.
    pub(super) fn new(workload: &'a str, policies: (&'a str, &'a str)) -> Self {
        Self { workload, policies, utilization: 0.85, groups: None, buffer: None }
    }

    pub(super) fn at(self, utilization: f64) -> Self {
        Self { utilization, ..self }
    }
}

impl Arguments {
    pub(super) fn outcomes(&self, cases: &[SimulationCase<'_>]) -> Result<Vec<SimulationOutcome>> {
        run_parallel(cases, |case| self.outcome(case))
    }

    /// Returns the trace in place of RES as a workload, if the folder of traces has it.
    pub(super) fn res_stand_in(&self) -> Option<String> {
        let path = self.traces.find(format!("{RES_STAND_IN}.csv.zst"))?;
        Some(format!("trace:{}", path.display()))
    }

    pub(super) fn outcome(&self, case: &SimulationCase<'_>) -> Result<SimulationOutcome> {
        let SimulationCase { workload, utilization, groups, .. } = *case;
        let (grouping, victims) = case.policies;
        let source = Source::open(workload)?;
        let experiment = Experiment {
            source: &source,
            warm_up_source: None,
            workload: workload.to_owned(),
            // The paper's cleaner begins at a utilization of 95%.
            space: VolumeSizeRequest {
                utilization,
                live_segments: (SEGMENTS * utilization) as u32,
                segment_blocks: self.segment_blocks,
                reserve: 0.05,
                blocks: None,
            },
            exact: None,
            // A trace has blocks of its own that are written once.
            dummy: match source.block_count() {
                Some(_) => 0.0,
                None => (1.0 - self.working_set / utilization).max(0.0),
            },
            metadata: MetadataOverhead::NONE,
            buffering: Buffering {
                segments: case.buffer.unwrap_or(self.buffer),
                writing: WriteOutPolicy::of(grouping),
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

/// Returns the cells of a row.
pub(super) fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Returns the cell of our write cost.
pub(super) fn ours(outcome: &SimulationOutcome) -> String {
    format!("{:.2} ({:.2})", outcome.write_cost, outcome.amplification_log)
}
