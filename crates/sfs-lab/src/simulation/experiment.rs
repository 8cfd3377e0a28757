//! One experiment: fills a simulated volume, warms it up, and measures it under a workload.
//!
//! The outcome of an experiment is the same every time, except for the processor time.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use sfs_core::policy::{self, GroupingPolicy, VictimPolicy};

use super::buffering::Buffering;
use super::oracle::{ORACLE, ORACLE_VICTIMS, OracleGrouping, OracleVictims, WriteSchedule};
use super::outcome::SimulationOutcome;
use super::space::{VolumeSize, VolumeSizeRequest};
use super::volume::Simulation;
use crate::closed_form;
use crate::workload::{BlockOperation, Source, Workload};

/// Largest multiple of the users' blocks that is written, and largest number of nodes for a block.
const MULTIPLE_MAX: f64 = 1e6;

/// The configuration of an experiment.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// The workload.
    pub source: &'a Source,
    /// Name of the workload.
    pub workload: String,
    /// Workload of the warm-up, if it differs from `source`; must be a generator.
    pub warm_up_source: Option<&'a Source>,
    /// Wanted size of the volume.
    pub space: VolumeSizeRequest,
    /// Exact size of the volume, instead of `space`.
    pub exact: Option<VolumeSize>,
    /// Part of the users' blocks, 0..1, that is written only once, before the other blocks.
    pub dummy: f64,
    /// Metadata that a mounted volume writes.
    pub metadata: MetadataOverhead,
    /// The write buffer.
    pub buffering: Buffering,
    /// Name of the grouping policy.
    pub grouping: String,
    /// Name of the victim policy; by default that of the grouping policy.
    pub victims: Option<String>,
    /// Number of groups; by default that of the grouping policy.
    pub groups: Option<u8>,
    /// Number of writes before measuring, in multiples of the users' blocks.
    pub warm_up: f64,
    /// Number of measured writes, in multiples of the users' blocks.
    pub measure: f64,
    /// Seed of the workload.
    pub seed: u64,
}

/// Metadata that a mounted volume writes beside data. `sfs-ctl stat` has the counters for both shares.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct MetadataOverhead {
    /// Part of every segment, 0..0.5, that holds summaries instead of data.
    pub summaries: f64,
    /// Number of tree nodes written for each block of data that users or the cleaner write. Nodes
    /// are counted but take no space, because all nodes are dead by the next checkpoint.
    pub nodes: f64,
}

impl MetadataOverhead {
    /// No metadata.
    pub const NONE: Self = Self { summaries: 0.0, nodes: 0.0 };

    /// Returns the number of data blocks in a segment of `segment_blocks`.
    fn data_blocks(self, segment_blocks: u32) -> u32 {
        ((f64::from(segment_blocks) * (1.0 - self.summaries)) as u32).max(1)
    }

    /// Returns the number of blocks that reach the device for a block of data.
    fn device_blocks_per_block(self) -> f64 {
        (1.0 + self.nodes) / (1.0 - self.summaries)
    }
}

/// A callback that takes the number of writes so far, and the number of all writes.
pub type ProgressFn<'a> = &'a mut dyn FnMut(u64, u64);

/// The numbers of operations of an experiment.
#[derive(Clone, Copy)]
struct OperationCounts {
    dummy_blocks: u32,
    warm_up: u64,
    total: u64,
}

/// The policies of an experiment.
struct Policies {
    grouping: Box<dyn GroupingPolicy>,
    victims: Box<dyn VictimPolicy>,
    tick_log2: u32,
}

