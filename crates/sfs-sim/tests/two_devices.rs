//! Crash states of a disk and its SSD cache: what the volume shows is what the disk alone shows.

use std::env;

use sfs_sim::two_devices::run;

/// Checks the runs from seed 1 on, until `states` states were checked.
fn explore(states: u64) {
    let (mut seed, mut checked) = (0, 0);
    while checked < states {
        seed += 1;
        match run(seed) {
            Ok(count) => checked += count,
            Err(violation) => panic!(
                "seed {seed}: {violation}\nreplay: SFS_SEED={seed} cargo test -p sfs-sim --test two_devices"
            ),
        }
    }
    println!("{checked} states of {seed} runs: no violation");
}

#[test]
fn a_disk_with_a_cache_shows_what_the_disk_alone_shows() {
    match env::var("SFS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => assert_eq!(run(seed).map(drop), Ok(())),
        None => explore(1_000),
    }
}

/// `cargo xtask test --long` runs this.
#[test]
#[ignore = "takes minutes"]
fn long_a_hundred_thousand_states_of_two_devices() {
    explore(100_000);
}
