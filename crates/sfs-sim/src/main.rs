//! The program that `cargo xtask crash` runs: explores crash states, or replays a case.
//!
//! The exit code is 0 if no state violates the contract. Otherwise it is 1, and the program prints the
//! violation and the command that replays it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use sfs_core::format::DataLayout;
use sfs_sim::case::Case;
use sfs_sim::explore::{
    CaseCounts, CaseFailure, CaseKinds, ExplorationPlan, ExplorationTotals, explore, explore_case,
};
use sfs_sim::shrink::shrink;

/// Explores crash states of SFS: each is mounted, checked, compared, written to, and crashed again.
#[derive(Parser)]
#[command(name = "cargo xtask crash")]
struct Arguments {
    /// Number of crash states to explore.
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// Seed that decides all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of worker threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Kinds of cases to explore.
    #[arg(long, value_enum, default_value_t = CaseKinds::All)]
    cases: CaseKinds,
    /// Data layout of the volumes: log, greedy-space, clock-space, clock-space-exact or block-group.
    #[arg(long = "layout", alias = "placement", default_value = "log", value_parser = parse_data_layout)]
    data_layout: DataLayout,
    /// Replays a case instead: `sequence:SEED:INDEX` or `scenario:SEED:STEPS`, with the prefix `LAYOUT:`
    /// unless the layout is the log.
    #[arg(long)]
    replay: Option<Case>,
    /// Checks only this crash state of the replayed case.
    #[arg(long, requires = "replay")]
    state: Option<usize>,
}

fn parse_data_layout(name: &str) -> Result<DataLayout, String> {
    DataLayout::by_name(name).ok_or_else(|| "no such data layout".to_owned())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.replay {
        Some(case) => replay(case, arguments.state),
        None => explore_all(&arguments),
    }
}

fn replay(case: &Case, state: Option<usize>) -> ExitCode {
    case.describe().iter().for_each(|line| println!("{line}"));
    match explore_case(case, state, |_| true) {
        Ok(CaseCounts { states, epochs, .. }) => {
            println!("{states} states in {epochs} epochs: no violation");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            print_failure(&failure);
            ExitCode::FAILURE
        }
    }
}

fn explore_all(arguments: &Arguments) -> ExitCode {
    let Arguments { data_layout, seed, states, jobs, cases, .. } = *arguments;
    let since = Instant::now();
    let bar = bar(states);
    let outcome =
        explore(&ExplorationPlan { data_layout, seed, states, cases, jobs }, &|checked| {
            bar.inc(checked)
        });
    bar.finish_and_clear();
    match outcome {
        Ok(totals) => {
            print_tally(&totals, seed, since.elapsed());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}: {}", failure.case, failure.violation);
            println!("shrinking");
            let small = shrink(failure);
            small.case.describe().iter().for_each(|line| println!("{line}"));
            print_failure(&small);
            ExitCode::FAILURE
        }
    }
}

fn bar(states: u64) -> ProgressBar {
    let template = "states {wide_bar} {human_pos} of {human_len}, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    ProgressBar::new(states).with_style(style)
}

fn print_tally(totals: &ExplorationTotals, seed: u64, took: Duration) {
    println!("{:<14} {:>9} {:>9} {:>11}", "", "cases", "epochs", "states");
    let rows = [
        ("sequences of 1", &totals.singles),
        ("sequences of 2", &totals.pairs),
        ("scenarios", &totals.scenarios),
    ];
    for (name, counts) in rows {
        println!("{name:<14} {:>9} {:>9} {:>11}", counts.cases, counts.epochs, counts.states);
    }
    let secs = took.as_secs_f64();
    let states = totals.states();
    println!(
        "seed {seed}: {states} states in {secs:.0} s, {:.0} a second; no violation",
        states as f64 / secs
    );
}

fn print_failure(failure: &CaseFailure) {
    println!("violation: {}", failure.violation);
    let state = failure.state.map(|state| format!(" --state {state}")).unwrap_or_default();
    println!("replay: cargo xtask crash --replay {}{state}", failure.case);
}
