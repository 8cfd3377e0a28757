//! The states of two devices find each deliberate bug of the SSD cache and of its epochs.

use sfs_cache::mutant::{Mutant, release};
use sfs_core::mutant;
use sfs_sim::two_devices::run;

/// Runs until a bug is found.
const RUNS_MAX: u64 = 60;

/// Returns the run that finds the bug, and its violation.
fn hunt() -> Option<(u64, String)> {
    (1..=RUNS_MAX).find_map(|seed| run(seed).err().map(|found| (seed, found.to_string())))
}

#[test]
fn every_mutant_of_the_cache_is_found() {
    assert_eq!(run(1).map(drop), Ok(()), "there is no violation without a bug");
    let mut survivors = Vec::new();
    let mut note = |name: String, found: Option<(u64, String)>| match found {
        Some((seed, violation)) => println!("| {name} | {seed} | {violation} |"),
        None => survivors.push(name),
    };
    for mutant in [mutant::Mutant::EpochLate, mutant::Mutant::EpochKept] {
        mutant::release(Some(mutant));
        note(format!("{mutant:?}"), hunt());
    }
    mutant::release(None);
    for mutant in Mutant::ALL {
        release(Some(mutant));
        note(format!("{mutant:?}"), hunt());
    }
    release(None);
    assert_eq!(survivors, [] as [String; 0], "mutants that were not found");
}
