//! The cells of the table: a workload, a utilization and an interval of syncs; and the policies in each.

use sfs_lab::simulation::{
    Buffering, Experiment, MetadataOverhead, VolumeSize, VolumeSizeRequest, WriteOutPolicy,
};

use crate::experiments::workloads::{self, NamedSource};

/// Grouping policy and victim policy. The first set is the default of a volume.
pub(super) type PolicySet = (&'static str, &'static str);

pub(super) const POLICIES: [PolicySet; 10] = [
    ("sfs", "index"),
    ("none", "greedy"),
    ("none", "cost-benefit"),
    ("dac", "cost-benefit-sqrt"),
    ("sep-gc", "cost-benefit"),
    ("sepbit", "greedy"),
    ("sepbit", "cost-benefit-sqrt"),
    ("sepbit", "index"),
    ("sfs-log", "cost-benefit"),
    ("sfs-fast12", "cost-hotness"),
];

const UTILIZATIONS: [f64; 3] = [0.70, 0.85, 0.93];

/// Utilization of the volumes of traces.
const TRACE_UTILIZATION: f64 = 0.85;

/// Numbers of users' writes from one sync to the next.
const SYNCS: [Option<u64>; 3] = [None, Some(4096), Some(64)];

/// Number of segments of a generator's volume, 256 KiB each.
const SEGMENTS: u32 = 1024;
const SEGMENT_BLOCKS: u32 = 64;

/// Number of segments of a generator's volume that are kept clean: 2%.
const RESERVE_SEGMENTS: u32 = 20;

/// Divisor of the size of a volume, for the size of its buffer: a volume of 2 GiB writes back from
/// 32 MiB of dirty blocks on.
const VOLUME_PER_BUFFER: u32 = 64;

/// A volume under a workload.
pub(super) struct Cell<'a> {
    pub(super) workload: &'a NamedSource,
    pub(super) utilization: f64,
    pub(super) sync: Option<u64>,
}

impl<'a> Cell<'a> {
    /// Returns the cells of a generator or a trace.
    pub(super) fn all(workload: &'a NamedSource) -> Vec<Self> {
        let is_trace = workload.1.block_count().is_some();
        let utilizations = if is_trace { &[TRACE_UTILIZATION][..] } else { &UTILIZATIONS };
        let cell = |utilization: &f64| {
            let utilization = *utilization;
            SYNCS.map(|sync| Self { workload, utilization, sync })
        };
        utilizations.iter().flat_map(cell).collect()
    }

    /// Returns the number of seeds to run: `wanted`, but 1 for a trace, which has no randomness.
    pub(super) fn seed_count(&self, wanted: u64) -> u64 {
        if self.workload.1.block_count().is_some() { 1 } else { wanted }
    }

    /// Returns the experiment with the policies and a seed.
    pub(super) fn experiment(&self, (grouping, victims): PolicySet, seed: u64) -> Experiment<'a> {
        let (name, source) = self.workload;
        let live_segments = workloads::live_segments(source);
        let volume_blocks = source.block_count().map_or(SEGMENTS * SEGMENT_BLOCKS, |blocks| {
            (f64::from(blocks) / self.utilization) as u32
        });
        Experiment {
            source,
            workload: name.clone(),
            warm_up_source: None,
            space: VolumeSizeRequest {
                utilization: self.utilization,
                live_segments,
                segment_blocks: SEGMENT_BLOCKS,
                reserve: workloads::reserve(live_segments),
                blocks: None,
            },
            exact: source.block_count().is_none().then(|| self.generators_volume()),
            dummy: 0.0,
            metadata: MetadataOverhead::NONE,
            buffering: Buffering {
                blocks: Some(volume_blocks / VOLUME_PER_BUFFER),
                writing: WriteOutPolicy::Largest,
                sync_interval: self.sync,
                ..Buffering::NONE
            },
            grouping: grouping.to_owned(),
            victims: Some(victims.to_owned()),
            groups: None,
            warm_up: 3.0,
            measure: 5.0,
            seed,
        }
    }

    fn generators_volume(&self) -> VolumeSize {
        let blocks = f64::from(SEGMENTS * SEGMENT_BLOCKS) * self.utilization;
        VolumeSize {
            blocks: blocks as u32,
            segment_blocks: SEGMENT_BLOCKS,
            segments: SEGMENTS,
            reserve_segments: RESERVE_SEGMENTS,
        }
    }
}
