//! `sfs-lab reproduce sfs`: the experiments of the SFS paper on its SSD-M, simulated.
//!
//! The paper's values were read from its plots. Independent simulations run in parallel.

mod buffers;
mod histogram;
mod ranks;
mod setting;

use anyhow::Result;
use sfs_lab::report::{Document, Series, table};
use sfs_lab::simulation::SimulationOutcome;
use sfs_mkfs::output;

pub(crate) use setting::Arguments;
use setting::{COSTS, RES_STAND_IN, SEGMENTS, SimulationCase, UTILIZATIONS, ours, row};

/// Write cost by number of groups, 1 to 6, for Zipf and TPC-C.
const GROUPS: [[f64; 6]; 2] =
    [[6.96, 6.15, 5.29, 4.21, 3.78, 3.15], [5.98, 4.95, 3.79, 2.64, 2.66, 2.30]];

/// Write cost by partitioning. The paper's text exchanges the names of equal width and of equal
/// count (the same number of segments in every group); each value here has the name that the paper
/// means.
const PARTITIONS: [(&str, [f64; 2]); 3] = [
    ("sfs-equal-count", [6.03, 5.07]),
    ("sfs-equal-width", [4.83, 3.57]),
    ("sfs-fast12", [4.21, 2.64]),
];

/// Write cost by victim policy, with 4 groups.
const VICTIMS: [(&str, [f64; 2]); 2] =
    [("cost-benefit", [4.48, 2.81]), ("cost-hotness", [4.21, 2.64])];

/// Grouping policies and victim policies that are compared by utilization; the first is LFS.
const POLICIES: [(&str, &str); 4] = [
    ("none", "cost-benefit"),
    ("sfs-fast12", "cost-hotness"),
    ("sfs-log", "cost-benefit"),
    ("sfs", "index"),
];

/// The paper's write cost of RES by utilization, of LFS and of SFS.
const RES_COSTS: [[f64; 6]; 2] =
    [[1.00, 1.29, 1.34, 3.31, 7.70, 34.34], [1.02, 1.43, 1.30, 1.29, 3.36, 26.96]];

/// Workloads of the paper's ablations. Ours run the trace in place of RES as well.
const SKEWED: [&str; 2] = ["zipf:0.99", "tpcc"];

/// Returns the cells of the paper's write cost and of ours.
fn cost(paper: f64, outcome: &SimulationOutcome) -> [String; 2] {
    [format!("{paper:.2}"), ours(outcome)]
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut text = format!(
        "Write cost; in parentheses log write amplification. {SEGMENTS} segments of {} blocks, a \
         buffer of {} segments, 5% kept clean, 85% full unless noted otherwise, and a working set of {} \
         of all blocks: the others are written once. The trace in place of RES is {RES_STAND_IN}.\n\n",
        arguments.segment_blocks, arguments.buffer, arguments.working_set
    );
    let res = arguments.res_stand_in();
    let mut ablation = |first: &str, rows: &[Ablation<'static>]| -> Result<()> {
        text += &ablation_table(arguments, res.as_deref(), first, rows)?;
        Ok(())
    };
    let by_groups = (0..6).map(|no: usize| {
        let paper = [GROUPS[0][no], GROUPS[1][no]];
        ((no + 1).to_string(), ("sfs-fast12", "cost-hotness"), Some(no as u8 + 1), paper)
    });
    ablation("groups", &by_groups.collect::<Vec<_>>())?;
    ablation(
        "partitioning",
        &PARTITIONS.map(|(name, paper)| (name.to_owned(), (name, "cost-hotness"), None, paper)),
    )?;
    ablation(
        "victim policy",
        &VICTIMS.map(|(name, paper)| (name.to_owned(), ("sfs-fast12", name), None, paper)),
    )?;
    let document = arguments.docs.as_deref().map(Document::new);
    text += &by_utilization(arguments, res.as_deref(), document.as_ref())?;
    text += &buffers::text(arguments)?;
    text += &histogram::text(arguments, res.as_deref(), document.as_ref())?;
    let tpcc = SimulationCase::new("tpcc", ("sfs-fast12", "cost-hotness")).at(0.7);
    text += &ranks::text(&arguments.outcome(&tpcc)?.ranks, document.as_ref())?;
    output::print(&text)?;
    document.map_or(Ok(()), |document| document.section("reproduce", &text))
}