impl Experiment<'_> {
    /// Runs the experiment.
    ///
    /// # Errors
    ///
    /// If a policy does not exist, or the sizes do not fit each other.
    pub fn run(&self, progress: ProgressFn<'_>) -> Result<SimulationOutcome> {
        let space = self.volume_size()?;
        let counts = self.operation_counts(&space)?;
        let mut stream = OperationStream::new(self, &space, counts);
        // A policy that knows the future needs all operations first.
        let known = (self.grouping == ORACLE).then(|| stream.record(counts.total));
        let writes = known.as_ref().map(|operations| {
            let filling = (0..space.blocks).map(BlockOperation::write);
            let all: Vec<_> = filling.chain(operations.iter().copied()).collect();
            Arc::new(WriteSchedule::new(&all, space.blocks))
        });
        let Policies { grouping, victims, tick_log2 } = self.policies(&space, writes.clone())?;
        let heads = u32::from(grouping.group_count());
        if space.reserve_segments < heads {
            bail!(
                "a reserve of {} segments is too small for the {heads} groups of {}: take more segments, or a \
                 larger --reserve",
                space.reserve_segments,
                grouping.name()
            );
        }
        let names = (grouping.name(), victims.name());
        let mut simulation = Simulation::new(&space, self.buffering, grouping, victims, tick_log2);
        simulation.set_schedule(writes);
        for block in 0..space.blocks {
            simulation.operate(BlockOperation::write(block))?;
        }
        let nanoseconds = match known {
            Some(operations) => {
                let mut operations = operations.into_iter();
                let mut next = || operations.next().expect("all operations were recorded");
                measure(&mut simulation, counts, &space, &mut next, progress)?
            }
            None => measure(&mut simulation, counts, &space, &mut || stream.next(), progress)?,
        };
        Ok(self.outcome(&simulation, space, names, nanoseconds))
    }

    /// Returns the sizes of the volume. The size of a segment does not include its summaries.
    fn volume_size(&self) -> Result<VolumeSize> {
        let request = VolumeSizeRequest { blocks: self.source.block_count(), ..self.space };
        let mut space = self.exact.map_or_else(|| request.sizes(), Ok)?;
        if !(0.0..0.5).contains(&self.metadata.summaries)
            || !(0.0..=MULTIPLE_MAX).contains(&self.metadata.nodes)
        {
            bail!("summaries must be at least 0 and below 0.5 of a segment, and nodes at least 0");
        }
        space.segment_blocks = self.metadata.data_blocks(space.segment_blocks);
        space.check()?;
        let usable_segments = u64::from(space.segments - space.reserve_segments);
        if u64::from(space.blocks) >= usable_segments * u64::from(space.segment_blocks) {
            bail!("the users' blocks leave no room for the reserve; lower the utilization");
        }
        Ok(space)
    }

    fn operation_counts(&self, space: &VolumeSize) -> Result<OperationCounts> {
        let dummy_blocks = (f64::from(space.blocks) * self.dummy) as u32;
        if self.warm_up_source.is_some_and(|source| source.block_count().is_some()) {
            bail!("the workload of the warm-up must be a generator, not a trace");
        }
        let is_trace = self.source.block_count().is_some();
        if dummy_blocks > space.blocks - 2 || is_trace && dummy_blocks > 0 {
            bail!("dummies must leave two blocks for a generator; a trace allows no dummies");
        }
        for (name, multiple) in [("warm-up", self.warm_up), ("measure", self.measure)] {
            if !(0.0..=MULTIPLE_MAX).contains(&multiple) {
                bail!("--{name} {multiple}: not from 0 to {MULTIPLE_MAX}");
            }
        }
        if !(0.0..=1.0).contains(&self.dummy) {
            bail!("--dummy {}: not from 0 to 1", self.dummy);
        }
        let writes = |sizes: f64| (sizes * f64::from(space.blocks)) as u64;
        let warm_up = writes(self.warm_up);
        Ok(OperationCounts { dummy_blocks, warm_up, total: warm_up + writes(self.measure) })
    }

    fn policies(&self, space: &VolumeSize, writes: Option<Arc<WriteSchedule>>) -> Result<Policies> {
        let (segments, segment_blocks) = (space.segments, space.segment_blocks);
        let size_blocks = u64::from(segments) * u64::from(segment_blocks);
        let is_oracle = writes.is_some();
        let (grouping, tick_log2): (Box<dyn GroupingPolicy>, u32) = match writes {
            Some(writes) => {
                (Box::new(OracleGrouping::new(writes, space.blocks, segment_blocks)), 0)
            }
            None => {
                let (name, groups) = (&self.grouping, self.groups);
                let grouping =
                    policy::grouping_policy(name, groups, segments, segment_blocks, size_blocks)
                        .with_context(|| format!("no grouping policy {name}"))?;
                (grouping, policy::tick_blocks_log2(size_blocks))
            }
        };
        let victims: Box<dyn VictimPolicy> = match self.victims.as_deref() {
            None | Some(ORACLE_VICTIMS) if is_oracle => Box::new(OracleVictims),
            name => {
                let default = || policy::default_victim_policy(&self.grouping);
                let name = name.unwrap_or_else(default);
                policy::victim_policy(name, segments, segment_blocks, size_blocks)
                    .with_context(|| format!("no victim policy {name}"))?
            }
        };
        Ok(Policies { grouping, victims, tick_log2 })
    }

    fn outcome(
        &self,
        simulation: &Simulation,
        space: VolumeSize,
        (grouping_policy, victim_policy): (&'static str, &'static str),
        nanoseconds_per_write: f64,
    ) -> SimulationOutcome {
        let counters = simulation.counters().clone();
        let amplification_user = counters.amplification_user();
        SimulationOutcome {
            workload: self.workload.clone(),
            grouping_policy,
            victim_policy,
            groups: self.groups,
            seed: self.seed,
            utilization: self.space.utilization,
            space,
            buffering: self.buffering,
            amplification_log: counters.amplification_log(),
            amplification_user,
            amplification_device: amplification_user * self.metadata.device_blocks_per_block(),
            amplification_known_rates: self.known_rates(&space),
            coalesced: counters.coalesced(),
            write_cost: counters.write_cost(),
            victim_utilization: counters.victim_utilization(space.segment_blocks),
            nanoseconds_per_write,
            counters,
            ranks: simulation.ranks(),
        }
    }

    fn known_rates(&self, space: &VolumeSize) -> Option<f64> {
        let unbuffered = self.buffering.capacity_blocks(space.segment_blocks) == 0;
        let classes = self.source.rates(space.blocks)?;
        let least = || closed_form::known_rates(&classes, space.utilization_within_reserve());
        (unbuffered && self.dummy == 0.0).then(least)
    }
}

