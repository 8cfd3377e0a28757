//! An object volume in lives that end at any request: with its cache, or without it, nothing that was acknowledged is lost.
//!
//! A failed run names its seed. `SFS_SEED=7 cargo test -p sfs-object --test device_crashes` repeats one;
//! `cargo test --release -p sfs-object --test device_crashes -- --ignored` runs 20,000, or as many as `SFS_SEEDS` says, from `SFS_SEED` on.

mod simulator;
use sfs_object::FileKey;
use simulator::life::World;

const LIVES: u32 = 6;

/// Seeds of the short run, which find each deliberate bug as well.
const SEEDS: std::ops::Range<u64> = 0..400;

/// Seeds of the short run with encrypted objects.
const ENCRYPTED_SEEDS: std::ops::Range<u64> = 0..100;

/// Seeds of the long run, unless the environment says otherwise.
const LONG_SEEDS: std::ops::Range<u64> = 1_000..21_000;

/// Returns a number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Runs all seeds, with or without encryption, and returns the first failure.
fn run(seeds: std::ops::Range<u64>, is_encrypted: bool) -> Result<[u32; 7], String> {
    let mut ends = [0; 7];
    for seed in seeds {
        let key = is_encrypted.then(|| FileKey::new([7; 32]));
        let mut world = World::new(seed, key);
        world.run(LIVES).map_err(|reason| format!("SFS_SEED={seed}: {reason}"))?;
        ends.iter_mut().zip(world.ends).for_each(|(all, one)| *all += one);
    }
    Ok(ends)
}

fn assert_safe(seeds: std::ops::Range<u64>, is_encrypted: bool) {
    let ends = run(seeds.clone(), is_encrypted).unwrap_or_else(|reason| panic!("{reason}"));
    println!(
        "opening ended, old cache refused, request ended, crashed, closed, blocks of old caches shown, not shown: {ends:?}"
    );
    assert!(seeds.end - seeds.start < 100 || ends.iter().all(|count| *count > 10), "{ends:?}");
}

#[test]
fn nothing_acknowledged_is_lost_with_the_cache_or_without() {
    assert_safe(number("SFS_SEED").map_or(SEEDS, |seed| seed..seed + 1), false);
}

#[test]
fn nothing_acknowledged_is_lost_with_encrypted_objects() {
    assert_safe(number("SFS_SEED").map_or(ENCRYPTED_SEEDS, |seed| seed..seed + 1), true);
}

#[test]
#[ignore = "takes minutes"]
fn nothing_acknowledged_is_lost_in_many_runs() {
    let first = number("SFS_SEED").unwrap_or(LONG_SEEDS.start);
    let count = number("SFS_SEEDS").unwrap_or(LONG_SEEDS.end - LONG_SEEDS.start);
    assert_safe(first..first + count, false);
}

#[cfg(feature = "mutants")]
#[test]
fn each_deliberate_bug_of_the_device_is_found() {
    use sfs_object::mutant::{Mutant, release};

    let mut missed = Vec::new();
    for mutant in Mutant::OF_DEVICE {
        release(Some(mutant));
        match run(SEEDS, false) {
            Err(reason) => println!("{mutant:?}: {reason}"),
            Ok(_) => missed.push(mutant),
        }
    }
    release(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
