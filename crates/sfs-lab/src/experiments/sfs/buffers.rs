//! Write cost by the size of the write buffer. The paper's machine had 4 GB of memory before 64 GB of flash, and does not
//! say how much of it coalesced writes; all of it is a sixteenth, 56 of 900 segments.

use anyhow::Result;
use sfs_lab::report::{run_parallel, table};
use sfs_lab::simulation::{NoRoom, SimulationOutcome};

use super::setting::{Arguments, COSTS, SimulationCase, UTILIZATIONS, ours};

/// Sizes of the buffer, in segments.
const BUFFERS: [u32; 4] = [8, 24, 40, 56];

/// Policies: LFS, and SFS's groups with each victim policy.
const POLICIES: [(&str, &str); 3] =
    [("none", "cost-benefit"), ("sfs-fast12", "cost-hotness"), ("sfs-fast12", "cost-benefit")];

/// Returns the table: a row for each workload and size at 85%, the paper's figures first.
pub(super) fn text(arguments: &Arguments) -> Result<String> {
    let heading = [
        "85% full, by size of the buffer",
        "LFS-CB",
        "sfs-fast12",
        "sfs-fast12 cost-benefit",
        "LFS-CB / paper's",
        "sfs-fast12 / paper's SFS",
        "cost-benefit / paper's SFS",
    ];
    let mut rows = Vec::new();
    for (workload, costs) in COSTS {
        let at = UTILIZATIONS.iter().position(|&utilization| utilization == 0.85);
        let [lfs, sfs] = costs.map(|costs| costs[at.expect("one of the utilizations is 0.85")]);
        rows.push(
            [format!("{workload}, paper"), format!("{lfs:.2}"), format!("{sfs:.2}")].to_vec(),
        );
        let cases = BUFFERS.into_iter().flat_map(|buffer| {
            POLICIES.map(|policies| SimulationCase {
                buffer: Some(buffer),
                ..SimulationCase::new(workload, policies)
            })
        });
        let outcomes =
            run_parallel(&cases.collect::<Vec<_>>(), |case| if_room(arguments.outcome(case)))?;
        for (buffer, outcomes) in BUFFERS.into_iter().zip(outcomes.chunks(POLICIES.len())) {
            let mut line = vec![format!("{workload}, {buffer} segments")];
            let known = |outcome: &Option<SimulationOutcome>| outcome.as_ref().map(ours);
            line.extend(outcomes.iter().map(|outcome| known(outcome).unwrap_or("no room".into())));
            let papers = [lfs, sfs, sfs].into_iter().zip(outcomes);
            line.extend(papers.map(|(paper, outcome)| match outcome {
                Some(outcome) => format!("{:.2}", outcome.write_cost / paper),
                None => String::new(),
            }));
            rows.push(line);
        }
    }
    rows.iter_mut().for_each(|row| row.resize(heading.len(), String::new()));
    Ok(format!("{}\n", table(&heading.map(str::to_owned), &rows)))
}

/// Returns `None` for a buffer that holds more than the clean segments take: at 5% these are 45.
fn if_room(outcome: Result<SimulationOutcome>) -> Result<Option<SimulationOutcome>> {
    match outcome {
        Err(error) if error.is::<NoRoom>() => Ok(None),
        other => other.map(Some),
    }
}
