//! Figure 9 of the FAST 2009 paper: the distribution of response times, in classes.

use sfs_lab::report::{Series, table};

/// Limits of the classes in microseconds, each above the one before. The paper's end at 1 and 2 ms; ours are finer up to
/// 10 ms, where the writes of SFS's whole chunks are.
const LIMITS_US: [u64; 11] =
    [250, 500, 750, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000, 100_000];

/// The paper's statement in the text about figure 9(b): class and percentage of the writes under Greedy-Space.
const PAPER: (&str, usize, f64) = ("paper, greedy-space", 2, 60.0);

/// Shares of requests by class of response time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ResponseClasses([f64; LIMITS_US.len() + 1]);

impl ResponseClasses {
    /// Returns the shares of `responses`, in microseconds.
    pub(super) fn of(responses: &[u64]) -> Self {
        let mut shares = [0.0; LIMITS_US.len() + 1];
        for us in responses {
            shares[LIMITS_US.partition_point(|limit| limit < us)] += 1.0 / responses.len() as f64;
        }
        Self(shares)
    }

    /// Returns the percentage of each class.
    fn percentages(self) -> impl Iterator<Item = f64> {
        self.0.into_iter().map(|share| share * 100.0)
    }
}

/// A filesystem with the classes of its writes, and the mean response of its reads in microseconds.
pub(super) type ResponseRow = (String, ResponseClasses, f64);

/// Returns the table of figure 9 for filesystems that are `full` percent full.
pub(super) fn text(full: u8, rows: &[ResponseRow]) -> String {
    let mut heading = vec![format!("figure 9: writes by response, Mtron, {full}% full")];
    heading.extend(LIMITS_US.map(|us| format!("≤ {us} us")));
    heading.extend(["longer", "reads, mean us"].map(str::to_owned));
    let row = |(name, classes, reads_us): &ResponseRow| {
        let mut row = vec![name.clone()];
        row.extend(classes.percentages().map(|percentage| format!("{percentage:.1}%")));
        row.push(format!("{reads_us:.0}"));
        row
    };
    table(&heading, &rows.iter().map(row).collect::<Vec<_>>())
}

/// Returns the lines of figure 9: percentages by number of the class, and the paper's.
pub(super) fn series(rows: &[ResponseRow]) -> Vec<Series> {
    let line = |(name, classes, _): &ResponseRow| {
        let points = classes.percentages().enumerate();
        Series::new(name, points.map(|(no, percentage)| (no as f64, percentage)).collect())
    };
    let (name, class, percentage) = PAPER;
    let paper = Series::new(name, vec![(class as f64, percentage)]);
    rows.iter().map(line).chain([paper]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_response_is_in_one_class() {
        let ResponseClasses(shares) = ResponseClasses::of(&[1, 250, 251, 1_000_000]);
        assert_eq!(shares[..2], [0.5, 0.25]);
        assert_eq!(shares[LIMITS_US.len()], 0.25);
        assert_eq!(shares.iter().sum::<f64>(), 1.0);
    }

    #[test]
    fn the_figure_has_a_category_for_every_class() {
        let figure = sfs_lab::report::FIGURES.iter().find(|figure| figure.name == "fast09-figure9");
        let rows = [("ext2".to_owned(), ResponseClasses::of(&[1, 200_000]), 293.0)];
        let svg = figure.expect("the figure").draw(&series(&rows)).expect("a figure");
        for category in ["0.25", "0.75", "10", "100", "more"] {
            assert!(svg.contains(&format!("\n{category}\n")), "{category}:\n{svg}");
        }
    }
}
