//! A grouping policy of one's own, and its comparison with those of SFS: `docs/lab/own-policy.md` explains it.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use sfs_core::format::Group;
use sfs_core::policy::{self, Candidate, GroupingPolicy, SavedState, VictimPolicy};
use sfs_lab::simulation::{Buffering, Simulation, VolumeSize, VolumeSizeRequest};
use sfs_lab::workload::{BlockOperation, Source};

/// Blocks that were overwritten within a part of the volume's size go to group 0, others to group 1, and what the
/// cleaner moves to group 2.
#[derive(Clone, Copy, Debug)]
pub struct TwoAges {
    /// Age in ticks below which a block is young.
    young: u32,
}

impl TwoAges {
    /// Returns the policy for a volume; `part` of its blocks are written while a block is young.
    pub fn new(space: &VolumeSize, part: f64) -> TwoAges {
        TwoAges { young: (ticks(space) * part) as u32 }
    }
}

/// Returns the number of ticks in which users write as many blocks as the volume has.
fn ticks(space: &VolumeSize) -> f64 {
    let blocks = size_blocks(space);
    blocks as f64 / f64::from(1_u32 << policy::tick_blocks_log2(blocks))
}

fn size_blocks(space: &VolumeSize) -> u64 {
    u64::from(space.segments) * u64::from(space.segment_blocks)
}

impl SavedState for TwoAges {
    /// The policy saves nothing in a checkpoint.
    const STATE_LEN_MAX: usize = 0;
}

impl GroupingPolicy for TwoAges {
    fn name(&self) -> &'static str {
        "two-ages"
    }

    fn group_count(&self) -> u8 {
        3
    }

    fn group(&self, candidate: &Candidate, now: u32) -> Group {
        let age = candidate.history.map(|history| now.saturating_sub(history.modified));
        match age {
            _ if candidate.cleaning => Group(2),
            Some(age) if age < self.young => Group(0),
            _ => Group(1),
        }
    }
}

/// Returns a volume that is 85% full, of 256 segments of 64 blocks with data.
pub fn volume() -> Result<VolumeSize> {
    let request = VolumeSizeRequest {
        utilization: 0.85,
        live_segments: 256,
        segment_blocks: 64,
        reserve: 0.03,
        blocks: None,
    };
    request.sizes()
}

/// Returns the log write amplification of policies under a workload: the volume is written once, its blocks are
/// overwritten three times to warm up, and three times to measure.
pub fn amplification(
    space: &VolumeSize,
    workload: &str,
    grouping: Box<dyn GroupingPolicy>,
    victims: Box<dyn VictimPolicy>,
) -> Result<f64> {
    let source = Source::open(workload)?;
    let tick_log2 = policy::tick_blocks_log2(size_blocks(space));
    let mut simulation = Simulation::new(space, Buffering::NONE, grouping, victims, tick_log2);
    for block in 0..space.blocks {
        simulation.operate(BlockOperation::write(block))?;
    }
    let mut operations = source.stream(space.blocks, 1);
    let writes = 3 * u64::from(space.blocks);
    for _ in 0..writes {
        simulation.operate(operations.next())?;
    }
    simulation.start_counting();
    for _ in 0..writes {
        simulation.operate(operations.next())?;
    }
    Ok(simulation.counters().amplification_log())
}

/// Returns a grouping policy of SFS and its victim policy.
pub fn of_sfs(
    space: &VolumeSize,
    name: &str,
) -> Result<(Box<dyn GroupingPolicy>, Box<dyn VictimPolicy>)> {
    let (segments, segment_blocks) = (space.segments, space.segment_blocks);
    let blocks = size_blocks(space);
    let grouping = policy::grouping_policy(name, None, segments, segment_blocks, blocks)
        .with_context(|| format!("no policy {name}"))?;
    Ok((grouping, victims(space, policy::default_victim_policy(name))?))
}

/// Returns a victim policy of SFS.
pub fn victims(space: &VolumeSize, name: &str) -> Result<Box<dyn VictimPolicy>> {
    policy::victim_policy(name, space.segments, space.segment_blocks, size_blocks(space))
        .with_context(|| format!("no victim policy {name}"))
}