/// A row of an ablation: its name, grouping policy and victim policy, groups, and the paper's two values.
type Ablation<'a> = (String, (&'a str, &'a str), Option<u8>, [f64; 2]);

/// Returns the table of an ablation: the paper's two workloads, and the trace in place of RES.
fn ablation_table(
    arguments: &Arguments,
    res: Option<&str>,
    first: &str,
    rows: &[Ablation<'_>],
) -> Result<String> {
    let workloads: Vec<&str> = SKEWED.into_iter().chain(res).collect();
    let cases = rows.iter().flat_map(|(_, policies, groups, _)| {
        workloads.iter().map(|workload| SimulationCase {
            groups: *groups,
            ..SimulationCase::new(workload, *policies)
        })
    });
    let outcomes = arguments.outcomes(&cases.collect::<Vec<_>>())?;
    let mut heading = row(&[first, "Zipf, paper", "Zipf, ours", "TPC-C, paper", "TPC-C, ours"]);
    heading.extend(res.map(|_| "RES-stand-in".to_owned()));
    let mut lines = Vec::new();
    for ((name, .., paper), outcomes) in rows.iter().zip(outcomes.chunks(workloads.len())) {
        let mut line = vec![name.clone()];
        line.extend(paper.iter().zip(outcomes).flat_map(|(paper, found)| cost(*paper, found)));
        line.extend(outcomes.iter().skip(SKEWED.len()).map(ours));
        lines.push(line);
    }
    Ok(format!("{}\n", table(&heading, &lines)))
}

/// Returns the table of write cost by utilization, and writes its figures.
fn by_utilization(
    arguments: &Arguments,
    res: Option<&str>,
    document: Option<&Document>,
) -> Result<String> {
    let heading = row(&[
        "workload, utilization",
        "LFS-CB, paper",
        "LFS-CB, ours",
        "SFS, paper",
        "sfs-fast12, ours",
        "sfs-log cost-benefit",
        "sfs index",
    ]);
    let mut workloads = COSTS.map(|(name, costs)| (name, name.to_owned(), costs)).to_vec();
    workloads.extend(res.map(|trace| ("RES-stand-in", trace.to_owned(), RES_COSTS)));
    let mut rows = Vec::new();
    for (name, workload, [lfs, sfs]) in workloads {
        let mut series =
            ["LFS-CB", "sfs-fast12", "sfs-log", "sfs"].map(|name| Series::new(name, Vec::new()));
        let cases: Vec<SimulationCase<'_>> = UTILIZATIONS
            .into_iter()
            .flat_map(|utilization| {
                POLICIES.map(|policies| SimulationCase::new(&workload, policies).at(utilization))
            })
            .collect();
        let outcomes = arguments.outcomes(&cases)?;
        for (no, (utilization, outcomes)) in
            UTILIZATIONS.into_iter().zip(outcomes.chunks(POLICIES.len())).enumerate()
        {
            let mut line = vec![format!("{name}, {:.0}%", utilization * 100.0)];
            let papers = [Some(lfs[no]), Some(sfs[no]), None, None];
            for ((outcome, paper), series) in outcomes.iter().zip(papers).zip(&mut series) {
                series.points.push((utilization, outcome.write_cost));
                let [paper_cell, ours] = cost(paper.unwrap_or(0.0), outcome);
                line.extend(paper.map(|_| paper_cell));
                line.push(ours);
            }
            rows.push(line);
        }
        if let Some(document) = document {
            let papers = [("LFS-CB, paper", lfs), ("SFS, paper", sfs)].map(|(name, costs)| {
                Series::new(name, UTILIZATIONS.into_iter().zip(costs).collect())
            });
            let all = [&series[..], &papers].concat();
            document.figure(&format!("cost-{}", name.replace(':', "-")), &all)?;
        }
    }
    Ok(format!("{}\n", table(&heading, &rows)))
}
