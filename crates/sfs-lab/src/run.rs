//! One experiment: a workload, a space, and policies.
//!
//! Owns: its order: filling, warming up, measuring.
//! Promises: the same outcome for the same experiment, but for the time it took.
//! Never: prints.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use sfs_core::policy;

use crate::oracle::{Future, FutureIndex, FutureKnowledge};
use crate::outcome::Outcome;
use crate::simulation::{Buffering, Simulation, Space, SpaceRequest};
use crate::workload::{Operation, Source};

/// Name of the grouping that only the laboratory has.
pub const ORACLE: &str = "future-knowledge";

/// Name of the victim selection that goes with it.
pub const ORACLE_VICTIMS: &str = "future-index";

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// The workload, and its name.
    pub source: &'a Source,
    /// Name of the workload.
    pub workload: String,
    /// What is written before measuring, if that is something else; a generator.
    pub warm_up_source: Option<&'a Source>,
    /// The volume.
    pub space: SpaceRequest,
    /// The volume's own sizes instead.
    pub exact: Option<Space>,
    /// Part of the users' blocks that is written once and never again, before the others.
    pub dummy: f64,
    /// What a mounted volume writes beside data.
    pub metadata: Metadata,
    /// The write buffer.
    pub buffering: Buffering,
    /// Name of the grouping.
    pub grouping: String,
    /// Name of the victim selection; the grouping's own if there is none.
    pub victims: Option<String>,
    /// Number of groups; the grouping's own if there is none.
    pub groups: Option<u8>,
    /// Writes before measuring, in sizes of the users' space.
    pub warm_up: f64,
    /// Writes measured, in the same.
    pub measure: f64,
    /// Seed of the workload.
    pub seed: u64,
}

/// What a mounted volume writes beside data; `sfs-ctl stat` has both shares of one that runs.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Metadata {
    /// Part of every segment that is summaries, 0..1: data has so much less room.
    pub summaries: f64,
    /// Tree nodes written for a block of data that is written, by users or the cleaner. They are
    /// counted, and take no room: by the next checkpoint they are dead.
    pub nodes: f64,
}

impl Metadata {
    /// None.
    pub const NONE: Self = Self { summaries: 0.0, nodes: 0.0 };

    /// Blocks of data in a segment of so many.
    fn room(self, segment_blocks: u32) -> u32 {
        ((f64::from(segment_blocks) * (1.0 - self.summaries)) as u32).max(1)
    }

    /// Blocks that the device is given for a block of data.
    pub(crate) fn per_block(self) -> f64 {
        (1.0 + self.nodes) / (1.0 - self.summaries)
    }
}

/// Told how far an experiment is: writes done, of so many.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl<'a> Experiment<'a> {
    /// Carries it out.
    pub fn run(&self, progress: Progress<'_>) -> Result<Outcome> {
        let request = SpaceRequest { blocks: self.source.block_count(), ..self.space };
        let mut space = self.exact.map_or_else(|| request.space(), Ok)?;
        if !(0.0..0.5).contains(&self.metadata.summaries) || self.metadata.nodes < 0.0 {
            bail!("summaries are 0 to 0.5 of a segment, and nodes not below zero");
        }
        space.segment_blocks = self.metadata.room(space.segment_blocks);
        if u64::from(space.blocks)
            >= u64::from(space.segments - space.reserve) * u64::from(space.segment_blocks)
        {
            bail!("users' blocks do not leave the reserve clean");
        }
        let dummies = (f64::from(space.blocks) * self.dummy) as u32;
        if self.warm_up_source.is_some_and(|source| source.block_count().is_some()) {
            bail!("the workload of the warm-up is a generator, not a trace");
        }
        if dummies > space.blocks - 2 || self.source.block_count().is_some() && dummies > 0 {
            bail!("a generator needs two blocks beside the dummies, and a trace has its own");
        }
        let blocks = u64::from(space.blocks);
        let warm_up = (self.warm_up * blocks as f64) as u64;
        let total = warm_up + (self.measure * blocks as f64) as u64;
        let size = u64::from(space.segments) * u64::from(space.segment_blocks);
        let stream = |source: &'a Source| source.stream(space.blocks - dummies, self.seed);
        let mut warming = self.warm_up_source.map(|source| (stream(source), warm_up));
        let mut measured = stream(self.source);
        let mut draw = || {
            let operation = match &mut warming {
                Some((stream, left)) if *left > 0 => {
                    *left -= 1;
                    stream.next()
                }
                _ => measured.next(),
            };
            operation.behind(dummies)
        };
        let mut recorded = Vec::new();
        let mut future = None;
        let mut tick_log2 = policy::tick_blocks_log2(size);
        let grouping: Box<dyn policy::GroupingPolicy> = if self.grouping == ORACLE {
            recorded.extend((0..space.blocks).map(Operation::write));
            recorded.extend((0..total).map(|_| draw()));
            tick_log2 = 0;
            let known = Arc::new(Future::new(&recorded, space.blocks));
            future = Some(Arc::clone(&known));
            Box::new(FutureKnowledge::new(known, space.blocks, space.segment_blocks))
        } else {
            let (segments, segment_blocks) = (space.segments, space.segment_blocks);
            policy::grouping_policy(&self.grouping, self.groups, segments, segment_blocks, size)
                .with_context(|| format!("no grouping {}", self.grouping))?
        };
        let victims: Box<dyn policy::VictimPolicy> = match &self.victims {
            None if future.is_some() => Box::new(FutureIndex),
            Some(name) if future.is_some() && name == ORACLE_VICTIMS => Box::new(FutureIndex),
            name => {
                let default = || policy::default_victim_policy(&self.grouping);
                let name = name.as_deref().unwrap_or_else(default);
                policy::victim_policy(name, space.segments, space.segment_blocks, size)
                    .with_context(|| format!("no victim selection {name}"))?
            }
        };
        let names = (grouping.name(), victims.name());
        let mut simulation = Simulation::new(&space, self.buffering, grouping, victims, tick_log2);
        simulation.know(future);
        for block in 0..space.blocks {
            simulation.operate(Operation::write(block));
        }
        simulation.start_counting();
        let mut recorded = recorded.into_iter().skip(space.blocks as usize);
        let mut next = || recorded.next().unwrap_or_else(&mut draw);
        let step = (blocks / 4).clamp(1, 1 << 20);
        let mut done = 0;
        let mut began = processor_time();
        let mut counted = 0;
        while done < total {
            let bound = if done < warm_up { warm_up } else { total };
            let count = step.min(bound - done);
            for _ in 0..count {
                simulation.operate(next());
            }
            done += count;
            if done == warm_up {
                simulation.start_counting();
                began = processor_time();
                counted = done;
            } else if done > warm_up {
                simulation.sample();
            }
            progress(done, total);
        }
        let spent = processor_time().saturating_sub(began);
        let nanoseconds = spent.as_nanos() as f64 / (done - counted).max(1) as f64;
        Ok(Outcome::new(self, space, names, simulation.counters().clone(), nanoseconds))
    }
}

/// Time that this thread has had a processor for, since some moment: other programs must not count.
/// Where the system does not tell (only Linux does), the time of day.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.as_deref().and_then(|text| text.split(' ').next()?.parse().ok());
    let day = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    nanoseconds.map_or_else(day, Duration::from_nanos)
}
