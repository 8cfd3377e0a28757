//! The table as Markdown, its summary, and all figures as CSV.

use sfs_lab::report::table;

use super::cell::{Cell, POLICIES};
use super::figure::Figure;

/// A cell and its figures in the order of [`POLICIES`].
pub(super) struct Row<'a> {
    pub(super) cell: Cell<'a>,
    pub(super) figures: Vec<Figure>,
}

/// Indexes in [`POLICIES`] of the policies to which the default is compared.
const NONE: [usize; 2] = [1, 2];
const RIVALS: [usize; 5] = [3, 4, 5, 6, 7];

/// Share by which the default may be above another policy.
const LOSS_MAX: f64 = 0.02;

impl Row<'_> {
    fn default_figure(&self) -> &Figure {
        &self.figures[0]
    }

    /// Returns the policy with the least mean among those of `indexes`, and that mean.
    fn best(&self, indexes: impl IntoIterator<Item = usize>) -> (usize, f64) {
        let means = indexes.into_iter().map(|index| (index, self.figures[index].mean));
        means.min_by(|a, b| a.1.total_cmp(&b.1)).expect("policies to compare with")
    }

    /// Returns the mean of the default over the least mean of the policies of `indexes`.
    fn ratio(&self, indexes: impl IntoIterator<Item = usize>) -> f64 {
        self.default_figure().mean / self.best(indexes).1
    }

    fn utilization(&self) -> String {
        format!("{:.0}%", self.cell.utilization * 100.0)
    }

    fn sync(&self) -> String {
        self.cell.sync.map_or("never".to_owned(), |writes| writes.to_string())
    }

    fn name(&self) -> String {
        format!("{}, {}, {}", self.cell.workload.0, self.utilization(), self.sync())
    }

    fn cells(&self) -> Vec<String> {
        let figure = self.default_figure();
        let (best, _) = self.best(1..POLICIES.len());
        let (bound, distance) = match figure.bound {
            Some(bound) => (format!("{bound:.2}"), format!("{:.3}", figure.mean / bound)),
            None => (String::new(), String::new()),
        };
        vec![
            self.cell.workload.0.clone(),
            self.utilization(),
            self.sync(),
            format!("{:.2}", figure.mean),
            format!("{:.2}..{:.2}", figure.least, figure.most),
            format!("{:.3}", self.ratio(NONE)),
            format!("{:.3}", self.ratio(1..POLICIES.len())),
            policy(best),
            bound,
            distance,
        ]
    }
}

fn policy(index: usize) -> String {
    let (grouping, victims) = POLICIES[index];
    format!("{grouping} {victims}")
}

/// Returns the table with a line for each cell, and its summary.
pub(super) fn text(rows: &[Row<'_>]) -> String {
    let heading = [
        "workload",
        "full",
        "sync every",
        "sfs",
        "seeds",
        "over none",
        "over best other",
        "best other",
        "bound",
        "over bound",
    ];
    let lines: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
    format!("{}\n{}", table(&heading.map(str::to_owned), &lines), summary(rows))
}

/// Returns the cells in which the default loses, the mean ratios, and the distance to the bound.
fn summary(rows: &[Row<'_>]) -> String {
    let all = 1..POLICIES.len();
    let bounds: Vec<f64> = rows
        .iter()
        .filter_map(|row| Some(row.default_figure().mean / row.default_figure().bound?))
        .collect();
    let within = bounds.iter().filter(|ratio| **ratio <= 1.08).count();
    format!(
        "{}{}{}\nOver the bound: geometric mean {:.3}, within 8% in {within} of {} cells.\n",
        losses(rows, "no grouping, the better of both victim policies", &NONE),
        losses(rows, "the best of DAC, SepGC and SepBIT", &RIVALS),
        losses(rows, "the best of all others", &all.collect::<Vec<_>>()),
        geometric_mean(bounds.iter().copied()),
        bounds.len(),
    )
}

fn losses(rows: &[Row<'_>], against: &str, indexes: &[usize]) -> String {
    let ratio = |row: &Row<'_>| row.ratio(indexes.iter().copied());
    let lost = rows.iter().filter(|row| ratio(row) > 1.0 + LOSS_MAX);
    let lost: Vec<String> = lost
        .map(|row| {
            let (best, mean) = row.best(indexes.iter().copied());
            let ours = row.default_figure().mean;
            let loss = (ratio(row) - 1.0) * 100.0;
            format!("{} ({ours:.2}, {} {mean:.2}: {loss:.1}%)", row.name(), policy(best))
        })
        .collect();
    let lost = if lost.is_empty() { "none".to_owned() } else { lost.join("; ") };
    format!(
        "Over {against}: geometric mean {:.3}, cells above by more than 2%: {lost}.\n\n",
        geometric_mean(rows.iter().map(ratio))
    )
}

fn geometric_mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    (values.clone().map(f64::ln).sum::<f64>() / values.count().max(1) as f64).exp()
}

/// Returns a line of CSV for each policy in each cell, under a heading.
pub(super) fn csv(rows: &[Row<'_>]) -> String {
    let mut text =
        "workload,utilization,sync_interval,grouping_policy,victim_policy,seeds,mean,least,\
                    most,bound,withheld,coalesced\n"
            .to_owned();
    for row in rows {
        for (figure, (grouping, victims)) in row.figures.iter().zip(POLICIES) {
            let bound = figure.bound.map_or(String::new(), |bound| format!("{bound:.4}"));
            text += &format!(
                "{},{},{},{grouping},{victims},{},{:.4},{:.4},{:.4},{bound},{:.4},{:.4}\n",
                row.cell.workload.0,
                row.cell.utilization,
                row.sync(),
                figure.seeds,
                figure.mean,
                figure.least,
                figure.most,
                figure.withheld,
                figure.coalesced,
            );
        }
    }
    text
}
