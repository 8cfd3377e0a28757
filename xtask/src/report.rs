//! Results of the steps: passed, failed and skipped.
//!
//! [`Tally`] prints the table at the end and the closing line that CI reads. Every skipped step has
//! a name and a reason.

use std::time::{Duration, Instant};

use anyhow::Result;

/// Result of one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepOutcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Reasons of failures and skips, one line each in the table.
    pub(crate) notes: Vec<String>,
}

impl StepOutcome {
    pub(crate) fn passed() -> Self {
        Self { passed: 1, ..Self::default() }
    }

    pub(crate) fn failed(note: impl Into<String>) -> Self {
        Self { failed: 1, notes: vec![note.into()], ..Self::default() }
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: 1, notes: vec![reason.into()], ..Self::default() }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

struct FinishedStep {
    name: String,
    outcome: StepOutcome,
    took: Duration,
}

/// Results of all steps so far.
#[derive(Default)]
pub(crate) struct Tally {
    steps: Vec<FinishedStep>,
}

impl Tally {
    /// Runs a step; an error counts as a failure of the step.
    pub(crate) fn step(&mut self, name: &str, step: impl FnOnce() -> Result<StepOutcome>) {
        println!("\n== {name}");
        let start = Instant::now();
        let outcome = step().unwrap_or_else(|error| {
            println!("{error:#}");
            StepOutcome::failed(first_line(&format!("{error:#}")))
        });
        self.steps.push(FinishedStep { name: name.to_owned(), outcome, took: start.elapsed() });
    }

    /// Records a step that was not run.
    pub(crate) fn skip(&mut self, name: &str, reason: &anyhow::Error) {
        self.step(name, || Ok(StepOutcome::skipped(format!("{reason:#}"))));
    }

    /// Prints the table and the closing line; returns `true` if no step failed.
    pub(crate) fn close(&self) -> bool {
        let width = self.steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
        println!(
            "\n{:width$}  {:>6} {:>6} {:>7} {:>8}",
            "", "passed", "failed", "skipped", "seconds"
        );
        let mut sum = StepOutcome::default();
        for FinishedStep { name, outcome, took } in &self.steps {
            let StepOutcome { passed, failed, skipped, notes } = outcome;
            let seconds = took.as_secs_f64();
            println!("{name:width$}  {passed:>6} {failed:>6} {skipped:>7} {seconds:>8.1}");
            notes.iter().for_each(|note| println!("{:width$}    {note}", ""));
            sum.passed += passed;
            sum.failed += failed;
            sum.skipped += skipped;
        }
        println!("\n{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
        sum.failed == 0
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
