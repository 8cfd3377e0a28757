//! `sfs-lab simulate` answers every combination of arguments with an outcome or an error, and never panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sfs_core::policy;
use sfs_lab::random::WorkloadRng;
use sfs_lab::simulation::{
    Buffering, Experiment, MetadataOverhead, ORACLE, SyncRemainder, VolumeSize, VolumeSizeRequest,
    WriteOutPolicy,
};
use sfs_lab::workload::Source;

const CASES: u64 = 400;

/// Draws from a list.
fn one_of<T: Clone>(rng: &mut WorkloadRng, list: &[T]) -> T {
    list[rng.below(list.len() as u32) as usize].clone()
}

fn experiment<'a>(rng: &mut WorkloadRng, source: &'a Source) -> Experiment<'a> {
    let segment_blocks = one_of(rng, &[0, 1, 2, 7, 16, 64]);
    let groupings: Vec<&str> = policy::GROUPING_POLICIES.iter().copied().chain([ORACLE]).collect();
    let exact = VolumeSize {
        blocks: one_of(rng, &[0, 1, 2, 15, 16, 100, 900]),
        segment_blocks,
        segments: one_of(rng, &[0, 1, 2, 5, 20, 60]),
        reserve_segments: one_of(rng, &[0, 1, 2, 8, 20]),
    };
    let blocks = one_of(rng, &[None, None, None, Some(0), Some(1), Some(40), Some(3000)]);
    Experiment {
        source,
        workload: "a test".into(),
        warm_up_source: None,
        space: VolumeSizeRequest {
            utilization: one_of(rng, &[-1.0, 0.0, 0.01, 0.5, 0.85, 0.93, 0.97, 2.0, f64::NAN]),
            live_segments: one_of(rng, &[0, 1, 16, 17, 40]),
            segment_blocks,
            reserve: one_of(rng, &[-1.0, 0.0, 0.02, 0.1, 0.5, 1.0, 1e9, f64::NAN]),
            blocks: None,
        },
        exact: (rng.below(3) == 0).then_some(exact),
        dummy: one_of(rng, &[0.0, 0.0, 0.5, 1.0, -1.0, f64::INFINITY]),
        metadata: MetadataOverhead {
            summaries: one_of(rng, &[0.0, 0.1, 0.49, 0.5, -1.0, f64::NAN]),
            nodes: one_of(rng, &[0.0, 1.0, -1.0, f64::NAN]),
        },
        buffering: Buffering {
            segments: one_of(rng, &[0, 1, 4, 8, 1000]),
            blocks,
            writing: one_of(
                rng,
                &[
                    WriteOutPolicy::Heads,
                    WriteOutPolicy::Deferred,
                    WriteOutPolicy::Deferred,
                    WriteOutPolicy::Largest,
                    WriteOutPolicy::Coldest,
                ],
            ),
            remainder: one_of(rng, &[SyncRemainder::Pure, SyncRemainder::Mixed]),
            sync_interval: one_of(rng, &[None, Some(0), Some(1), Some(50)]),
        },
        grouping: one_of(rng, &groupings).into(),
        victims: one_of(rng, &[None, None, Some("greedy"), Some("index"), Some("no-such")])
            .map(str::to_owned),
        groups: one_of(rng, &[None, None, Some(1), Some(3), Some(8)]),
        warm_up: one_of(rng, &[0.0, 1.0, 1.0, -1.0, f64::INFINITY]),
        measure: one_of(rng, &[0.0, 1.0, 2.0, 2.0, f64::NAN]),
        seed: rng.bits(),
    }
}

#[test]
fn no_combination_of_arguments_panics() {
    let names = [
        "zipf:0.99",
        "zipf:0",
        "zipf:10",
        "uniform",
        "hotcold:90/10",
        "hotcold:99.999/0.001",
        "shift",
        "tpcc",
        "sequential",
        "pieces:1000",
        "streams",
    ];
    let sources = names.map(|name| Source::open(name).expect("a workload"));
    let (mut outcomes, mut errors) = (0, 0);
    for seed in 0..CASES {
        let mut rng = WorkloadRng::new(seed);
        let no = rng.below(sources.len() as u32) as usize;
        // Most single values are refused, so that a good volume is drawn for half of the cases.
        let mut experiment = experiment(&mut rng, &sources[no]);
        if seed % 2 == 0 {
            experiment.exact = None;
            experiment.dummy = 0.0;
            experiment.metadata = MetadataOverhead::NONE;
            experiment.victims = None;
            (experiment.warm_up, experiment.measure) = (1.0, 1.0);
            experiment.space = VolumeSizeRequest {
                utilization: one_of(&mut rng, &[0.5, 0.85, 0.93]),
                live_segments: 16 + rng.below(60),
                segment_blocks: 1 + rng.below(40),
                reserve: one_of(&mut rng, &[0.02, 0.1, 0.2]),
                blocks: None,
            };
        }
        match catch_unwind(AssertUnwindSafe(|| experiment.run(&mut |_, _| ()))) {
            Ok(Ok(_)) => outcomes += 1,
            Ok(Err(_)) => errors += 1,
            Err(_) => panic!("seed {seed}, {}: {experiment:?}", names[no]),
        }
    }
    assert!(outcomes > 40 && errors > 40, "{outcomes} outcomes, {errors} errors");
}

#[test]
fn a_wrong_zipf_exponent_is_refused() {
    for name in ["zipf:-1", "zipf:NaN", "zipf:inf", "zipf:11", "zipf:"] {
        assert!(Source::open(name).is_err(), "{name}");
    }
}
