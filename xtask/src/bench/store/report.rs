//! The tables, and the bounds that they are compared with.

use std::fmt::Write as _;

use anyhow::Error;

use super::{
    contender::Contender,
    target::StoreName,
    work::{Row, Sample, Scale, Step},
};
use crate::{bench::spread::Spread, machine};

/// Results of all rounds.
pub(super) struct Report {
    rounds: u32,
    scale: Scale,
    samples: Vec<(StoreName, Row, Contender, Sample)>,
    failed: Vec<(StoreName, Contender, Step)>,
    notes: Vec<String>,
}

/// A bound: the contender must not take more than this part of the time of another one.
struct Bound {
    row: Row,
    against: Contender,
    /// Least ratio of the other's time to ours; `None` for no worse than the spread.
    ratio: Option<f64>,
}

fn bounds(store: StoreName) -> Vec<Bound> {
    let of_plain = if store == StoreName::Simulated { 0.95 } else { 0.5 };
    let plain = [Row::Write, Row::Read].map(|row| (row, Contender::Plain, Some(of_plain)));
    let names = [Row::Create, Row::List, Row::Rename, Row::Unlink, Row::Mkdir];
    let local = names.map(|row| (row, Contender::Local, Some(0.8)));
    let others = Row::ALL
        .into_iter()
        .flat_map(|row| [Contender::Rclone, Contender::S3fs].map(|against| (row, against, None)));
    let all = plain.into_iter().chain(local).chain(others);
    all.map(|(row, against, ratio)| Bound { row, against, ratio }).collect()
}

impl Report {
    pub(super) fn new(rounds: u32, scale: Scale) -> Self {
        Self { rounds, scale, samples: Vec::new(), failed: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn add(&mut self, store: StoreName, of: Contender, samples: &[(Row, Sample)]) {
        self.samples.extend(samples.iter().map(|(row, sample)| (store, *row, of, *sample)));
        for (row, sample) in samples {
            println!("  {}: {:.3} s, {sample:?}", row.name(), sample.seconds);
        }
    }

    pub(super) fn skip(&mut self, note: String) {
        println!("{note}");
        self.notes.push(note);
    }

    pub(super) fn fail(&mut self, store: StoreName, of: Contender, step: Step, error: &Error) {
        self.failed.push((store, of, step));
        let reason = format!("{error:#}").replace('\n', " ");
        self.notes.push(format!("{} fails with {}: {reason}", of.title(), store.title()));
    }

    pub(super) fn has_failed(&self, store: StoreName, of: Contender, step: Step) -> bool {
        self.failed.contains(&(store, of, step))
    }

    fn of(&self, store: StoreName, row: Row, contender: Contender) -> Vec<Sample> {
        let is = |of: &&(StoreName, Row, Contender, Sample)| {
            (of.0, of.1, of.2) == (store, row, contender)
        };
        self.samples.iter().filter(is).map(|(.., sample)| *sample).collect()
    }

    /// Returns the seconds, or the microseconds of a call.
    fn times(&self, store: StoreName, row: Row, contender: Contender) -> Option<Spread> {
        let time = |sample: &Sample| match row.is_per_call() {
            true => sample.seconds * 1e6 / sample.calls as f64,
            false => sample.seconds,
        };
        Spread::of(self.of(store, row, contender).iter().map(time))
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = format!(
            "{}. Median of {} rounds, with the range; the contenders take turns in each. The large file has {} MiB; the last column \
             has the ratio of the time of plain transfers to this one, and for calls that of the local image.\n",
            machine::description(),
            self.rounds,
            self.scale.mib
        );
        for store in [StoreName::Simulated, StoreName::Versitygw] {
            if self.samples.iter().any(|(of, ..)| *of == store) {
                self.add_table(&mut text, store);
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}.");
        }
        text
    }

    fn add_table(&self, text: &mut String, store: StoreName) {
        let _ = writeln!(
            text,
            "\n| {} | | time | CPU ms/MiB, server's | requests, MB | ratio |\n|---|---|---:|---:|---:|---:|",
            store.title()
        );
        for row in Row::ALL {
            for contender in Contender::ALL {
                let samples = self.of(store, row, contender);
                let Some(times) = self.times(store, row, contender) else { continue };
                let time = match row.is_per_call() {
                    true => format!("{times:.0} us a call"),
                    false => format!("{times:.2} s"),
                };
                let reference = if row.is_large() { Contender::Plain } else { Contender::Local };
                let reference = self.times(store, row, reference);
                let ratio = reference.map(|of| format!("{:.2}", of.median / times.median));
                let _ = writeln!(
                    text,
                    "| {} | {} | {time} | {} | {} | {} |",
                    row.title(),
                    contender.title(),
                    self.processor(row, &samples),
                    passed(&samples),
                    ratio.unwrap_or_default()
                );
            }
        }
        let _ = writeln!(text);
        for bound in bounds(store) {
            if let Some(line) = self.judged(store, &bound) {
                let _ = writeln!(text, "* {line}");
            }
        }
    }

    fn processor(&self, row: Row, samples: &[Sample]) -> String {
        if !row.is_large() {
            return String::new();
        }
        let of = |at: usize| {
            let times = samples.iter().filter_map(|sample| sample.processor);
            let per_mib = times.map(|times| times[at] * 1e3 / self.scale.mib as f64);
            Spread::of(per_mib).map(|spread| format!("{:.1}", spread.median)).unwrap_or_default()
        };
        format!("{}, {}", of(0), of(1))
    }

    /// Says whether SFS keeps to a bound.
    fn judged(&self, store: StoreName, bound: &Bound) -> Option<String> {
        let ours = self.times(store, bound.row, Contender::Sfs)?;
        let theirs = self.times(store, bound.row, bound.against)?;
        let ratio = theirs.median / ours.median;
        let (row, against) = (bound.row.title(), bound.against.title());
        match bound.ratio {
            Some(least) => {
                let kept = if ratio >= least { "kept" } else { "MISSED" };
                Some(format!("{row}: {ratio:.2} of {against}, bound {least}: {kept}"))
            }
            None if ratio < 1.0 && ours.excludes(&theirs) => {
                Some(format!("{row}: {ratio:.2} of {against}, more than the spread: MISSED"))
            }
            None => None,
        }
    }
}

fn passed(samples: &[Sample]) -> String {
    let traffic = || samples.iter().filter_map(|sample| sample.traffic);
    let requests = Spread::of(traffic().map(|of| of.requests as f64));
    let bytes = Spread::of(traffic().map(|of| (of.received + of.sent) as f64 / 1e6));
    match requests.zip(bytes) {
        Some((requests, bytes)) => format!("{:.0}, {:.1}", requests.median, bytes.median),
        None => String::new(),
    }
}
