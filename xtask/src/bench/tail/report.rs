//! The samples of all parts, and their tables.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};

use super::{
    super::medium::Medium,
    super::spread::Spread,
    entrant::{CallLatency, Outcome},
};

/// Unit of the latencies in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    Microseconds,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
        }
    }

    /// Formats a latency with about three digits.
    fn show(self, spread: Spread) -> String {
        let decimals = match spread.median {
            _ if self == Self::Microseconds => 0,
            ..0.1 => 3,
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        format!("{spread:.decimals$}")
    }

    fn of_ns(self, ns: u64) -> f64 {
        ns as f64 / if self == Self::Milliseconds { 1e6 } else { 1e3 }
    }
}

/// Heading of a column, and the figure of a latency in it.
type Column = (&'static str, fn(&CallLatency) -> u64);

const COLUMNS: [Column; 4] = [
    ("p50", |call| call.p50_ns),
    ("p99", |call| call.p99_ns),
    ("p99.9", |call| call.p999_ns),
    ("longest", |call| call.longest_ns),
];

/// Result of one load of one run.
struct Sample {
    load: String,
    filesystem: String,
    run: u32,
    outcome: Outcome,
}

/// Samples of one part of the benchmark.
struct PartReport {
    name: String,
    unit: Unit,
    caption: String,
    samples: Vec<Sample>,
}

/// Samples of all parts, and the failures.
#[derive(Default)]
pub(super) struct Report {
    parts: Vec<PartReport>,
    failures: Vec<String>,
}

impl Report {
    /// Begins a part, to which later samples belong.
    pub(super) fn begin(&mut self, name: &str, medium: Medium, unit: Unit, caption: String) {
        let name = format!("{name} on {}", medium.name());
        self.parts.push(PartReport { name, unit, caption, samples: Vec::new() });
    }

    /// Adds a sample to the last part.
    pub(super) fn add(&mut self, load: &str, filesystem: &str, run: u32, outcome: Outcome) {
        let part = self.parts.last_mut().expect("a part has begun");
        let (load, filesystem) = (load.to_owned(), filesystem.to_owned());
        part.samples.push(Sample { load, filesystem, run, outcome });
    }

    /// Prints and records a failure, because of which a filesystem lacks samples.
    pub(super) fn add_failure(&mut self, filesystem: &str, load: &str, error: &anyhow::Error) {
        let reason = format!("{error:#}").replace('\n', " ");
        let place = if load.is_empty() { String::new() } else { format!(" ({load})") };
        eprintln!("{filesystem}{place}: {reason}");
        self.failures.push(format!("{filesystem}{place} failed: {reason}"));
    }

    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }

    pub(super) fn sample_count(&self) -> usize {
        self.parts.iter().map(|part| part.samples.len()).sum()
    }

    /// Formats all tables.
    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            let _ = writeln!(text, "**{}**: {}.\n", part.name, part.caption);
            let _ = writeln!(text, "{}\n{}", part.rates(), part.latencies());
        }
        for failure in &self.failures {
            let _ = writeln!(text, "{failure}.\n");
        }
        text.trim_end().to_owned() + "\n"
    }

    /// Writes every figure of every sample to a file.
    pub(super) fn write_csv(&self, path: &Path) -> Result<()> {
        let mut text = "part,load,filesystem,run,figure,value\n".to_owned();
        for part in &self.parts {
            for Sample { load, filesystem, run, outcome } in &part.samples {
                for (figure, value) in outcome.figures() {
                    let filesystem = filesystem.replace(", ", "-");
                    let _ =
                        writeln!(text, "{},{load},{filesystem},{run},{figure},{value}", part.name);
                }
            }
        }
        fs::write(path, text).with_context(|| format!("{}", path.display()))
    }
}

impl Outcome {
    /// Returns all figures by name.
    fn figures(&self) -> Vec<(String, f64)> {
        let mut figures = vec![("rounds".to_owned(), self.rounds as f64)];
        figures.extend(self.background.clone());
        for (name, call) in &self.calls {
            figures.push((format!("{name} count"), call.count as f64));
            for (column, of) in COLUMNS {
                figures.push((format!("{name} {column} ns"), of(call) as f64));
            }
        }
        figures
    }
}

impl PartReport {
    /// Formats the table of rounds and of the background programs' rates.
    fn rates(&self) -> String {
        let names: BTreeSet<&String> =
            self.samples.iter().flat_map(|sample| sample.outcome.background.keys()).collect();
        let mut text = "| load | filesystem | rounds |".to_owned();
        names.iter().for_each(|name| text += &format!(" {} |", name.replace('_', " ")));
        text += "\n|---|---|---:|";
        names.iter().for_each(|_| text += "---:|");
        text += "\n";
        for (load, filesystem) in self.cells() {
            let rounds = self.spread(load, filesystem, |outcome| Some(outcome.rounds as f64));
            let _ = write!(text, "| {load} | {filesystem} | {} |", shown(rounds));
            for name in &names {
                let rate = self.spread(load, filesystem, |o| o.background.get(*name).copied());
                let _ = write!(text, " {} |", shown(rate));
            }
            text += "\n";
        }
        text
    }

