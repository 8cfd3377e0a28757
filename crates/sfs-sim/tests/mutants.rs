//! The mutation check: each deliberate bug of sfs-core is found, by the cases that are explored
//! anyway, in their order. `cargo test -p sfs-sim --features mutants --test mutants -- --nocapture`
//! prints how long it took.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use sfs_core::format::DataLayout;
use sfs_core::mutant::{Mutant, release};
use sfs_sim::case::Case;
use sfs_sim::explore::{Failure, Mode, Plan, explore, run};
use sfs_sim::shrink::shrink;

/// States in which a mutant must be found.
const STATES_MAX: u64 = 30_000;

/// Where data goes in the cases that must find `mutant`.
fn data_layout_of(mutant: Option<Mutant>) -> DataLayout {
    match mutant {
        Some(Mutant::FreedReused | Mutant::PlacedUnflushed) => DataLayout::GreedySpace,
        _ => DataLayout::Log,
    }
}

/// Explores with `mutant` alive; the states that it took, and what was wrong.
fn hunt(mutant: Option<Mutant>, mode: Mode, states: u64) -> (u64, Option<Failure>) {
    let seen = AtomicU64::new(0);
    let plan = Plan { data_layout: data_layout_of(mutant), seed: 1, states, mode, jobs: 1 };
    release(mutant);
    let outcome = explore(&plan, &|looked| {
        seen.fetch_add(looked, Ordering::Relaxed);
    });
    release(None);
    (seen.into_inner(), outcome.err())
}

/// What all cases begin with is made while no mutant is alive; and none is found then.
fn begin() {
    let (_, failure) = hunt(None, Mode::Sequences, 200);
    assert!(failure.is_none(), "{failure:?}");
}

/// Looks for it in sequences and worlds by turns; gives the row of the table.
fn row(mutant: Mutant) -> Result<String, Mutant> {
    let since = Instant::now();
    let (states, failure) = hunt(Some(mutant), Mode::All, STATES_MAX);
    let Failure { case, violation, .. } = failure.ok_or(mutant)?;
    let secs = since.elapsed().as_secs_f64();
    let said: String = violation.to_string().chars().take_while(|c| *c != '\n').collect();
    Ok(format!("| {mutant:?} | {states} | {secs:.1} | `{case}` | {said:.90} |"))
}

#[test]
fn every_mutant_is_found() {
    begin();
    let wanted = std::env::var("SFS_MUTANT").ok();
    let is_wanted = |mutant: &Mutant| wanted.as_ref().is_none_or(|w| *w == format!("{mutant:?}"));
    // A mutant is alive in its thread alone; the last take longest.
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

/// What fails in a world shrinks to fewer steps; its name alone gives the same violation again, and
/// none once the bug is mended.
#[test]
fn a_failure_shrinks_and_replays() {
    begin();
    let mutant = Some(Mutant::UnmapForgotten);
    let (_, failure) = hunt(mutant, Mode::Worlds, STATES_MAX);
    let failure = failure.expect("it is found");
    let steps = |case: &Case| match case {
        Case::World { steps, .. } => steps.len(),
        Case::Sequence { .. } => panic!("{case} is no world"),
    };
    let before = steps(&failure.case);
    release(mutant);
    let small = shrink(failure);
    let replayed: Case = small.case.to_string().parse().expect("a case");
    let again = run(&replayed, small.state, |_| true).expect_err("it fails again");
    release(None);
    assert_eq!(again.violation.to_string(), small.violation.to_string());
    assert!(steps(&small.case) * 4 <= before, "{} of {before} steps are left", steps(&small.case));
    assert!(run(&replayed, small.state, |_| true).is_ok(), "the bug is mended");
}
