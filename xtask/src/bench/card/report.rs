//! The samples of all runs, and their tables.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};

use super::{
    super::spread::Spread,
    figures::{CARD_BYTES, CYCLES, Latency, UnitWear, units},
    load::Program,
    state::State,
    volume::Outcome,
};
use crate::cleanup;

/// One run of a program on a filesystem.
pub(super) struct Sample {
    pub(super) medium: String,
    pub(super) state: State,
    pub(super) program: Program,
    pub(super) filesystem: String,
    /// Place of the filesystem in the tables.
    pub(super) place: usize,
    pub(super) run: u32,
    pub(super) outcome: Outcome,
}

/// A figure of a sample; `None` if the sample does not have it.
type Figure = fn(&Row<'_>) -> Option<f64>;

/// A program of a sample: the program itself, or one of those that ran together.
struct Row<'a> {
    sample: &'a Sample,
    /// Index of the program among those that ran together.
    part: Option<usize>,
}

/// Columns of times, which virtual time does not have.
const TIMES: [(&str, Figure); 4] = [
    ("units a second", |row| Some(row.units() / row.sample.outcome.secs)),
    ("p50, ms", |row| Some(row.latency()?.p50)),
    ("p99, ms", |row| Some(row.latency()?.p99)),
    ("longest, ms", |row| Some(row.latency()?.longest)),
];

const WEAR: [(&str, Figure); 4] = [
    ("flash pages a unit", |row| row.wear()?.pages),
    ("erases of 1,000 units", |row| Some(row.wear()?.erases? * 1_000.0)),
    ("KiB to the device a unit", |row| Some(row.wear()?.device_bytes / 1_024.0)),
    ("years", |row| row.wear()?.years),
];

impl Row<'_> {
    fn units(&self) -> f64 {
        let works = &self.sample.outcome.works;
        match self.part {
            Some(part) => works[part].1.unit_ns.len() as f64,
            None => units(self.sample.program, works),
        }
    }

    /// Returns no latency for all programs together, whose units differ.
    fn latency(&self) -> Option<Latency> {
        let works = &self.sample.outcome.works;
        match (self.part, self.sample.program) {
            (None, Program::Together) => None,
            (part, _) => Latency::of(&works.get(part.unwrap_or(0))?.1),
        }
    }

    /// Returns no wear for one of the programs that ran together.
    fn wear(&self) -> Option<UnitWear> {
        match self.part {
            Some(_) => None,
            None => UnitWear::of(self.sample.program, self.sample.outcome.wear, self.units()),
        }
    }
}

impl Sample {
    /// Describes the run in a line.
    pub(super) fn line(&self, has_times: bool) -> String {
        let Self { medium, state, program, filesystem, run, outcome, .. } = self;
        let row = Row { sample: self, part: None };
        let mut text =
            format!("{medium}, {state}, {}, {filesystem}, run {}: ", program.name(), run + 1);
        let _ = write!(text, "{:.1} units in {:.1} s", row.units(), outcome.secs);
        let times = if has_times { &TIMES[..] } else { &[] };
        for (title, figure) in times.iter().chain(&WEAR) {
            if let Some(value) = figure(&row) {
                let _ = write!(text, "; {title} {}", show(Some(Spread::one(value))));
            }
        }
        text
    }

    fn is_of(&self, cell: &Sample) -> bool {
        let program = (&self.medium, self.state, self.program, &self.filesystem);
        program == (&cell.medium, cell.state, cell.program, &cell.filesystem)
    }
}

/// All samples and failures.
#[derive(Default)]
pub(super) struct Report {
    samples: Vec<Sample>,
    failures: Vec<String>,
}

impl Report {
    pub(super) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Prints and records a failure, because of which samples are missing.
    pub(super) fn add_failure(&mut self, place: &str, error: &anyhow::Error) {
        // After a signal everything fails.
        if cleanup::is_stopping() {
            return;
        }
        let failure = format!("{place}: {}", format!("{error:#}").replace('\n', " "));
        eprintln!("failed: {failure}");
        if !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
    }

    pub(super) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(super) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Returns the median of the flash pages a unit of a program on a filesystem.
    pub(super) fn pages(&self, program: Program, filesystem: &str) -> Option<f64> {
        let samples = self.samples.iter();
        let of = samples.filter(|s| s.program == program && s.filesystem == filesystem);
        let pages = of.filter_map(|sample| Row { sample, part: None }.wear()?.pages);
        Some(Spread::of(pages)?.median)
    }

