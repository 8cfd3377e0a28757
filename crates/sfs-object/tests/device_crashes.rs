//! An object volume in lives that end at any request: with its cache, or without it, nothing that was acknowledged is lost.
//!
//! A failed run names its seed. `SFS_SEED=7 cargo test -p sfs-object --test device_crashes` repeats one;
//! `cargo test --release -p sfs-object --test device_crashes -- --ignored` runs 20,000.

mod simulator;
use simulator::life::World;

const LIVES: u32 = 6;

/// Runs all seeds, and returns the first failure.
fn run(seeds: std::ops::Range<u64>) -> Result<[u32; 4], String> {
    let mut ends = [0; 4];
    for seed in seeds {
        let mut world = World::new(seed);
        world.run(LIVES).map_err(|reason| format!("SFS_SEED={seed}: {reason}"))?;
        ends.iter_mut().zip(world.ends).for_each(|(all, one)| *all += one);
    }
    Ok(ends)
}

fn assert_safe(seeds: std::ops::Range<u64>) {
    let seeds = match std::env::var("SFS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => seeds,
    };
    let ends = run(seeds.clone()).unwrap_or_else(|reason| panic!("{reason}"));
    println!("opening ended, old cache refused, request ended, crashed: {ends:?}");
    assert!(seeds.end - seeds.start < 100 || ends.iter().all(|count| *count > 10), "{ends:?}");
}

#[test]
fn nothing_acknowledged_is_lost_with_the_cache_or_without() {
    assert_safe(0..100);
}

#[test]
#[ignore = "takes minutes"]
fn nothing_acknowledged_is_lost_in_many_runs() {
    assert_safe(1_000..21_000);
}

#[cfg(feature = "mutants")]
#[test]
fn each_deliberate_bug_of_the_device_is_found() {
    use sfs_object::mutant::{Mutant, release};

    let mut missed = Vec::new();
    for mutant in Mutant::OF_DEVICE {
        release(Some(mutant));
        match run(0..300) {
            Err(reason) => println!("{mutant:?}: {reason}"),
            Ok(_) => missed.push(mutant),
        }
    }
    release(None);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
