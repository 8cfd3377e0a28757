//! The policies alone: quantization, the choice of a victim, and the grouping of a block.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use sfs_core::format::{Group, Head, SegmentState, UsageEntry};
use sfs_core::policy::{
    Candidate, Distance, Fast12, GROUPING_POLICIES, GroupingPolicy, Partition, Tournament,
    VICTIM_POLICIES, full_scan, grouping_policy, victim_policy,
};

const SEGMENTS: u32 = 10_000;
const SEGMENT_BLOCKS: u32 = 8192;
const BLOCKS: u64 = SEGMENTS as u64 * SEGMENT_BLOCKS as u64;
const NOW: u32 = 1 << 20;

/// Returns `count` segments of all ages, utilizations and groups.
fn segments_of(count: u32) -> Vec<UsageEntry> {
    let segment = |no: u32| {
        let mixed = no.wrapping_mul(0x9E37_79B9);
        let live_blocks = mixed >> 19;
        let modified = mixed % NOW;
        UsageEntry {
            live_blocks,
            state: SegmentState::Sealed,
            head: Head::of(Group((mixed % 4) as u8)),
            write_count_sum: u64::from(live_blocks) * u64::from(1 + mixed % 100),
            modified_sum: u64::from(live_blocks) * u64::from(modified),
            opened: modified,
            sealed: modified,
            ..UsageEntry::NEW
        }
    };
    (0..count).map(segment).collect()
}

fn segments() -> Vec<UsageEntry> {
    segments_of(SEGMENTS)
}

fn quantization(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quantization of 10,000 segments");
    let segments = segments();
    for partition in [Partition::Iterative, Partition::EqualWidth, Partition::EqualCount] {
        let mut sfs = Fast12::new(Distance::Linear, partition, Fast12::GROUPS, SEGMENTS);
        group.bench_function(format!("{partition:?}"), |bencher| {
            bencher.iter(|| sfs.begin(black_box(&segments), SEGMENT_BLOCKS, NOW));
        });
    }
    let mut sfs = Fast12::new(Distance::Log, Partition::Iterative, Fast12::GROUPS, SEGMENTS);
    group.bench_function("log distance", |bencher| {
        bencher.iter(|| sfs.begin(black_box(&segments), SEGMENT_BLOCKS, NOW));
    });
    group.finish();
}

fn victims(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("victim of 10,000 segments");
    let segments = segments();
    for name in VICTIM_POLICIES {
        let policy = victim_policy(name, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a known policy");
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let worth = |entry: &UsageEntry| policy.score(entry, SEGMENT_BLOCKS, NOW);
                black_box(&segments).iter().map(worth).max_by(f64::total_cmp)
            });
        });
    }
    group.finish();
}

/// Number of segments in which a block dies between two choices of a victim.
const CHANGED_SEGMENTS: u32 = 256;

/// Measures the choice of the next victim by the default policy: by a tournament while time passes
/// and blocks die, and by a full scan of segments that stay the same.
fn victims_by_size(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("next victim");
    for count in [1 << 10, 1 << 14, 1 << 17] {
        let blocks = u64::from(count) * u64::from(SEGMENT_BLOCKS);
        let new = || victim_policy("index", count, SEGMENT_BLOCKS, blocks).expect("a known policy");
        let (mut policy, mut entries) = (new(), segments_of(count));
        let (mut tournament, mut now) = (Tournament::new(entries.len()), NOW);
        group.bench_function(format!("tournament of {count}"), |bencher| {
            bencher.iter(|| {
                now += 1;
                let changed: Vec<u32> = (0..CHANGED_SEGMENTS)
                    .map(|no| (now * CHANGED_SEGMENTS + no).wrapping_mul(0x9E37_79B9) % count)
                    .collect();
                for segment in &changed {
                    let entry = &mut entries[*segment as usize];
                    entry.live_blocks = entry.live_blocks.saturating_sub(1);
                }
                tournament.refresh(&mut *policy, &entries, &changed, (SEGMENT_BLOCKS, now));
                tournament.best(&*policy, &entries, (SEGMENT_BLOCKS, now), |_| true)
            });
        });
        let (policy, entries) = (new(), segments_of(count));
        group.bench_function(format!("full scan of {count}"), |bencher| {
            bencher.iter(|| {
                let at = (SEGMENT_BLOCKS, NOW);
                full_scan(&*policy, black_box(&entries), at, |_| true)
            });
        });
    }
    group.finish();
}

fn grouping_policies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a user's block");
    let segments = segments();
    for name in GROUPING_POLICIES {
        let mut policy: Box<dyn GroupingPolicy> =
            grouping_policy(name, None, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a known policy");
        policy.begin(&segments, SEGMENT_BLOCKS, 0);
        let mut histories = vec![None; 4096];
        let mut write = 0u32;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                write += 1;
                let now = write / 256;
                let block = write.wrapping_mul(0x9E37_79B9) >> 20;
                let history = histories[block as usize];
                let candidate = Candidate {
                    ino: 1,
                    block,
                    history,
                    group: Some(Group(0)),
                    cleaning: false,
                    file_write_count: write.into(),
                    file_modified: now,
                };
                let group = policy.group(&candidate, now);
                let after = Some(policy.history(history, now));
                policy.note_write(history, after, now);
                histories[block as usize] = after;
                group
            });
        });
    }
    group.finish();
}

criterion_group!(benches, quantization, victims, victims_by_size, grouping_policies);
criterion_main!(benches);
