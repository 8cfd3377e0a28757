//! Comparison of the tree with an ordered map. A map of blocks serves as the device.

#[path = "tree/flash.rs"]
mod flash;
#[path = "tree/trial.rs"]
mod trial;

use std::ops::Bound;

use flash::VOLUME;
use proptest::prelude::*;
use sfs_core::format::{ItemKind, Key, NodeHeader, Tolerance, VALUE_LEN_MAX};
use sfs_core::tree::{NodeNotCached, PlannedChange, PlannedValue, Tree, VerifiedNode};
use sfs_device::BLOCK_SIZE;
use trial::{TreeStep, Trial, any_step, key, value};

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, cases: 256, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_tree_equals_an_ordered_map(steps in prop::collection::vec(any_step(), 1..150)) {
        let mut trial = Trial::new();
        trial.flash.along_every = 2;
        steps.iter().for_each(|step| trial.step(step));
        trial.finish();
    }
}

/// A forecast that is far above what happens takes space from users.
#[test]
fn a_forecast_is_exact_for_items_that_keep_their_length() {
    let mut trial = Trial::new();
    (0..20_000).for_each(|n| trial.put(n, value(300, 0)));
    trial.write_out();
    for step in [1, 7, 500] {
        let changes = (0..20_000).step_by(step).map(|n| (n, PlannedValue::Len(300)));
        let changes: Vec<_> =
            changes.map(|(n, value)| PlannedChange { key: key(n), value }).collect();
        let most = trial.tree.dirtied_by(changes);
        (0..20_000).step_by(step).for_each(|n| trial.put(n, value(300, 1)));
        assert_eq!(trial.tree.dirty_count(), most, "every {step}th item");
        trial.write_out();
    }
    // Longer values: at most one division for each leaf, as each gets one.
    let far_apart = (0..20_000).step_by(50);
    let changes = far_apart.clone().map(|n| (n, PlannedValue::Len(1000)));
    let changes: Vec<_> = changes.map(|(n, value)| PlannedChange { key: key(n), value }).collect();
    let (most, count) = (trial.tree.dirtied_by(changes), far_apart.clone().count());
    far_apart.for_each(|n| trial.put(n, value(1000, 1)));
    let now = trial.tree.dirty_count();
    assert!((now..now + count / 5).contains(&most), "{most} instead of {now}, {count} items");
    trial.finish();
}

#[test]
fn sequential_items_fill_their_nodes() {
    let mut trial = Trial::new();
    (0..20_000).for_each(|n| trial.put(n, value(16, 0)));
    // 108 items of 37 bytes fill a leaf, and 139 leaves an inner node.
    let leaves = 20_000_usize.div_ceil((BLOCK_SIZE - NodeHeader::LEN) / 37);
    assert_eq!(trial.tree.node_count(), leaves + leaves.div_ceil(139) + 1);
    assert_eq!(trial.tree.height(), 2);
    trial.finish();
}

#[test]
fn an_emptied_tree_is_one_leaf() {
    let mut trial = Trial::new();
    (0..20_000).for_each(|n| trial.put(n * 7919 % 20_000, value(40, 0)));
    trial.write_out();
    (0..20_000).for_each(|n| trial.remove(n * 4391 % 20_000));
    trial.tree.prune();
    assert_eq!((trial.tree.height(), trial.tree.node_count()), (0, 1));
    trial.write_out();
    assert_eq!(trial.flash.blocks.len(), 1);
    trial.finish();
}

#[test]
fn a_prepared_key_stays_prepared_until_prune() {
    let mut trial = Trial::new();
    // A leaf has room for three of these items, so every third item begins a leaf.
    (0..90).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    let (root, level) = trial.write_out();
    trial.tree = Tree::open(root, level);
    trial.flash.run(&mut trial.tree, |tree| tree.prepare(&key(31)));
    let cached = trial.tree.node_count();
    for n in 30..33 {
        assert_eq!(trial.tree.remove(&key(n)), Ok(true));
        trial.model.remove(&key(n));
    }
    assert_eq!(trial.tree.get(&key(31)), Ok(None));
    assert_eq!(trial.tree.remove(&key(31)), Ok(false));
    assert_eq!(trial.tree.put(&key(31), b"again"), Ok(()));
    trial.model.insert(key(31), b"again".to_vec());
    assert_eq!(trial.tree.node_count(), cached);
    trial.finish();
}

