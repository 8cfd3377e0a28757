//! Properties of every policy in the table of names, for any input.

use proptest::prelude::*;

use super::{
    Candidate, GROUPING_POLICIES, GROUPS_MAX, GroupingPolicy, VICTIM_POLICIES,
    default_victim_policy, grouping_policy, victim_policy,
};
use crate::format::{Group, Head, History, SegmentState, UsageEntry};

const SEGMENTS: u32 = 600;
const SEGMENT_BLOCKS: u32 = 512;
const BLOCKS: u64 = 600 * 512;

fn made(name: &str) -> Box<dyn GroupingPolicy> {
    grouping_policy(name, None, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("the name is in the list")
}

fn histories() -> impl Strategy<Value = Option<History>> {
    prop::option::of(
        (any::<u16>(), any::<u32>()).prop_map(|(w, m)| History { writes: w, modified: m }),
    )
}

fn segments() -> impl Strategy<Value = Vec<UsageEntry>> {
    let states = prop::sample::select(vec![
        SegmentState::Clean,
        SegmentState::Open,
        SegmentState::Sealed,
        SegmentState::Drained,
        SegmentState::Bad,
    ]);
    let segment = (states, 0..=SEGMENT_BLOCKS, 0..9u8, any::<u32>(), any::<u32>(), any::<u32>());
    let segment =
        segment.prop_map(|(state, live_blocks, group, writes, opened, sealed)| UsageEntry {
            live_blocks,
            state,
            head: Head(group),
            write_count_sum: u64::from(writes),
            modified_sum: u64::from(opened) * u64::from(live_blocks),
            opened,
            sealed,
            stamp: 0,
            erases: 0,
        });
    prop::collection::vec(segment, 0..40)
}

/// One call to a policy.
#[derive(Clone, Debug)]
enum PolicyEvent {
    Begin(Vec<UsageEntry>),
    Write(Option<History>),
    Delete(Option<History>),
    Move(History),
    Clean(Vec<UsageEntry>),
}

fn steps() -> impl Strategy<Value = Vec<(PolicyEvent, u32)>> {
    let step = prop_oneof![
        segments().prop_map(PolicyEvent::Begin),
        histories().prop_map(PolicyEvent::Write),
        histories().prop_map(PolicyEvent::Delete),
        (any::<u16>(), any::<u32>())
            .prop_map(|(w, m)| PolicyEvent::Move(History { writes: w, modified: m })),
        segments().prop_map(PolicyEvent::Clean),
    ];
    prop::collection::vec((step, prop_oneof![0..3u32, 0..1u32 << 14]), 0..40)
}

fn candidate(history: Option<History>, cleaning: bool, now: u32) -> Candidate {
    Candidate {
        ino: 1,
        block: 2,
        history,
        group: history.map(|history| Group((history.writes % 9) as u8)),
        cleaning,
        file_write_count: u64::from(now),
        file_modified: now / 2,
    }
}

/// Applies the events to a policy, checks its groups and histories, and returns the time at the end.
fn apply(policy: &mut dyn GroupingPolicy, steps: &[(PolicyEvent, u32)]) -> u32 {
    let mut now = 0u32;
    for (step, later) in steps {
        now = now.saturating_add(*later);
        match step {
            PolicyEvent::Begin(segments) => policy.begin(segments, SEGMENT_BLOCKS, now),
            PolicyEvent::Write(before) => {
                assert!(
                    policy.group(&candidate(*before, false, now), now).0 < policy.group_count()
                );
                let after = policy.history(*before, now);
                assert_eq!(after.modified, now);
                assert!(after.write_count() >= 1);
                policy.note_write(*before, Some(after), now);
            }
            PolicyEvent::Delete(before) => policy.note_write(*before, None, now),
            PolicyEvent::Move(history) => {
                assert!(
                    policy.group(&candidate(Some(*history), true, now), now).0
                        < policy.group_count()
                );
                policy.note_move(*history, now);
            }
            PolicyEvent::Clean(segments) => {
                segments.iter().for_each(|segment| policy.note_cleaning(segment, now));
            }
        }
    }
    now
}

#[test]
fn every_name_makes_the_policy_of_that_name() {
    for name in GROUPING_POLICIES {
        for groups in [None, Some(0), Some(1), Some(3), Some(8), Some(255)] {
            let policy = grouping_policy(name, groups, 1, 1, 1).expect("the name is in the list");
            assert_eq!(policy.name(), name);
            assert!((1..=GROUPS_MAX).contains(&policy.group_count()), "{name} {groups:?}");
        }
        assert!(VICTIM_POLICIES.contains(&default_victim_policy(name)));
    }
    assert_eq!(grouping_policy("lifetime", None, 1, 1, 1).expect("an old name").name(), "sfs");
    assert_eq!(default_victim_policy("lifetime"), "index");
    for name in VICTIM_POLICIES {
        assert_eq!(victim_policy(name, 1, 1, 1).expect("the name is in the list").name(), name);
    }
    assert!(grouping_policy("", None, 1, 1, 1).is_none() && victim_policy("", 1, 1, 1).is_none());
}

/// A state of a mount with more groups, or of a hostile image, led to groups that the policy does not have: their
/// segments were not counted, and accepted writes could not be synced.
#[test]
fn a_state_with_more_groups_is_restored_within_fewer() {
    for name in GROUPING_POLICIES {
        let made = |groups| {
            grouping_policy(name, Some(groups), SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a name")
        };
        let mut state = Vec::new();
        made(GROUPS_MAX).save(&mut state);
        // Read as `f32`, the bytes are numbers between 8 and 32; read as `f64`, numbers above 100,000. Eight
        // neighbouring numbers are all different.
        for (at, byte) in state.iter_mut().enumerate() {
            *byte = if at % 4 == 3 { 0x41 } else { (at * 37) as u8 };
        }
        for groups in 1..=3 {
            let mut policy = made(groups);
            policy.restore(&state);
            for writes in 0..4096u16 {
                let history = Some(History { writes: 16 * writes, modified: u32::from(writes) });
                for cleaning in [false, true] {
                    let group = policy.group(&candidate(history, cleaning, 1 << 20), 1 << 20);
                    assert!(group.0 < policy.group_count(), "{name}, {groups}: {group:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn groups_and_histories_are_in_range(steps in steps()) {
        for name in GROUPING_POLICIES {
            apply(&mut *made(name), &steps);
        }
    }

    #[test]
    fn a_saved_grouping_policy_is_restored(steps in steps(), history in histories()) {
        for name in GROUPING_POLICIES {
            let mut policy = made(name);
            let now = apply(&mut *policy, &steps);
            let mut state = Vec::new();
            policy.save(&mut state);
            prop_assert!(state.len() <= policy.state_len_max(), "{}", name);
            let mut other = made(name);
            other.restore(&state);
            let mut again = Vec::new();
            other.save(&mut again);
            prop_assert!(state == again, "{}", name);
            let group = other.group(&candidate(history, false, now), now);
            prop_assert!(group.0 < other.group_count());
        }
    }

    #[test]
    fn a_saved_victim_policy_is_restored(segments in segments(), now in 0..1u32 << 20) {
        for name in VICTIM_POLICIES {
            let made = || victim_policy(name, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a name");
            let mut policy = made();
            policy.begin(&segments, SEGMENT_BLOCKS, now / 2);
            for segment in segments.iter().filter(|segment| segment.live_blocks > 0) {
                policy.note_death(segment, now);
            }
            policy.begin(&segments, SEGMENT_BLOCKS, now);
            let mut state = Vec::new();
            policy.save(&mut state);
            prop_assert!(state.len() <= policy.state_len_max(), "{}", name);
            let mut other = made();
            other.restore(&state);
            let mut again = Vec::new();
            other.save(&mut again);
            prop_assert!(state == again, "{}", name);
        }
    }

    #[test]
    fn any_saved_state_is_tolerated(state in prop::collection::vec(any::<u8>(), 0..200), fill in any::<u8>(),
                          steps in steps()) {
        let mut filled = Vec::new();
        for name in GROUPING_POLICIES {
            let mut policy = made(name);
            policy.save(&mut filled);
            policy.restore(&state);
            policy.restore(&vec![fill; filled.len()]);
            filled.clear();
            apply(&mut *policy, &steps);
        }
        for name in VICTIM_POLICIES {
            let mut policy = victim_policy(name, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a name");
            policy.save(&mut filled);
            policy.restore(&state);
            policy.restore(&vec![fill; filled.len()]);
            filled.clear();
            policy.begin(&[], SEGMENT_BLOCKS, u32::MAX);
        }
    }

    #[test]
    fn the_score_of_a_victim_is_never_negative(segments in segments(), now in any::<u32>()) {
        for name in VICTIM_POLICIES {
            let mut policy = victim_policy(name, SEGMENTS, SEGMENT_BLOCKS, BLOCKS).expect("a name");
            policy.begin(&segments, SEGMENT_BLOCKS, now / 2);
            for segment in &segments {
                if segment.live_blocks > 0 {
                    policy.note_death(segment, now / 2);
                }
            }
            policy.begin(&segments, SEGMENT_BLOCKS, now);
            for segment in &segments {
                let score = policy.score(segment, SEGMENT_BLOCKS, now);
                prop_assert!(score >= 0.0, "{name}: {score} of {segment:?} at {now}");
                prop_assert_eq!(score == f64::INFINITY, segment.live_blocks == 0, "{} {:?}", name, segment);
            }
        }
    }
}
