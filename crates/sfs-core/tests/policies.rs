//! Purity of all policies: none allocates after construction, takes a lock or reads a clock. The work of a choice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sfs_core::format::{Group, Head, History, SegmentState, UsageEntry};
use sfs_core::policy::{
    Candidate, GROUPING_POLICIES, Greedy, GroupingPolicy, SavedState, Tournament, VICTIM_POLICIES,
    VictimPolicy, grouping_policy, victim_policy,
};

const SEGMENTS: u32 = 300;
const SEGMENT_BLOCKS: u32 = 64;
const BLOCKS: u64 = SEGMENTS as u64 * SEGMENT_BLOCKS as u64;

/// Number of blocks of the file that is overwritten.
const FILE_BLOCKS: u32 = 2048;

/// Number of writes to the file.
const WRITES: u32 = 20_000;

/// Returns segments of all ages, utilizations and groups, different in each `round`.
fn segments(groups: u8, round: u32) -> Vec<UsageEntry> {
    let segment = |no: u32| {
        let mixed = (no + round * SEGMENTS).wrapping_mul(0x9E37_79B9);
        let live_blocks = mixed % (SEGMENT_BLOCKS + 1);
        UsageEntry {
            live_blocks,
            state: SegmentState::Sealed,
            head: Head::of(Group((mixed >> 8) as u8 % groups)),
            write_count_sum: u64::from(live_blocks) * u64::from(1 + mixed % 100),
            modified_sum: u64::from(live_blocks) * u64::from(mixed % WRITES),
            opened: mixed % WRITES,
            sealed: mixed % WRITES,
            ..UsageEntry::NEW
        }
    };
    (0..SEGMENTS).map(segment).collect()
}

/// Runs `then` and asserts that it does not allocate.
#[track_caller]
fn without_memory<T>(name: &str, what: &str, then: impl FnOnce() -> T) -> T {
    let mut outcome = None;
    let taken = allocation_counter::measure(|| outcome = Some(then()));
    assert_eq!(taken.count_total, 0, "{name}: {what}");
    outcome.expect("`then` ran")
}

#[test]
fn an_allocation_is_counted() {
    let taken = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(taken.count_total, 1);
}

#[test]
fn grouping_policies_do_not_allocate() {
    for name in GROUPING_POLICIES {
        let mut policy =
            grouping_policy(name, None, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a name");
        let policy: &mut dyn GroupingPolicy = policy.as_mut();
        let mut histories: Vec<Option<(History, Group)>> = vec![None; FILE_BLOCKS as usize];
        let mut state = Vec::with_capacity(1 << 20);
        for write in 0..WRITES {
            let block = write.wrapping_mul(0x9E37_79B9) >> 21;
            let before = histories[block as usize];
            let candidate = Candidate {
                ino: 16,
                block,
                history: before.map(|(history, _)| history),
                group: before.map(|(_, group)| group),
                cleaning: write % 5 == 0 && before.is_some(),
                file_write_count: write.into(),
                file_modified: write.saturating_sub(1),
            };
            if write % 50 == 0 {
                let table = segments(policy.group_count(), write);
                without_memory(name, "drawing the groups", || {
                    policy.begin(&table, SEGMENT_BLOCKS, write);
                });
                let victim = &table[(write % SEGMENTS) as usize];
                without_memory(name, "a victim", || policy.note_cleaning(victim, write));
            }
            let group =
                without_memory(name, "the group of a block", || policy.group(&candidate, write));
            assert!(group.0 < policy.group_count(), "{name}");
            let history = match (candidate.cleaning, candidate.history) {
                (true, Some(history)) => {
                    without_memory(name, "a move", || policy.note_move(history, write));
                    history
                }
                (_, history) => without_memory(name, "a write", || {
                    let after = policy.history(history, write);
                    policy.note_write(history, Some(after), write);
                    after
                }),
            };
            histories[block as usize] = Some((history, group));
            if write % 1000 == 0 {
                without_memory(name, "saving and restoring", || {
                    state.clear();
                    policy.save(&mut state);
                    policy.restore(&state);
                });
            }
        }
    }
}

#[test]
fn victim_policies_do_not_allocate() {
    for name in VICTIM_POLICIES {
        let mut policy = victim_policy(name, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a name");
        let policy: &mut dyn VictimPolicy = policy.as_mut();
        let mut state = Vec::with_capacity(1 << 20);
        for round in 0..100 {
            let (table, now) = (segments(4, round), round * 200);
            without_memory(name, "before a choice", || policy.begin(&table, SEGMENT_BLOCKS, now));
            for entry in &table {
                without_memory(name, "a segment's score", || {
                    policy.score(entry, SEGMENT_BLOCKS, now)
                });
                without_memory(name, "a death", || policy.note_death(entry, now));
            }
            without_memory(name, "saving and restoring", || {
                state.clear();
                policy.save(&mut state);
                policy.restore(&state);
            });
        }
    }
}

/// Words that name locks, clocks, threads, files and the environment in the source.
const OUTSIDE: &[&str] = &[
    "std::time",
    "SystemTime",
    "Instant",
    "clock_gettime",
    "std::sync",
    "parking_lot",
    "Mutex",
    "RwLock",
    "Atomic",
    "thread",
    "std::fs",
    "std::env",
    "std::io",
];

#[test]
fn policies_neither_lock_nor_read_a_clock() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut waiting = vec![sources.join("policy"), sources.join("policy.rs")];
    let mut read = 0;
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            waiting.extend(paths.collect::<Vec<PathBuf>>());
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (no, line) in (1..).zip(code) {
            let found = OUTSIDE.iter().find(|word| line.contains(**word));
            assert_eq!(found, None, "{}, line {no} of code: {line}", path.display());
        }
        read += 1;
    }
    assert!(read > 10, "the sources of the policies have moved");
}

/// The greedy policy, with a count of the scored segments.
#[derive(Default)]
struct CountingGreedy(AtomicU32);

impl SavedState for CountingGreedy {
    const STATE_LEN_MAX: usize = 0;
}

impl VictimPolicy for CountingGreedy {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn score(&self, segment: &UsageEntry, segment_blocks: u32, now: u32) -> f64 {
        self.0.fetch_add(1, Ordering::Relaxed);
        Greedy.score(segment, segment_blocks, now)
    }
}

/// Regression: 64 unfit segments with the highest scores, such as the victims of a round, made every
/// further choice score all segments.
#[test]
fn many_unfit_segments_do_not_make_a_choice_score_all() {
    const COUNT: u32 = 16 << 10;
    const TIME: (u32, u32) = (SEGMENT_BLOCKS, 2);
    let sealed = |live_blocks| UsageEntry {
        live_blocks,
        state: SegmentState::Sealed,
        head: Head::of(Group(0)),
        ..UsageEntry::NEW
    };
    let mut entries = vec![sealed(SEGMENT_BLOCKS / 2); COUNT as usize];
    entries[..256].fill(sealed(1));
    let mut policy = CountingGreedy::default();
    let mut tournament = Tournament::new(entries.len());
    tournament.refresh(&mut policy, &entries, &[], TIME);
    let before = policy.0.load(Ordering::Relaxed);
    let best = tournament.best(&policy, &entries, TIME, |segment| segment >= 256);
    let scored = policy.0.load(Ordering::Relaxed) - before;
    assert_eq!(best, Some(256));
    assert!(scored < COUNT / 16, "{scored} segments scored");
}