    /// Formats a table for each device and state.
    pub(super) fn markdown(&self, has_times: bool) -> String {
        let columns: Vec<(&str, Figure)> =
            if has_times { [TIMES, WEAR].concat() } else { WEAR.to_vec() };
        let mut text = String::new();
        for (medium, state) in distinct(self.samples.iter().map(|s| (&s.medium, s.state))) {
            let _ =
                write!(text, "**{medium}, {}**\n\n| program, unit | filesystem |", state.title());
            columns.iter().for_each(|(title, _)| text += &format!(" {title} |"));
            text += "\n|---|---|";
            columns.iter().for_each(|_| text += "---:|");
            text += "\n";
            let samples = self.samples.iter();
            let of = samples.filter(|s| (&s.medium, s.state) == (medium, state));
            let mut cells: Vec<&Sample> = of.filter(|sample| self.is_first(sample)).collect();
            cells.sort_by_key(|sample| (sample.program, sample.place));
            cells.iter().for_each(|cell| text += &self.rows(cell, &columns));
            text += "\n";
        }
        for failure in &self.failures {
            let _ = writeln!(text, "Failed: {failure}.\n");
        }
        text.trim_end().to_owned() + "\n"
    }

    /// Returns whether a sample is the first of its cell.
    fn is_first(&self, sample: &Sample) -> bool {
        let first = self.samples.iter().find(|other| other.is_of(sample));
        first.is_some_and(|first| std::ptr::eq(first, sample))
    }

    /// Formats the row of a cell, and those of programs that ran together.
    fn rows(&self, cell: &Sample, columns: &[(&str, Figure)]) -> String {
        let name = cell.program.name();
        let mut parts = vec![(None, format!("{name}, {}", cell.program.unit()))];
        if cell.program == Program::Together {
            let works = cell.outcome.works.iter().enumerate();
            parts.extend(works.map(|(no, (part, _))| {
                (Some(no), format!("{name}: {}, {}", part.name(), part.unit()))
            }));
        }
        let mut text = String::new();
        for (part, title) in parts {
            let _ = write!(text, "| {title} | {} |", cell.filesystem);
            for (_, figure) in columns {
                let samples = self.samples.iter().filter(|sample| sample.is_of(cell));
                let rows = samples.map(|sample| Row { sample, part });
                let spread = Spread::of(rows.filter_map(|row| figure(&row)));
                let _ = write!(text, " {} |", show(spread));
            }
            text += "\n";
        }
        text
    }

    /// Returns every figure of every run as lines of text.
    pub(super) fn csv(&self) -> String {
        let mut text = "device,state,program,part,filesystem,run,figure,value\n".to_owned();
        for sample in &self.samples {
            let Sample { medium, state, program, filesystem, run, outcome, .. } = sample;
            let filesystem = filesystem.replace(", ", " ").replace(',', "+").replace('`', "");
            let parts = (0..outcome.works.len()).map(Some);
            let parts = parts.filter(|_| *program == Program::Together);
            for part in [None].into_iter().chain(parts) {
                let row = Row { sample, part };
                let name = part.map_or("", |part| outcome.works[part].0.name());
                let mut add = |figure: &str, value: f64| {
                    let program = program.name();
                    let figure = figure.replace(", ", " ").replace(',', "");
                    let _ = writeln!(
                        text,
                        "{medium},{state},{program},{name},{filesystem},{run},{figure},{value}"
                    );
                };
                add("units", row.units());
                add("seconds", outcome.secs);
                for (title, figure) in TIMES.iter().chain(&WEAR) {
                    if let Some(value) = figure(&row) {
                        add(title, value);
                    }
                }
            }
        }
        text
    }

    pub(super) fn write_csv(&self, path: &Path) -> Result<()> {
        fs::write(path, self.csv()).with_context(|| format!("{}", path.display()))
    }
}

/// Formats a spread with about three digits.
fn show(spread: Option<Spread>) -> String {
    let Some(spread) = spread else { return String::new() };
    let decimals = match spread.median {
        ..0.1 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{spread:.decimals$}")
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

/// Explains the columns of all tables.
pub(super) fn explanation() -> String {
    let gb = CARD_BYTES / 1e9;
    let mut text = format!(
        "The last column is the number of years until a card of {gb:.0} GB has been programmed {CYCLES:.0} times, if \
         wear is even and each day has:"
    );
    for program in Program::SINGLE {
        let day = program.units_a_day();
        let _ = write!(text, " {day:.0} times {} ({}),", program.unit(), program.name());
    }
    text += " or all of it (together). An erased block counts as a full one.";
    text
}
