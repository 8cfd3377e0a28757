//! One experiment: a workload, a space, and policies.
//!
//! Owns: its order: filling, warming up, measuring.
//! Promises: the same outcome for the same experiment, but for the time it took.
//! Never: prints.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use sfs_core::policy;

use crate::oracle::FutureKnowledge;
use crate::outcome::Outcome;
use crate::simulation::{Buffering, Simulation, SpaceRequest};
use crate::workload::{Operation, Source};

/// Name of the placement that only the laboratory has.
pub const ORACLE: &str = "future-knowledge";

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// The workload, and its name.
    pub source: &'a Source,
    /// Name of the workload.
    pub workload: String,
    /// The volume.
    pub space: SpaceRequest,
    /// The write buffer.
    pub buffering: Buffering,
    /// Name of the placement.
    pub placement: String,
    /// Name of the victim selection; the placement's own if there is none.
    pub victims: Option<String>,
    /// Number of groups; the placement's own if there is none.
    pub groups: Option<u8>,
    /// Writes before measuring, in sizes of the users' space.
    pub warm_up: f64,
    /// Writes measured, in the same.
    pub measure: f64,
    /// Seed of the workload.
    pub seed: u64,
}

/// Told how far an experiment is: writes done, of so many.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Experiment<'_> {
    /// Carries it out.
    pub fn run(&self, progress: Progress<'_>) -> Result<Outcome> {
        if self.placement == ORACLE && self.buffering.segments > 0 {
            bail!("{ORACLE} knows writes by their number, which a write buffer changes");
        }
        let request = SpaceRequest { blocks: self.source.block_count(), ..self.space };
        let space = request.space()?;
        let blocks = u64::from(space.blocks);
        let warm_up = (self.warm_up * blocks as f64) as u64;
        let total = warm_up + (self.measure * blocks as f64) as u64;
        let victims = match (&self.victims, self.placement.as_str()) {
            (Some(name), _) => name.as_str(),
            (None, ORACLE) => "greedy",
            (None, name) => policy::default_victims(name),
        };
        let size = u64::from(space.segments) * u64::from(space.segment_blocks);
        let victims = policy::victims_by(victims, space.segments, space.segment_blocks, size)
            .with_context(|| format!("no victim selection {victims}"))?;
        let mut stream = self.source.stream(space.blocks, self.seed);
        let mut recorded = Vec::new();
        let (placement, tick_log2): (Box<dyn policy::Placement>, u32) = if self.placement == ORACLE
        {
            recorded.extend((0..space.blocks).map(Operation::write));
            recorded.extend((0..total).map(|_| stream.next()));
            (Box::new(FutureKnowledge::new(&recorded, space.blocks, space.segment_blocks)), 0)
        } else {
            let tick_log2 = policy::tick_blocks_log2(size);
            let placement = policy::placement(
                &self.placement,
                self.groups,
                space.segments,
                space.segment_blocks,
                size,
            );
            let none = || format!("no placement {}", self.placement);
            (placement.with_context(none)?, tick_log2)
        };
        let names = (placement.name(), victims.name());
        let mut simulation = Simulation::new(&space, self.buffering, placement, victims, tick_log2);
        for block in 0..space.blocks {
            simulation.operate(Operation::write(block));
        }
        let mut recorded = recorded.into_iter().skip(space.blocks as usize);
        let mut next = || recorded.next().unwrap_or_else(|| stream.next());
        let step = (blocks / 4).clamp(1, 1 << 20);
        let mut done = 0;
        let mut began = Instant::now();
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
                began = Instant::now();
                counted = done;
            } else if done > warm_up {
                simulation.sample();
            }
            progress(done, total);
        }
        let nanoseconds = began.elapsed().as_nanos() as f64 / (done - counted).max(1) as f64;
        Ok(Outcome::new(self, space, names, simulation.counters().clone(), nanoseconds))
    }
}
