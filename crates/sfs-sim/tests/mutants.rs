//! The mutation check: the exploration finds each deliberate bug of sfs-core, in its usual order of cases.
//!
//! `cargo test -p sfs-sim --features mutants --test mutants -- --nocapture` prints a table of the states and
//! the time that each bug took.

use std::collections::BTreeMap;
use std::num::NonZero;
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

/// Searches for `mutant` in sequences and scenarios; returns its row of the table.
fn row(mutant: Mutant) -> Result<String, Mutant> {
    let since = Instant::now();
    let (states, failure) = hunt(Some(mutant), CaseKinds::All, STATES_MAX);
    let CaseFailure { case, violation, .. } = failure.ok_or(mutant)?;
    let secs = since.elapsed().as_secs_f64();
    let line: String = violation.to_string().chars().take_while(|c| *c != '\n').collect();
    Ok(format!("| {mutant:?} | {states} | {secs:.1} | `{case}` | {line:.90} |"))
}

#[test]
fn every_mutant_is_found() {
    prepare();
    let wanted = std::env::var("SFS_MUTANT").ok();
    let is_wanted = |mutant: &Mutant| wanted.as_ref().is_none_or(|w| *w == format!("{mutant:?}"));
    // A mutant is enabled for one thread only. The last mutants take longest, and are therefore begun first.
    let wanted = Mutant::ALL.into_iter().filter(is_wanted).enumerate().collect::<Vec<_>>();
    let waiting = Mutex::new(wanted);
    let found = Mutex::new(BTreeMap::new());
    let next = || waiting.lock().expect("no panic").pop();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((place, mutant)) = next() {
                    let row = row(mutant);
                    found.lock().expect("no panic").insert(place, row);
                }
            });
        }
    });
    let rows: Vec<Result<String, Mutant>> =
        found.into_inner().expect("no panic").into_values().collect();
    rows.iter().flatten().for_each(|row| println!("{row}"));
    let survivors: Vec<Mutant> = rows.into_iter().filter_map(Result::err).collect();
    assert_eq!(survivors, [], "mutants that were not found");
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
