//! Figure 3 of the SFS paper: the hotness of every segment by its rank, and the groups of the segments.

use anyhow::{Context, Result};
use sfs_lab::report::{Document, Series, table};
use sfs_lab::simulation::SegmentRank;

/// Ends of the paper's groups, as rank and hotness in its own unit, read from the plot by eye: hot, warm, cold, read-only.
const PAPER: [(&str, [(f64, f64); 2]); 4] = [
    ("hot", [(0.0, 1020.0), (210.0, 920.0)]),
    ("warm", [(210.0, 900.0), (260.0, 780.0)]),
    ("cold", [(260.0, 590.0), (315.0, 180.0)]),
    ("read-only", [(315.0, 100.0), (900.0, 0.0)]),
];

/// Returns the table of the segments of each group, and writes its figure.
pub(super) fn text(ranks: &[SegmentRank], document: Option<&Document>) -> Result<String> {
    let hottest = ranks.first().context("no segment has data")?.hotness;
    let groups = groups(ranks);
    let mut rows = Vec::new();
    for ((name, [(first, high), (last, low)]), group) in PAPER.iter().zip(&groups) {
        let share = |hotness: f64| format!("{:.3}", hotness / hottest);
        let paper = |hotness: f64| format!("{:.3}", hotness / PAPER[0].1[0].1);
        let mut line = vec![(*name).to_owned()];
        line.extend([format!("{}", last - first), paper(*high), paper(*low)]);
        let ends = group.first().zip(group.last());
        line.extend(ends.map_or(Default::default(), |(high, low)| {
            [group.len().to_string(), share(high.1), share(low.1)]
        }));
        rows.push(line);
    }
    if let Some(document) = document {
        let ours = (0..).zip(ranks).map(|(no, rank)| (f64::from(no), rank.hotness / hottest));
        // The last of the paper's ends is at zero, which a logarithmic axis does not have.
        let all = PAPER.iter().flat_map(|(_, ends)| ends).filter(|(_, hotness)| *hotness > 0.0);
        let paper = all.map(|(rank, hotness)| (*rank, hotness / PAPER[0].1[0].1)).collect();
        let series = [Series::new("ours", ours.collect()), Series::new("paper, by eye", paper)];
        document.figure("hotness-tpcc", &series)?;
    }
    let heading = [
        "hotness over the hottest segment's, TPC-C, 70% full",
        "paper: segments",
        "first",
        "last",
        "ours: segments",
        "first",
        "last",
    ];
    Ok(format!("\n{}", table(&heading.map(str::to_owned), &rows)))
}

/// Returns rank and hotness of the segments of each group, the hottest group first.
fn groups(ranks: &[SegmentRank]) -> Vec<Vec<(f64, f64)>> {
    let mut groups = vec![Vec::new(); PAPER.len()];
    for (no, rank) in ranks.iter().enumerate() {
        // A segment keeps the group that it was written for.
        groups[usize::from(rank.group).min(PAPER.len() - 1)].push((no as f64, rank.hotness));
    }
    groups.sort_by(|a: &Vec<(f64, f64)>, b| mean(b).total_cmp(&mean(a)));
    groups
}

fn mean(group: &[(f64, f64)]) -> f64 {
    group.iter().map(|point| point.1).sum::<f64>() / group.len().max(1) as f64
}