#[test]
fn searches_pass_all_leaves_that_wait_for_prune() {
    let mut trial = Trial::new();
    (0..900).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    // Leaves of one item are not merged if each shrinks while the others are not in memory.
    for n in (0..900).step_by(3) {
        trial.step(&TreeStep::Reopen);
        trial.step(&TreeStep::RemoveRun { n, count: 2 });
    }
    (5..895).step_by(3).for_each(|n| trial.remove(n));
    assert!(trial.tree.node_count() > 290, "empty leaves stay until prune");
    (0..900).step_by(50).for_each(|n| trial.find(n));
    trial.tree.prune();
    assert!(trial.tree.node_count() < 10);
    trial.finish();
}

#[test]
#[should_panic(expected = "a tree is pruned before it is written out")]
fn a_tree_that_waits_for_prune_is_not_written_out() {
    let mut tree = Tree::new();
    (0..9).for_each(|n| tree.put(&key(n), &[0; VALUE_LEN_MAX]).unwrap());
    (0..3).for_each(|n| assert_eq!(tree.remove(&key(n)), Ok(true)));
    tree.write_out(VOLUME, 1, || panic!("an address is requested"));
}

#[test]
fn a_tree_without_dirty_nodes_is_written_as_nothing() {
    let mut trial = Trial::new();
    (0..5000).for_each(|n| trial.put(n, value(40, 0)));
    let root = trial.write_out();
    let written = trial.tree.write_out(VOLUME, 2, || panic!("no node needs an address"));
    assert_eq!((written.root, written.level, written.pointers.len()), (root.0, root.1, 0));
}

#[test]
fn a_node_inserted_late_is_ignored() {
    let mut trial = Trial::new();
    trial.put(1, value(40, 1));
    let (pointer, level) = trial.write_out();
    let late = NodeNotCached { pointer, level, keys: None };
    let node = VerifiedNode::decode(
        &*trial.flash.blocks[&pointer.address],
        VOLUME,
        &late,
        Tolerance::Exact,
    )
    .unwrap();
    trial.put(1, value(40, 2));
    trial.write_out();
    trial.put(1, value(40, 3));
    let (root, level) = trial.write_out();
    assert_eq!(root.address, pointer.address, "the address is in use again");
    trial.tree = Tree::open(root, level);
    trial.tree.insert(&late, node);
    trial.find(1);
    trial.finish();
}

#[test]
fn the_root_and_used_nodes_are_evicted_last() {
    let mut trial = Trial::new();
    (0..30).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    trial.write_out();
    // This call clears the marks of use and evicts no node.
    trial.tree.evict(11);
    assert_eq!(trial.tree.node_count(), 11);
    trial.tree.evict(10);
    assert_eq!(trial.tree.node_count(), 10);
    trial.tree.get(&key(15)).expect("the node is in memory");
    trial.tree.evict(2);
    assert_eq!(trial.tree.node_count(), 2);
    trial.tree.get(&key(15)).expect("the node was used last");
    trial.tree.evict(0);
    assert_eq!(trial.tree.node_count(), 1);
    assert_eq!(trial.tree.get(&key(15)).map_err(|missing| missing.level), Err(0));
    trial.finish();
}

/// Returns a tree of which only the path to item 0 is in memory, and the leaf of item 60 with its neighbours.
fn with_neighbours() -> Trial {
    let mut trial = Trial::new();
    (0..90).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    trial.step(&TreeStep::Reopen);
    trial.flash.run(&mut trial.tree, |tree| tree.prepare(&key(0)));
    let missing = trial.tree.prepare(&key(60)).expect_err("a leaf that is not in memory");
    trial.flash.along_every = 1;
    trial.flash.load(&mut trial.tree, missing);
    trial.flash.along_every = 0;
    assert!(trial.flash.neighbours >= 8, "{} neighbours", trial.flash.neighbours);
    trial
}