/// The operations of an experiment: first the warm-up, then the measured operations.
struct OperationStream<'a> {
    /// The workload of the warm-up and the number of its remaining operations, if it differs.
    warming: Option<(Box<dyn Workload + 'a>, u64)>,
    measured: Box<dyn Workload + 'a>,
    dummy_blocks: u32,
}

impl<'a> OperationStream<'a> {
    fn new(experiment: &Experiment<'a>, space: &VolumeSize, counts: OperationCounts) -> Self {
        let blocks = space.blocks - counts.dummy_blocks;
        let stream = |source: &'a Source| source.stream(blocks, experiment.seed);
        Self {
            warming: experiment.warm_up_source.map(|source| (stream(source), counts.warm_up)),
            measured: stream(experiment.source),
            dummy_blocks: counts.dummy_blocks,
        }
    }

    fn next(&mut self) -> BlockOperation {
        let operation = match &mut self.warming {
            Some((stream, left)) if *left > 0 => {
                *left -= 1;
                stream.next()
            }
            _ => self.measured.next(),
        };
        operation.shifted(self.dummy_blocks)
    }

    fn record(&mut self, count: u64) -> Vec<BlockOperation> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Warms up and measures. Returns the processor time of a measured operation in nanoseconds.
fn measure(
    simulation: &mut Simulation,
    counts: OperationCounts,
    space: &VolumeSize,
    next: &mut dyn FnMut() -> BlockOperation,
    progress: ProgressFn<'_>,
) -> Result<f64> {
    simulation.start_counting();
    let step = (u64::from(space.blocks) / 4).clamp(1, 1 << 20);
    let (mut done, mut counted_from) = (0, 0);
    let mut began = processor_time();
    while done < counts.total {
        let bound = if done < counts.warm_up { counts.warm_up } else { counts.total };
        let count = step.min(bound - done);
        for _ in 0..count {
            simulation.operate(next())?;
        }
        done += count;
        if done == counts.warm_up {
            simulation.start_counting();
            began = processor_time();
            counted_from = done;
        } else if done > counts.warm_up {
            simulation.sample();
        }
        progress(done, counts.total);
    }
    let spent = processor_time().saturating_sub(began);
    Ok(spent.as_nanos() as f64 / (done - counted_from).max(1) as f64)
}

/// Returns the processor time of this thread, so that other programs do not count. On a system
/// without this information (all but Linux), returns the time of day.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.as_deref().and_then(|text| text.split(' ').next()?.parse().ok());
    let day = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    nanoseconds.map_or_else(day, Duration::from_nanos)
}
