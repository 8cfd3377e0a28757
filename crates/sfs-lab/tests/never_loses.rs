//! The default policy writes hardly more than no grouping and than the policies of the literature,
//! in the mean over five seeds, in the steady state and after a change of load.
//!
//! `sfs-lab evidence` has the same comparison in full (docs/lab.md). `--nocapture` prints all means.

use std::thread;

use sfs_lab::simulation::{Buffering, Experiment, MetadataOverhead, WriteOutPolicy};
use sfs_lab::simulation::{VolumeSize, VolumeSizeRequest};
use sfs_lab::workload::Source;

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

const SEGMENTS: u32 = 512;
const SEGMENT_BLOCKS: u32 = 32;

/// Size of the write buffer in blocks, in proportion to the write buffer of a mounted volume of 2
/// GiB.
const BUFFER_BLOCKS: u32 = SEGMENTS * SEGMENT_BLOCKS / 64;

/// Grouping policy and victim policy.
type PolicySet = (&'static str, &'static str);

const SFS: PolicySet = ("sfs", "index");
const NONE: PolicySet = ("none", "greedy");
const LITERATURE: [PolicySet; 4] = [
    ("dac", "cost-benefit-sqrt"),
    ("sep-gc", "cost-benefit"),
    ("sepbit", "greedy"),
    ("sepbit", "cost-benefit-sqrt"),
];

/// A load at a utilization, perhaps after another load.
struct Load<'a> {
    workload: &'a str,
    before: Option<&'a str>,
    utilization: f64,
    /// Number of measured writes, in multiples of the users' blocks.
    measure: f64,
}

impl<'a> Load<'a> {
    fn steady(workload: &'a str, utilization: f64) -> Self {
        Self { workload, before: None, utilization, measure: 3.0 }
    }

    /// Returns a load that measures the first writes after a change of load, as many as users'
    /// blocks.
    fn changed(before: &'a str, workload: &'a str) -> Self {
        Self { workload, before: Some(before), utilization: 0.85, measure: 1.0 }
    }

    /// Returns the log write amplification with a seed.
    fn amplification(&self, (grouping, victims): PolicySet, seed: u64) -> f64 {
        let source = Source::open(self.workload).expect("a workload");
        let before = self.before.map(|name| Source::open(name).expect("a workload"));
        let blocks = (f64::from(SEGMENTS * SEGMENT_BLOCKS) * self.utilization) as u32;
        let space = VolumeSize {
            blocks,
            segment_blocks: SEGMENT_BLOCKS,
            segments: SEGMENTS,
            reserve_segments: SEGMENTS / 50,
        };
        let buffering = Buffering {
            blocks: Some(BUFFER_BLOCKS),
            writing: WriteOutPolicy::Largest,
            sync_interval: Some(4 * u64::from(BUFFER_BLOCKS)),
            ..Buffering::NONE
        };
        let experiment = Experiment {
            source: &source,
            workload: self.workload.into(),
            warm_up_source: before.as_ref(),
            space: VolumeSizeRequest {
                utilization: self.utilization,
                live_segments: SEGMENTS,
                segment_blocks: SEGMENT_BLOCKS,
                reserve: 0.02,
                blocks: None,
            },
            exact: Some(space),
            dummy: 0.0,
            metadata: MetadataOverhead::NONE,
            buffering,
            grouping: grouping.into(),
            victims: Some(victims.into()),
            groups: None,
            warm_up: 3.0,
            measure: self.measure,
            seed,
        };
        experiment.run(&mut |_, _| ()).expect("an outcome").amplification_log
    }

    /// Returns the mean over the seeds.
    fn mean(&self, policies: PolicySet) -> f64 {
        let count = SEEDS.count() as f64;
        SEEDS.map(|seed| self.amplification(policies, seed)).sum::<f64>() / count
    }

    /// Returns the mean of the default policy over the mean of the best of `others`, and both means
    /// as text.
    fn over_best_of(&self, others: &[PolicySet]) -> (f64, String) {
        let (ours, theirs) = thread::scope(|scope| {
            let ours = scope.spawn(|| self.mean(SFS));
            let theirs = others.iter().map(|policies| (self.mean(*policies), *policies));
            let best = theirs.min_by(|a, b| a.0.total_cmp(&b.0)).expect("another policy");
            (ours.join().expect("no panic"), best)
        });
        let (mean, (grouping, victims)) = theirs;
        let before = self.before.map_or(String::new(), |before| format!("{before}, then "));
        let text = format!(
            "{before}{} at {}: {ours:.3}, {grouping} {victims} {mean:.3}",
            self.workload, self.utilization
        );
        (ours / mean, text)
    }
}

/// Fails for the loads under which the default writes over `most` times as much as the best of `others`.
fn check(loads: &[Load<'_>], others: &[PolicySet], most: f64) {
    let ratios: Vec<(f64, String)> = loads.iter().map(|load| load.over_best_of(others)).collect();
    ratios.iter().for_each(|(ratio, text)| println!("{ratio:.3}: {text}"));
    let lost: Vec<&(f64, String)> = ratios.iter().filter(|(ratio, _)| *ratio > most).collect();
    assert!(lost.is_empty(), "above {most}: {lost:#?}");
}

#[test]
fn sfs_does_not_lose_to_no_grouping() {
    let loads = [
        Load::steady("uniform", 0.70),
        Load::steady("uniform", 0.85),
        Load::steady("uniform", 0.93),
        Load::steady("zipf:0.8", 0.70),
    ];
    check(&loads, &[NONE], 1.03);
}

#[test]
fn sfs_does_not_lose_to_the_policies_of_the_literature() {
    let loads = ["zipf:0.99", "zipf:1.2", "hotcold:90/10", "shift", "tpcc", "pieces:64", "streams"]
        .map(|workload| Load::steady(workload, 0.85));
    check(&loads, &LITERATURE, 1.03);
}

#[test]
fn sfs_loses_little_in_the_first_volume_after_a_change_of_load() {
    let loads = [
        Load::changed("uniform", "zipf:0.99"),
        Load::changed("zipf:0.99", "hotcold:90/10"),
        Load::changed("hotcold:90/10", "uniform"),
    ];
    let others = [&LITERATURE[..], &[NONE]].concat();
    check(&loads, &others, 1.10);
}
