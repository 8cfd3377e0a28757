//! Sentences 2 to 4 of the durability contract (docs/SEMANTICS.md), over every crash of short
//! sequences and of a few random worlds. `cargo xtask crash` goes on from here.

use sfs_core::format::DataLayout;
use sfs_sim::case::Case;
use sfs_sim::explore::{Failure, Mode, Plan, explore, run};

/// Explores, and says how to replay what is wrong.
fn clean(data_layout: DataLayout, mode: Mode, states: u64) {
    let plan = Plan { data_layout, seed: 1, states, mode, jobs: 2 };
    if let Err(Failure { case, state, violation }) = explore(&plan, &|_| {}) {
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
fn what_a_crash_leaves_of_short_sequences_is_a_prefix() {
    clean(DataLayout::Log, Mode::All, 6000);
}

/// The same, on volumes that are nearly full and cleaned all the time.
#[test]
fn what_a_crash_leaves_of_random_worlds_is_a_prefix() {
    clean(DataLayout::Log, Mode::Worlds, 2000);
}

/// The same where data is overwritten in place, with the promises that `docs/SEMANTICS.md` makes there.
#[test]
fn what_a_crash_leaves_of_overwritten_data() {
    for data_layout in &DataLayout::ALL[1..] {
        clean(*data_layout, Mode::All, 1500);
        clean(*data_layout, Mode::Worlds, 1000);
    }
}

/// A seed decides everything: the same events, the same crash states, the same counts.
#[test]
fn a_case_is_the_same_every_time() {
    for name in ["sequence:1:20000", "world:7:0-60"] {
        let case: Case = name.parse().expect("a case");
        let (first, again) = (case.record(), case.record());
        assert_eq!(first.events, again.events, "{name}");
        assert_eq!(case.states(&first), case.states(&again), "{name}");
        let counts = || run(&case, None, |_| true).map_err(|failure| failure.violation.to_string());
        assert_eq!(counts(), counts(), "{name}");
    }
}
