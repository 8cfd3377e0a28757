//! The table of all cells by all policies.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};

use super::cell::{Cell, Figures};

/// Figures by cell and policy; the first policy is compared with all others.
pub(super) struct Table<'a> {
    policies: &'a [String],
    cells: &'a [&'static Cell],
    /// Figures and bound, by cell and policy.
    rows: Vec<Vec<(Figures, Option<f64>)>>,
}

impl<'a> Table<'a> {
    pub(super) fn new(policies: &'a [String], cells: &'a [&'static Cell]) -> Self {
        Self { policies, cells, rows: vec![Vec::new(); cells.len()] }
    }

    /// Adds the figures of the next policy of `cell`: the policies come in order.
    pub(super) fn add(&mut self, cell: usize, policy: usize, figures: Figures, bound: Option<f64>) {
        assert_eq!(self.rows[cell].len(), policy, "the policies come in order");
        self.rows[cell].push((figures, bound));
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = "| volume, load, part that is full, writes from sync to sync |".to_owned();
        self.policies.iter().for_each(|policy| text += &format!(" `{policy}` |"));
        let _ = writeln!(text, " over best other | bound | over bound |");
        text += &format!("|---|{}\n", "---:|".repeat(self.policies.len() + 3));
        let (mut over_best, mut over_bound) = (Vec::new(), Vec::new());
        for (cell, row) in self.cells.iter().zip(&self.rows) {
            let _ = write!(text, "| {} |", cell.name());
            row.iter().for_each(|(figures, _)| text += &format!(" {:.2} |", figures.device));
            let [(own, bound), others @ ..] = &row[..] else { continue };
            let best = others.iter().map(|(other, _)| other.device).min_by(f64::total_cmp);
            let ratio = best.map(|best| own.device / best);
            over_best.extend(ratio);
            let to_bound = bound.map(|bound| own.device / bound);
            over_bound.extend(to_bound);
            let shown = |number: Option<f64>, digits: usize| {
                number.map(|number| format!("{number:.digits$}")).unwrap_or_default()
            };
            let (ratio, bound) = (shown(ratio, 3), shown(*bound, 2));
            let _ = writeln!(text, " {ratio} | {bound} | {} |", shown(to_bound, 3));
        }
        let _ = writeln!(
            text,
            "\n`{}` over the best other policy: geometric mean {:.3}, {} of {} cells above by more \
             than 2 %. Over the bound: geometric mean {:.3}, {} of {} cells within 8 %.",
            self.policies[0],
            geometric_mean(&over_best),
            over_best.iter().filter(|ratio| **ratio > 1.02).count(),
            over_best.len(),
            geometric_mean(&over_bound),
            over_bound.iter().filter(|ratio| **ratio <= 1.08).count(),
            over_bound.len(),
        );
        text
    }

    pub(super) fn write_csv(&self, path: &Path) -> Result<()> {
        let mut text = "cell,policy,device,data,moved,withheld,bound\n".to_owned();
        for (cell, row) in self.cells.iter().zip(&self.rows) {
            for (policy, (figures, bound)) in self.policies.iter().zip(row) {
                let Figures { device, data, moved, withheld, .. } = figures;
                let bound = bound.map(|bound| format!("{bound:.4}")).unwrap_or_default();
                let _ = writeln!(
                    text,
                    "{},{policy},{device:.4},{data:.4},{moved:.4},{withheld:.4},{bound}",
                    cell.name()
                );
            }
        }
        fs::write(path, text).with_context(|| format!("{}", path.display()))
    }
}

/// Returns the geometric mean of `ratios`; 1 of none.
fn geometric_mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len().max(1) as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_of_a_ratio_and_its_inverse_is_one() {
        assert!((geometric_mean(&[2.0, 0.5]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[]) - 1.0).abs() < 1e-12);
    }
}
