//! Random sequences of operations, compared with the reference.

use std::sync::Arc;

use proptest::prelude::*;
use sfs_core::format::DataLayout;
use sfs_core::request::VolumeOptions;
use sfs_device::RamDevice;

use crate::fixture::{SEGMENT_BLOCKS, data_layout, ram_as, tight, tight_with};
use crate::operation::{RunLimits, choose};
use crate::pair::VolumePair;
use crate::random::{ReplayHint, SplitMix64, number};

const LIMITS: RunLimits = RunLimits { bytes: 2 << 20, files: 60, reopens: true };

fn new_pair(bytes: u64, options: VolumeOptions, data_layout: DataLayout) -> VolumePair {
    let device: Arc<RamDevice> = Arc::new(ram_as(bytes, SEGMENT_BLOCKS, data_layout));
    VolumePair::new(device, options)
}

/// Performs `steps` operations in the data layout of `SFS_LAYOUT`. Returns the number of segments that were cleaned.
fn run(test: &'static str, seed: u64, steps: u64, bytes: u64, limits: &RunLimits) -> u64 {
    run_as(data_layout(), test, seed, steps, bytes, limits)
}

/// Performs `steps` operations in `data_layout`. Returns the number of segments that were cleaned.
fn run_as(
    data_layout: DataLayout,
    test: &'static str,
    seed: u64,
    steps: u64,
    bytes: u64,
    limits: &RunLimits,
) -> u64 {
    let _replay = ReplayHint { test, seed, steps };
    let mut pair = new_pair(bytes, tight_with(seed), data_layout);
    let mut random = SplitMix64::new(seed);
    for step in 0..steps {
        let operation = choose(random.draw(), &pair.reference, limits);
        if std::env::var_os("SFS_TRACE").is_some() {
            eprintln!("{step}: {:.200}", format!("{operation:?}"));
        }
        pair.perform(&operation);
        if step % 64 == 0 {
            pair.compare();
        }
    }
    pair.reopen(false);
    pair.reopen(true);
    pair.cleaned()
}

#[test]
fn long_sequences_match_the_reference() {
    let test = "-p sfs-core --test model long_sequences_match_the_reference";
    let seeds = match std::env::var_os("SFS_SEED") {
        Some(_) => 0..1,
        None => 0..4,
    };
    for offset in seeds {
        run(test, number("SFS_SEED", 1) + offset, number("SFS_STEPS", 3000), 16 << 20, &LIMITS);
    }
}

/// The layouts that overwrite data in place; the log has its own test.
#[test]
fn every_data_layout_matches_the_reference() {
    let test = "-p sfs-core --test model every_data_layout_matches_the_reference";
    for data_layout in &DataLayout::ALL[1..] {
        let (seed, steps) = (number("SFS_SEED", 1), number("SFS_STEPS", 3000));
        run_as(*data_layout, test, seed, steps, 16 << 20, &LIMITS);
        let limits = RunLimits { bytes: 1 << 20, files: 40, reopens: true };
        run_as(*data_layout, test, seed + 100, 2 * steps, 6 << 20, &limits);
    }
}

/// The volume has so little space that segments are cleaned all the time.
#[test]
fn a_small_volume_matches_the_reference() {
    let limits = RunLimits { bytes: 1 << 20, files: 40, reopens: true };
    let test = "-p sfs-core --test model a_small_volume_matches_the_reference";
    let seeds = match std::env::var_os("SFS_SEED") {
        Some(_) => 0..1,
        None => 0..4,
    };
    let mut cleaned = 0;
    for offset in seeds {
        let (seed, steps) = (number("SFS_SEED", 100) + offset, number("SFS_STEPS", 6000));
        cleaned += run_as(DataLayout::Log, test, seed, steps, 4_400_000, &limits);
    }
    assert!(cleaned > 20, "{cleaned} segments cleaned");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: number("SFS_CASES", 40) as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// proptest shrinks a sequence that fails.
    #[test]
    fn short_sequences_match_the_reference(
        seeds in proptest::collection::vec(any::<u64>(), 1..250),
    ) {
        let data_layout = DataLayout::ALL[(seeds[0] % 5) as usize];
        let mut pair = new_pair(8 << 20, tight(), data_layout);
        for seed in seeds {
            let operation = choose(seed, &pair.reference, &LIMITS);
            pair.perform(&operation);
        }
        pair.compare();
        pair.reopen(false);
    }
}