#[test]
fn unused_neighbours_are_evicted_first() {
    let mut trial = with_neighbours();
    let alone = trial.tree.node_count() - trial.flash.neighbours - 1;
    trial.tree.prepare(&key(60)).expect("in memory");
    // One of them is used, and stays with the nodes that were asked for.
    trial.tree.prepare(&key(63)).expect("a neighbour");
    trial.tree.evict(alone + 2);
    assert_eq!(trial.tree.node_count(), alone + 2);
    for n in [0, 60, 63] {
        trial.tree.prepare(&key(n)).expect("it was asked for");
    }
    trial.finish();
}

/// Regression: the share of neighbours was one of all nodes. With many dirty ones it was more than the room for clean nodes, and those
/// that were asked for were dropped.
#[test]
fn unused_neighbours_take_no_room_beside_dirty_nodes() {
    let mut trial = with_neighbours();
    (1000..1120).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    let dirty = trial.tree.dirty_count();
    assert!(dirty >= 40, "{dirty} dirty nodes");
    trial.tree.prepare(&key(60)).expect("in memory");
    trial.tree.evict(dirty + 3);
    trial.tree.prepare(&key(60)).expect("it was asked for");
    trial.finish();
}

/// Returns a tree of two leaves with three items each, of which only the root and the first leaf are in memory.
fn half_open() -> Trial {
    let mut trial = Trial::new();
    (0..6).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    trial.step(&TreeStep::Reopen);
    trial.flash.run(&mut trial.tree, |tree| tree.prepare(&key(0)));
    assert_eq!((trial.tree.height(), trial.tree.node_count()), (1, 2));
    trial
}

#[test]
fn a_root_stays_while_its_only_child_is_not_in_memory() {
    let mut trial = half_open();
    (0..3).for_each(|n| trial.remove(n));
    trial.tree.prune();
    assert_eq!((trial.tree.height(), trial.tree.node_count()), (1, 1));
    (0..6).for_each(|n| trial.find(n));
    trial.finish();
}

#[test]
fn a_new_root_is_dirty() {
    let mut trial = half_open();
    trial.flash.run(&mut trial.tree, |tree| tree.prepare(&key(3)));
    (0..3).for_each(|n| trial.remove(n));
    trial.tree.prune();
    assert_eq!((trial.tree.height(), trial.tree.dirty_count()), (0, 1));
    trial.finish();
}

#[test]
fn a_range_does_not_read_beyond_its_end() {
    let trial = half_open();
    let count = |from: u64, end: Bound<Key>| {
        let found = trial.tree.range((Bound::Included(key(from)), end));
        found.collect::<Result<Vec<_>, _>>().map(|items| items.len())
    };
    // The second leaf begins with 3.
    assert_eq!(count(1, Bound::Included(key(2))), Ok(2));
    assert_eq!(count(1, Bound::Excluded(key(3))), Ok(2));
    assert_eq!(count(4, Bound::Included(key(3))), Ok(0));
    assert_eq!(count(1, Bound::Included(key(3))).map_err(|missing| missing.level), Err(0));
    assert_eq!(count(1, Bound::Unbounded).map_err(|missing| missing.level), Err(0));
}

#[test]
fn no_item_follows_the_last_key() {
    let mut tree = Tree::new();
    let last = Key::new(u64::MAX, ItemKind::Usage, u64::MAX);
    tree.put(&last, b"x").unwrap();
    assert_eq!(tree.range((Bound::Excluded(last), Bound::Unbounded)).count(), 0);
    assert_eq!(tree.range((Bound::Excluded(Key::MAX), Bound::Unbounded)).count(), 0);
}

#[test]
fn a_shorter_value_frees_its_space() {
    let mut trial = Trial::new();
    (0..3).for_each(|n| trial.put(n, value(VALUE_LEN_MAX, 0)));
    (0..108).for_each(|n| trial.put(n, value(16, 1)));
    assert_eq!(trial.tree.height(), 0);
    trial.finish();
}
