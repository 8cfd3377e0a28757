//! The segments by utilization on a volume that is 70% full, with the paper's shares that can be read from its plots.

use anyhow::Result;
use sfs_lab::report::{Document, Series, table};
use sfs_lab::simulation::{HISTOGRAM_BINS, share};

use super::setting::{Arguments, SimulationCase, row};

/// Workloads, and policies of which the first is LFS.
const WORKLOADS: [&str; 3] = ["zipf:0.99", "tpcc", "uniform"];
const POLICIES: [(&str, &str); 3] =
    [("none", "cost-benefit"), ("sfs-fast12", "cost-hotness"), ("sfs", "index")];

/// A workload, and the ends of classes with the shares that the paper's plot has there, by eye, of LFS and of SFS.
type Published = (&'static str, [(&'static str, &'static [(usize, f64)]); 2]);

const PAPER: [Published; 4] = [
    (
        "zipf:0.99",
        [
            ("LFS-CB, paper", &[(1, 0.0), (2, 0.0), (3, 0.17), (9, 0.215), (10, 0.165)]),
            ("SFS, paper", &[(1, 0.21), (2, 0.15), (9, 0.18), (10, 0.065)]),
        ],
    ),
    (
        "tpcc",
        [
            ("LFS-CB, paper", &[(9, 0.23), (10, 0.205)]),
            ("SFS, paper", &[(1, 0.28), (2, 0.175), (9, 0.125), (10, 0.17)]),
        ],
    ),
    ("uniform", [("LFS-CB, paper", &[(9, 0.245)]), ("SFS, paper", &[(4, 0.155), (9, 0.145)])]),
    ("RES-stand-in", [("LFS-CB, paper", &[]), ("SFS, paper", &[(1, 0.32), (9, 0.20)])]),
];

/// Returns the table of segments by utilization, and writes its figure.
pub(super) fn text(
    arguments: &Arguments,
    res: Option<&str>,
    document: Option<&Document>,
) -> Result<String> {
    let named = WORKLOADS.map(|workload| (workload, workload));
    let workloads: Vec<(&str, &str)> =
        named.into_iter().chain(res.map(|trace| ("RES-stand-in", trace))).collect();
    let cases = workloads.iter().flat_map(|(_, workload)| {
        POLICIES.map(|policies| SimulationCase::new(workload, policies).at(0.7))
    });
    let outcomes = arguments.outcomes(&cases.collect::<Vec<_>>())?;
    let (mut rows, mut series) = (Vec::new(), Vec::new());
    for ((name, _), outcomes) in workloads.iter().zip(outcomes.chunks(POLICIES.len())) {
        let is_drawn = *name == WORKLOADS[0];
        for ((grouping, _), outcome) in POLICIES.into_iter().zip(outcomes) {
            let shares = (0..HISTOGRAM_BINS)
                .map(|bin| share(&outcome.counters.histogram_volume, bin))
                .collect::<Vec<f64>>();
            let mut line = vec![format!("{name} {grouping}")];
            line.extend(shares.iter().map(|share| format!("{share:.3}")));
            line.push(format!("{:.2}", outcome.victim_utilization));
            rows.push(line);
            if is_drawn {
                let points = shares.iter().enumerate().map(|(bin, share)| (middle(bin), *share));
                series.push(Series::new(grouping, points.collect()));
            }
        }
        let published = PAPER.iter().find(|(workload, _)| workload == name);
        for (paper, shares) in published.map_or(&[][..], |(_, papers)| papers) {
            if shares.is_empty() {
                continue;
            }
            let mut line = vec![format!("{name} {paper}")];
            line.extend((1..=HISTOGRAM_BINS).map(|class| {
                let known = shares.iter().find(|(end, _)| *end == class);
                known.map_or(String::new(), |(_, share)| format!("{share:.3}"))
            }));
            line.push(String::new());
            rows.push(line);
            if is_drawn {
                let points = shares.iter().map(|(end, share)| (middle(end - 1), *share));
                series.push(Series::new(*paper, points.collect()));
            }
        }
    }
    if let Some(document) = document {
        document.figure("histogram-zipf", &series)?;
    }
    let bins = (1..=HISTOGRAM_BINS).map(|bin| format!("to .{bin}").replace(".10", "1"));
    let mut heading = row(&["segments by utilization, volume 70% full"]);
    heading.extend(bins);
    heading.push("victims' mean".to_owned());
    Ok(table(&heading, &rows))
}

/// Returns the utilization in the middle of a class.
fn middle(bin: usize) -> f64 {
    (bin as f64 + 0.5) / HISTOGRAM_BINS as f64
}
