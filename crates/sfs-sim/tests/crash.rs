//! Tests of sentences 2 to 4 of the durability contract (docs/SEMANTICS.md), on crash states of short
//! sequences and of a few random scenarios. `cargo xtask crash` explores more states.

use sfs_core::format::DataLayout;
use sfs_sim::case::Case;
use sfs_sim::explore::{CaseFailure, CaseKinds, ExplorationPlan, explore, explore_case};

/// Explores `states` crash states; panics with the command that replays a violation.
fn assert_no_violation(data_layout: DataLayout, cases: CaseKinds, states: u64) {
    let plan = ExplorationPlan { data_layout, seed: 1, states, cases, jobs: 2 };
    if let Err(CaseFailure { case, state, violation }) = explore(&plan, &|_| {}) {
        let state = state.map(|state| format!(" --state {state}")).unwrap_or_default();
        panic!("{violation}\nreplay: cargo xtask crash --replay {case}{state}");
    }
}

/// "After a crash at any point, with any subset of unflushed writes lost and any sector of the last
/// ones torn, the volume mounts without help, `sfs-fsck` finds nothing wrong, and the namespace
/// equals the state after some prefix of the operations, no shorter than the last acknowledged
/// sync."
///
/// "A file's content after a crash is, block by block, the last synced content or something written
/// later; never another file's data, never data older than the synced."
///
/// "`rename` over an existing file, and truncate-and-rewrite, never leave an empty file behind when
/// the new data had been closed before."
#[test]
fn a_crash_of_a_short_sequence_leaves_a_prefix() {
    assert_no_violation(DataLayout::Log, CaseKinds::All, 6000);
}

/// Sentences 2 to 4 of the contract, on volumes that are nearly full and cleaned all the time.
#[test]
fn a_crash_of_a_scenario_leaves_a_prefix() {
    assert_no_violation(DataLayout::Log, CaseKinds::Scenarios, 2000);
}

/// The weaker contract of `docs/SEMANTICS.md` for data that is overwritten in place.
#[test]
fn a_crash_of_data_in_place_leaves_an_allowed_state() {
    for data_layout in &DataLayout::ALL[1..] {
        assert_no_violation(*data_layout, CaseKinds::All, 1500);
        assert_no_violation(*data_layout, CaseKinds::Scenarios, 1000);
    }
}

#[test]
fn a_case_gives_the_same_events_states_and_counts_every_time() {
    for name in ["sequence:1:20000", "scenario:7:0-60"] {
        let case: Case = name.parse().expect("a case");
        let (first, again) = (case.record(), case.record());
        assert_eq!(first.events, again.events, "{name}");
        assert_eq!(case.states(&first), case.states(&again), "{name}");
        let counts =
            || explore_case(&case, None, |_| true).map_err(|failure| failure.violation.to_string());
        assert_eq!(counts(), counts(), "{name}");
    }
}
