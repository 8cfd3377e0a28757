//! The figure of a policy in a cell: mean and spread over the seeds, and the bound.

use sfs_lab::closed_form;
use sfs_lab::simulation::SimulationOutcome;
use sfs_lab::workload::Source;

/// Log write amplification over the seeds.
pub(super) struct Figure {
    pub(super) mean: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// Mean of the known-rates bound; `None` if rates change or are unknown.
    pub(super) bound: Option<f64>,
    /// Mean part of the volume, 0..1, that was clean or unwritten.
    pub(super) withheld: f64,
    /// Mean part of the writes, 0..1, that was overwritten in the buffer.
    pub(super) coalesced: f64,
    pub(super) seeds: usize,
}

impl Figure {
    /// Returns the figure of one outcome or more.
    pub(super) fn of(source: &Source, outcomes: &[SimulationOutcome]) -> Self {
        let logs = || outcomes.iter().map(|outcome| outcome.amplification_log);
        let mean =
            |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / outcomes.len() as f64;
        let bounds: Option<Vec<f64>> = outcomes.iter().map(|one| bound(source, one)).collect();
        Self {
            mean: mean(&mut logs()),
            least: logs().fold(f64::INFINITY, f64::min),
            most: logs().fold(0.0, f64::max),
            bound: bounds.map(|bounds| mean(&mut bounds.into_iter())),
            withheld: mean(&mut outcomes.iter().map(withheld)),
            coalesced: mean(&mut outcomes.iter().map(|outcome| outcome.coalesced)),
            seeds: outcomes.len(),
        }
    }
}

fn volume_blocks(outcome: &SimulationOutcome) -> f64 {
    f64::from(outcome.space.segments) * f64::from(outcome.space.segment_blocks)
}

fn withheld(outcome: &SimulationOutcome) -> f64 {
    outcome.counters.withheld() / volume_blocks(outcome)
}

/// Returns the known-rates bound for the blocks that are not in the buffer, in the space that is not withheld.
fn bound(source: &Source, outcome: &SimulationOutcome) -> Option<f64> {
    let classes = source.rates(outcome.space.blocks)?;
    let space = volume_blocks(outcome) - outcome.counters.withheld();
    Some(closed_form::known_rates_in_log(&classes, outcome.coalesced, space))
}
