//! The mutation check: the exploration finds each deliberate bug of sfs-core, in its usual order of cases.
//!
//! `cargo test -p sfs-sim --features mutants --test mutants -- --nocapture` prints a table of the states and
//! the time that each bug took. The case that found a bug last is tried first: `mutant_cases.txt` has them. With `SFS_HUNT` set, as in a long
//! run, every bug is searched for from the first case on, and the file is written anew.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use sfs_core::format::DataLayout;
use sfs_core::mutant::{Mutant, release};
use sfs_sim::case::Case;
use sfs_sim::explore::{CaseFailure, CaseKinds, ExplorationPlan, explore, explore_case};
use sfs_sim::shrink::shrink;

/// Maximum number of states until a mutant is found.
const STATES_MAX: u64 = 45_000;

/// Returns the data layout of the volumes on which `mutant` has an effect.
fn data_layout_of(mutant: Option<Mutant>) -> DataLayout {
    match mutant {
        Some(Mutant::FreedReused | Mutant::PlacedUnflushed) => DataLayout::GreedySpace,
        _ => DataLayout::Log,
    }
}

/// Explores with `mutant` enabled; returns the number of states checked, and the failure.
fn hunt(mutant: Option<Mutant>, cases: CaseKinds, states: u64) -> (u64, Option<CaseFailure>) {
    let seen = AtomicU64::new(0);
    let plan =
        ExplorationPlan { data_layout: data_layout_of(mutant), seed: 1, states, cases, jobs: 1 };
    release(mutant);
    let outcome = explore(&plan, &|checked| {
        seen.fetch_add(checked, Ordering::Relaxed);
    });
    release(None);
    (seen.into_inner(), outcome.err())
}

/// Makes the initial volumes of all cases while no mutant is enabled, and asserts that no violation is found.
fn prepare() {
    let (_, failure) = hunt(None, CaseKinds::Sequences, 200);
    assert!(failure.is_none(), "{failure:?}");
}

/// A bug that was found.
struct Found {
    mutant: Mutant,
    /// Number of states checked.
    states: u64,
    secs: f64,
    failure: CaseFailure,
}

impl Found {
    /// Returns the row of the table.
    fn row(&self) -> String {
        let Self { mutant, states, secs, failure: CaseFailure { case, violation, .. } } = self;
        let line: String = violation.to_string().chars().take_while(|c| *c != '\n').collect();
        format!("| {mutant:?} | {states} | {secs:.1} | `{case}` | {line:.90} |")
    }
}

/// Returns the file of the cases that found the bugs last: a line for each, name and case.
fn cases_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutant_cases.txt")
}

/// Returns the case that found `mutant` last.
fn known_case(mutant: Mutant) -> Option<Case> {
    let text = fs::read_to_string(cases_path()).expect("the file of cases");
    let (_, case) = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == format!("{mutant:?}"))?;
    Some(case.parse().expect("a case"))
}

/// Explores `case` with `mutant` enabled; returns the number of states checked, and the failure.
fn try_case(mutant: Mutant, case: &Case) -> (u64, Option<CaseFailure>) {
    let mut states = 0;
    release(Some(mutant));
    let outcome = explore_case(case, None, |checked| {
        states += checked;
        true
    });
    release(None);
    (states, outcome.err())
}

/// Searches for `mutant` in the case that found it last, and in sequences and scenarios. `None` if it is not found.
fn find(mutant: Mutant, hunts: bool) -> Option<Found> {
    let since = Instant::now();
    let known = if hunts { None } else { known_case(mutant) };
    let tried = known.map(|case| try_case(mutant, &case));
    if let Some((_, None)) = tried {
        println!("{mutant:?}: its case finds it no longer");
    }
    let (states, failure) = tried
        .filter(|(_, failure)| failure.is_some())
        .unwrap_or_else(|| hunt(Some(mutant), CaseKinds::All, STATES_MAX));
    let failure = failure?;
    let without = explore_case(&failure.case, failure.state, |_| true);
    assert!(without.is_ok(), "{mutant:?}: {} fails without the bug, too", failure.case);
    Some(Found { mutant, states, secs: since.elapsed().as_secs_f64(), failure })
}

#[test]
fn every_mutant_is_found() {
    prepare();
    let wanted = std::env::var("SFS_MUTANT").ok();
    let hunts = std::env::var_os("SFS_HUNT").is_some();
    let is_wanted = |mutant: &Mutant| wanted.as_ref().is_none_or(|w| *w == format!("{mutant:?}"));
    // A mutant is enabled for one thread only. The last mutants take longest, and are therefore begun first.
    let waiting = Mutex::new(Mutant::ALL.into_iter().filter(is_wanted).collect::<Vec<_>>());
    let found = Mutex::new(BTreeMap::new());
    let next = || waiting.lock().expect("no panic").pop();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mutant) = next() {
                    let outcome = find(mutant, hunts);
                    found
                        .lock()
                        .expect("no panic")
                        .insert(format!("{mutant:?}"), outcome.ok_or(mutant));
                }
            });
        }
    });
    let (mut survivors, mut lines) = (Vec::new(), String::new());
    for (name, outcome) in found.into_inner().expect("no panic") {
        match outcome {
            Ok(found) => {
                println!("{}", found.row());
                lines += &format!("{name} {}\n", found.failure.case);
            }
            Err(mutant) => survivors.push(mutant),
        }
    }
    assert_eq!(survivors, [], "mutants that were not found");
    if hunts && wanted.is_none() {
        fs::write(cases_path(), lines).expect("the file of cases");
    }
}

/// A failing scenario shrinks to fewer steps. Its name alone replays the same violation with the bug, and no
/// violation without it.
#[test]
fn a_failure_shrinks_and_replays() {
    prepare();
    let mutant = Some(Mutant::UnmapForgotten);
    let (_, failure) = hunt(mutant, CaseKinds::Scenarios, STATES_MAX);
    let failure = failure.expect("the mutant is found");
    let steps = |case: &Case| match case {
        Case::Scenario { steps, .. } => steps.len(),
        Case::Sequence { .. } => panic!("{case} is not a scenario"),
    };
    let before = steps(&failure.case);
    release(mutant);
    let small = shrink(failure);
    let replayed: Case = small.case.to_string().parse().expect("a case");
    let again = explore_case(&replayed, small.state, |_| true).expect_err("the case fails again");
    release(None);
    assert_eq!(again.violation.to_string(), small.violation.to_string());
    assert!(steps(&small.case) * 4 <= before, "{} of {before} steps are left", steps(&small.case));
    assert!(explore_case(&replayed, small.state, |_| true).is_ok(), "no violation without the bug");
}