    /// Formats the table of latencies, whose rows are loads, kinds of request and filesystems.
    fn latencies(&self) -> String {
        let unit = self.unit.name();
        let mut text = "| load | request | filesystem | requests |".to_owned();
        COLUMNS.iter().for_each(|(column, _)| text += &format!(" {column}, {unit} |"));
        text += "\n|---|---|---|---:|---:|---:|---:|---:|\n";
        let loads = distinct(self.samples.iter().map(|sample| sample.load.as_str()));
        for load in loads {
            for name in self.calls_of(load) {
                for (_, filesystem) in self.cells().filter(|(of, _)| *of == load) {
                    text += &self.latency_row(load, name, filesystem);
                }
            }
        }
        text
    }

    fn latency_row(&self, load: &str, name: &str, filesystem: &str) -> String {
        let call = |outcome: &Outcome| outcome.calls.get(name).copied();
        let count = self.spread(load, filesystem, |o| Some(call(o)?.count as f64));
        let mut text = format!("| {load} | {name} | {filesystem} | {} |", shown(count));
        for (_, of) in COLUMNS {
            let spread = self.spread(load, filesystem, |o| Some(self.unit.of_ns(of(&call(o)?))));
            let cell = spread.map_or_else(String::new, |spread| self.unit.show(spread));
            let _ = write!(text, " {cell} |");
        }
        text + "\n"
    }

    /// Returns the pairs of load and filesystem that have samples, in the order of the first run.
    fn cells(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.samples.iter().map(|s| (s.load.as_str(), s.filesystem.as_str()));
        let loads = distinct(pairs.clone().map(|(load, _)| load));
        let mut cells = distinct(pairs);
        cells.sort_by_key(|(load, _)| loads.iter().position(|known| known == load));
        cells.into_iter()
    }

    /// Returns the kinds of request of a load.
    fn calls_of(&self, load: &str) -> BTreeSet<&String> {
        let samples = self.samples.iter().filter(|sample| sample.load == load);
        samples.flat_map(|sample| sample.outcome.calls.keys()).collect()
    }

    fn spread(
        &self,
        load: &str,
        filesystem: &str,
        figure: impl Fn(&Outcome) -> Option<f64>,
    ) -> Option<Spread> {
        let of = |sample: &&Sample| sample.load == load && sample.filesystem == filesystem;
        Spread::of(self.samples.iter().filter(of).filter_map(|sample| figure(&sample.outcome)))
    }
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |spread| spread.to_string())
}

/// Returns each value once, in the order of their first occurrence.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(longest_ms: u64) -> Outcome {
        let json = format!(
            r#"{{"rounds": 7, "secs": 1.0, "background": {{"stream_mb_per_s": 900.5}}, "calls":
               {{"read": {{"count": 7, "p50_ns": 20000, "p99_ns": 30000, "p999_ns": 40000,
               "longest_ns": {longest_ms}000000}}}}}}"#
        );
        serde_json::from_str(&json).expect("the load generator's output")
    }

    fn report() -> Report {
        let mut report = Report::default();
        report.begin("stream", Medium::Ram, Unit::Milliseconds, "a caption".into());
        for (run, longest_ms) in [5, 9, 6].into_iter().enumerate() {
            report.add("a load", "SFS, dev", run as u32, outcome(longest_ms));
        }
        report.add("a load", "ext4", 0, outcome(2));
        report
    }

    #[test]
    fn each_filesystem_has_a_row_with_medians_and_ranges() {
        let text = report().markdown();
        let expected =
            "| a load | read | SFS, dev | 7 | 0.020 | 0.030 | 0.040 | 6.00 (5.00 to 9.00) |\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("| a load | ext4 | 7 | 900 |\n"), "{text}");
    }

    #[test]
    fn a_failure_is_named_below_the_tables() {
        let mut report = report();
        report.add_failure("xfs", "93% full", &anyhow::anyhow!("no space").context("fill"));
        assert!(report.markdown().ends_with("xfs (93% full) failed: fill: no space.\n"));
    }

    #[test]
    fn the_file_has_every_figure_of_every_run() {
        let dir = crate::scratch::Scratch::new().expect("a directory");
        let path = dir.dir.join("samples.csv");
        report().write_csv(&path).expect("written");
        let text = fs::read_to_string(&path).expect("the file");
        assert!(
            text.contains("\nstream on RAM,a load,SFS-dev,1,read longest ns,9000000\n"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1 + 4 * 7);
    }
}
