use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn key(no: u64) -> ExtentKey {
    ExtentKey { object: 0, no }
}

/// Uses `no` in a cache of `capacity` extents; returns whether it was a hit.
fn access(
    policy: &mut dyn EvictionPolicy,
    cached: &mut HashSet<u64>,
    no: u64,
    capacity: usize,
) -> bool {
    if cached.contains(&no) {
        policy.touch(key(no));
        return true;
    }
    if policy.len() >= capacity {
        let evicted = policy.evict(key(no)).expect("a full cache has an extent");
        assert!(cached.remove(&evicted.no), "only cached extents leave");
    }
    policy.insert(key(no));
    cached.insert(no);
    false
}

fn hits(name: PolicyName, capacity: usize, accesses: impl Iterator<Item = u64>) -> usize {
    let (mut policy, mut cached) = (name.policy(capacity), HashSet::new());
    accesses.filter(|no| access(&mut *policy, &mut cached, *no, capacity)).count()
}

#[test]
fn lru_evicts_the_extent_that_was_used_longest_ago() {
    assert_eq!(hits(PolicyName::Lru, 2, [1, 2, 1, 3, 1, 2].into_iter()), 2, "1 twice, 2 has left");
}

/// A scan over many extents, with fifty among them that are used often: only LRU loses them.
#[test]
fn a_scan_does_not_drive_out_the_used_extents_of_s3_fifo_and_arc() {
    let warm = || (0..150_u64).map(|no| no / 3);
    let mixed = || (0..40_000_u64).map(|no| if no % 4 == 0 { no / 4 % 50 } else { 1000 + no });
    let of = |name| hits(name, 100, warm().chain(mixed())) - 100;
    assert!(of(PolicyName::S3Fifo) > 9_000, "{}", of(PolicyName::S3Fifo));
    assert!(of(PolicyName::Arc) > 9_000, "{}", of(PolicyName::Arc));
    assert!(of(PolicyName::Lru) < 50, "150 other extents come between two uses");
}

#[test]
fn the_flush_level_has_the_extents_that_were_used_longest_ago() {
    let mut policy = PolicyName::Multilevel.policy(80);
    (0..80).for_each(|no| policy.insert(key(no)));
    (0..10).for_each(|no| policy.touch(key(no)));
    let evicted: Vec<u64> =
        std::iter::from_fn(|| policy.evict(key(99))).map(|key| key.no).collect();
    assert_eq!(evicted[..70], (10..80).collect::<Vec<_>>()[..]);
    assert_eq!(evicted[70..], (0..10).collect::<Vec<_>>()[..], "used again");
}

#[test]
fn s3_fifo_evicts_a_used_key_if_there_is_no_other() {
    let mut policy = PolicyName::S3Fifo.policy(30);
    policy.insert(key(1));
    (0..3).for_each(|_| policy.touch(key(1)));
    assert_eq!(policy.evict(key(2)), Some(key(1)));
}

proptest! {
    #[test]
    fn every_policy_keeps_exactly_what_was_inserted_and_not_evicted(
        accesses in proptest::collection::vec((0_u64..60, 0_u8..10), 1..600),
        capacity in 1_usize..40,
    ) {
        for name in PolicyName::ALL {
            let (mut policy, mut cached) = (name.policy(capacity), HashSet::new());
            for (no, action) in &accesses {
                match action {
                    0 => {
                        policy.remove(key(*no));
                        cached.remove(no);
                    }
                    _ => drop(access(&mut *policy, &mut cached, *no, capacity)),
                }
                prop_assert_eq!(policy.len(), cached.len(), "{}", name.name());
            }
            while let Some(evicted) = policy.evict(key(999)) {
                prop_assert!(cached.remove(&evicted.no));
            }
            prop_assert!(cached.is_empty());
        }
    }
}
