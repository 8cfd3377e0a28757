//! `cargo xtask crash`: explores crash states, or replays one.
//!
//! Owns: arguments, the progress bar and what is printed.
//! Promises: exit code 0 if nothing was violated, 1 if something was; then the command is printed
//! that replays it.
//! Never: decides what is right.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use sfs_core::format::DataLayout;
use sfs_sim::case::Case;
use sfs_sim::explore::{Counts, Failure, Mode, Plan, Tally, explore, run};
use sfs_sim::shrink::shrink;

/// Crash states of SFS, each mounted, checked, compared, written to, and crashed again.
#[derive(Parser)]
#[command(name = "cargo xtask crash")]
struct Arguments {
    /// Crash states after which it is enough.
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// What everything is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Worker threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Which cases.
    #[arg(long, value_enum, default_value_t = Cases::All)]
    cases: Cases,
    /// Where data goes: log, greedy-space, clock-space, clock-space-exact or block-group.
    #[arg(long = "layout", alias = "placement", default_value = "log", value_parser = parse_data_layout)]
    data_layout: DataLayout,
    /// Replays a case instead: `sequence:SEED:INDEX` or `world:SEED:STEPS`, after `LAYOUT:` unless it is
    /// the log.
    #[arg(long)]
    replay: Option<Case>,
    /// Of the replayed case only this crash state.
    #[arg(long, requires = "replay")]
    state: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cases {
    /// Sequences of one operation, then sequences of two and random worlds by turns.
    All,
    /// Sequences of one and two operations.
    Sequences,
    /// Random worlds.
    Worlds,
}

fn parse_data_layout(name: &str) -> Result<DataLayout, String> {
    DataLayout::by_name(name).ok_or_else(|| "there is no such data layout".to_owned())
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
    match run(case, state, |_| true) {
        Ok(Counts { states, epochs, .. }) => {
            println!("{states} states in {epochs} epochs: nothing is wrong");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            print_failure(&failure);
            ExitCode::FAILURE
        }
    }
}

fn explore_all(arguments: &Arguments) -> ExitCode {
    let mode = match arguments.cases {
        Cases::All => Mode::All,
        Cases::Sequences => Mode::Sequences,
        Cases::Worlds => Mode::Worlds,
    };
    let Arguments { data_layout, seed, states, jobs, .. } = *arguments;
    let since = Instant::now();
    let bar = bar(states);
    let outcome =
        explore(&Plan { data_layout, seed, states, mode, jobs }, &|looked| bar.inc(looked));
    bar.finish_and_clear();
    match outcome {
        Ok(tally) => {
            print_tally(&tally, seed, since.elapsed());
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

fn print_tally(tally: &Tally, seed: u64, took: Duration) {
    println!("{:<14} {:>9} {:>9} {:>11}", "", "cases", "epochs", "states");
    let rows = [
        ("sequences of 1", &tally.singles),
        ("sequences of 2", &tally.pairs),
        ("random worlds", &tally.worlds),
    ];
    for (name, counts) in rows {
        println!("{name:<14} {:>9} {:>9} {:>11}", counts.cases, counts.epochs, counts.states);
    }
    let secs = took.as_secs_f64();
    let states = tally.states();
    println!(
        "seed {seed}: {states} states in {secs:.0} s, {:.0} a second; no violation",
        states as f64 / secs
    );
}

fn print_failure(failure: &Failure) {
    println!("violated: {}", failure.violation);
    let state = failure.state.map(|state| format!(" --state {state}")).unwrap_or_default();
    println!("replay: cargo xtask crash --replay {}{state}", failure.case);
}
