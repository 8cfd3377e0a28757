//! Comparison of the tree with an ordered map. A map of blocks serves as the device.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use sfs_core::format::{ItemKind, Key, NodeHeader, NodePointer, Tolerance, VALUE_LEN_MAX};
use sfs_core::tree::{
    Neighbourhood, NodeNotCached, PlannedChange, PlannedValue, Tree, VerifiedNode,
};
use sfs_device::{BLOCK_SIZE, Block};

const VOLUME: u64 = 7;

fn key(n: u64) -> Key {
    Key::new(n >> 7, ItemKind::decode((n >> 5 & 3) as u8 + 1).unwrap(), n & 31)
}

fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add(at as u8)).collect()
}

/// A device for nodes. Freed addresses are reused, the oldest first.
struct Flash {
    blocks: HashMap<u64, Arc<Block>>,
    free: Vec<u64>,
    end: u64,
    loads: usize,
    /// Every load whose number this divides reads neighbours along; 0 for none.
    along_every: usize,
    /// Number of nodes that were read along.
    neighbours: usize,
}

impl Flash {
    fn new() -> Self {
        Self {
            blocks: HashMap::new(),
            free: Vec::new(),
            end: 100,
            loads: 0,
            along_every: 0,
            neighbours: 0,
        }
    }

    fn reads_along(&self) -> bool {
        self.along_every > 0 && self.loads.is_multiple_of(self.along_every)
    }

    fn load(&mut self, tree: &mut Tree, missing: NodeNotCached) {
        self.loads += 1;
        assert!(self.loads < 1_000_000, "the tree never stops asking for {missing:?}");
        let block =
            self.blocks.get(&missing.pointer.address).expect("a node at an address that was freed");
        let node = VerifiedNode::decode(&**block, VOLUME, &missing, Tolerance::Exact)
            .expect("a sound node");
        let around = tree.neighbourhood(&missing, 16, 16).filter(|_| self.reads_along());
        tree.insert(&missing, node);
        let Some(Neighbourhood { blocks, neighbours }) = around else { return };
        assert!(blocks.contains(&missing.pointer.address) && blocks.end - blocks.start <= 16);
        for neighbour in neighbours {
            let address = neighbour.pointer.address;
            assert!(blocks.contains(&address) && address != missing.pointer.address);
            let block = self.blocks.get(&address).expect("a child of a node of the tree");
            let node = VerifiedNode::decode(&**block, VOLUME, &neighbour, Tolerance::Exact);
            tree.insert_neighbour(&neighbour, node.expect("a sound node"));
            self.neighbours += 1;
        }
    }

    /// Repeats `act`, and loads missing nodes, until it succeeds.
    fn run<T>(
        &mut self,
        tree: &mut Tree,
        act: impl Fn(&mut Tree) -> Result<T, NodeNotCached>,
    ) -> T {
        loop {
            let before = (tree.dirty_count(), tree.node_count(), tree.height());
            match act(tree) {
                Ok(result) => return result,
                Err(missing) => {
                    assert_eq!(before, (tree.dirty_count(), tree.node_count(), tree.height()));
                    self.load(tree, missing);
                }
            }
        }
    }

    fn write_out(&mut self, tree: &mut Tree, checkpoint: u64) -> (NodePointer, u8) {
        let old: Vec<u64> = tree.old_addresses().collect();
        let dirty_count = tree.dirty_count();
        let written = tree.write_out(VOLUME, checkpoint, || {
            self.free.pop().unwrap_or_else(|| {
                self.end += 1;
                self.end
            })
        });
        assert_eq!(written.pointers.len(), dirty_count);
        assert_eq!((tree.dirty_count(), tree.old_addresses().count()), (0, 0));
        for address in old {
            self.blocks.remove(&address).expect("an address is released once");
            self.free.insert(0, address);
        }
        for (pointer, block) in written.pointers.into_iter().zip(written.blocks) {
            assert!(self.blocks.insert(pointer.address, Arc::new(block)).is_none());
        }
        assert_eq!(
            self.reachable(written.root, written.level),
            self.blocks.keys().copied().collect()
        );
        (written.root, written.level)
    }

    fn reachable(&self, root: NodePointer, level: u8) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut todo = vec![NodeNotCached { pointer: root, level, keys: None }];
        while let Some(missing) = todo.pop() {
            let address = missing.pointer.address;
            let node =
                VerifiedNode::decode(&*self.blocks[&address], VOLUME, &missing, Tolerance::Exact)
                    .unwrap();
            assert!(found.insert(address), "two paths lead to {missing:?}");
            assert!(level == 0 || node.first_key().is_some(), "{missing:?} is empty");
            todo.extend(node.children());
        }
        found
    }
}

#[derive(Clone, Debug)]
enum TreeStep {
    Put { n: u64, len: usize, seed: u8 },
    PutRun { n: u64, count: u64, len: usize },
    GetMut { n: u64, seed: u8 },
    Remove { n: u64 },
    RemoveRun { n: u64, count: u64 },
    Find { n: u64 },
    Scan { n: u64, count: usize },
    Relocate { nth: usize },
    Prune,
    WriteOut,
    Evict { budget: usize },
    Reopen,
}

const SPAN: u64 = 6000;

fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(16), 1..80usize, 200..400usize, 1000..=VALUE_LEN_MAX]
}

fn any_step() -> impl Strategy<Value = TreeStep> {
    let n = || 0..SPAN;
    prop_oneof![
        8 => (n(), any_len(), any::<u8>()).prop_map(|(n, len, seed)| TreeStep::Put { n, len, seed }),
        4 => (n(), 1..400u64, any_len()).prop_map(|(n, count, len)| TreeStep::PutRun { n, count, len }),
        3 => (n(), any::<u8>()).prop_map(|(n, seed)| TreeStep::GetMut { n, seed }),
        6 => n().prop_map(|n| TreeStep::Remove { n }),
        3 => (n(), 1..600u64).prop_map(|(n, count)| TreeStep::RemoveRun { n, count }),
        8 => n().prop_map(|n| TreeStep::Find { n }),
        1 => (n(), 1..300usize).prop_map(|(n, count)| TreeStep::Scan { n, count }),
        2 => any::<usize>().prop_map(|nth| TreeStep::Relocate { nth }),
        3 => Just(TreeStep::Prune),
        2 => Just(TreeStep::WriteOut),
        3 => (0..12usize).prop_map(|budget| TreeStep::Evict { budget }),
        1 => Just(TreeStep::Reopen),
    ]
}

/// Tree, its device, and an ordered map that must have the same items as the tree.
struct Trial {
    tree: Tree,
    flash: Flash,
    model: BTreeMap<Key, Vec<u8>>,
    checkpoint: u64,
}

impl Trial {
    fn new() -> Self {
        let (tree, flash, model) = (Tree::new(), Flash::new(), BTreeMap::new());
        Self { tree, flash, model, checkpoint: 0 }
    }

    fn put(&mut self, n: u64, value: Vec<u8>) {
        self.flash.run(&mut self.tree, |tree| tree.prepare(&key(n)));
        self.tree.put(&key(n), &value).expect("prepared");
        self.model.insert(key(n), value);
    }

    fn remove(&mut self, n: u64) {
        let was = self.flash.run(&mut self.tree, |tree| tree.remove(&key(n)));
        assert_eq!(was, self.model.remove(&key(n)).is_some());
    }

    fn find(&mut self, n: u64) {
        let (tree, key) = (&mut self.tree, key(n));
        let owned = |item: Option<(Key, &[u8])>| item.map(|(key, value)| (key, value.to_vec()));
        let got = self.flash.run(tree, |tree| Ok(tree.get(&key)?.map(<[u8]>::to_vec)));
        assert_eq!(got.as_ref(), self.model.get(&key));
        let got = self.flash.run(tree, |tree| Ok(owned(tree.first_from(&key)?)));
        assert_eq!(got, self.model.range(key..).next().map(|(key, value)| (*key, value.clone())));
        let got = self.flash.run(tree, |tree| Ok(owned(tree.last_before(&key)?)));
        let expected = self.model.range(..key).next_back();
        assert_eq!(got, expected.map(|(key, value)| (*key, value.clone())));
    }

    fn scan(&mut self, from: Key, count: usize) {
        let last = self.model.range(from..).take(count).last().map_or(from, |(key, _)| *key);
        let (tree, model) = (&mut self.tree, &self.model);
        let mut scan = |keys: (Bound<Key>, Bound<Key>)| {
            let found: Vec<(Key, Vec<u8>)> = self.flash.run(tree, |tree| {
                let owned = |(key, value): (Key, &[u8])| (key, value.to_vec());
                tree.range(keys).map(|item| item.map(owned)).collect()
            });
            let expected = model.range(keys).map(|(key, value)| (*key, value.clone()));
            assert_eq!(found, expected.collect::<Vec<_>>());
        };
        scan((Bound::Included(from), Bound::Included(last)));
        scan((Bound::Included(from), Bound::Excluded(last)));
        if from < last {
            scan((Bound::Excluded(from), Bound::Excluded(last)));
        }
    }

    fn get_mut(&mut self, n: u64, seed: u8) {
        let (key, model) = (key(n), &mut self.model);
        let len = self.flash.run(&mut self.tree, |tree| {
            Ok(tree.get_mut(&key)?.map(|value| {
                value.fill(seed);
                value.len()
            }))
        });
        assert_eq!(len, model.get(&key).map(Vec::len));
        if let Some(value) = model.get_mut(&key) {
            value.fill(seed);
        }
    }

    /// Relocates a node, as the cleaner relocates a node that it finds in a segment.
    fn relocate(&mut self, nth: usize) {
        let mut addresses: Vec<u64> = self.flash.blocks.keys().copied().collect();
        addresses.sort_unstable();
        if addresses.is_empty() {
            return;
        }
        let address = addresses[nth % addresses.len()];
        let block = Arc::clone(&self.flash.blocks[&address]);
        let pointer = NodePointer { address, checksum: NodeHeader::checksum_of(&block.0) };
        let header = NodeHeader::verify(&block.0, VOLUME, pointer).unwrap();
        let missing = NodeNotCached { pointer, level: header.level, keys: None };
        let node = VerifiedNode::decode(&*block, VOLUME, &missing, Tolerance::Exact).unwrap();
        let is_live = !self.tree.old_addresses().any(|old| old == address);
        let relocated = self.flash.run(&mut self.tree, |tree| tree.relocate_node(&node, address));
        assert_eq!(relocated, is_live);
        assert!(self.tree.old_addresses().any(|old| old == address));
    }

    fn write_out(&mut self) -> (NodePointer, u8) {
        self.tree.prune();
        self.checkpoint += 1;
        self.flash.write_out(&mut self.tree, self.checkpoint)
    }

    /// Returns the changes of items that a step makes.
    fn planned(&self, step: &TreeStep) -> Vec<PlannedChange> {
        let of = |n: u64, value| PlannedChange { key: key(n), value };
        let put = |n: u64, len: usize| {
            let old = self.model.get(&key(n)).map_or(0, Vec::len);
            // Both ways to tell the same.
            match n % 2 {
                0 => of(n, PlannedValue::Len(len)),
                _ => of(n, PlannedValue::Longer(len.saturating_sub(old))),
            }
        };
        match *step {
            TreeStep::Put { n, len, .. } => vec![put(n, len)],
            // In another order than that of the keys.
            TreeStep::PutRun { n, count, len } => {
                (n..n + count).rev().map(|n| put(n, len)).collect()
            }
            TreeStep::Remove { n } => vec![of(n, PlannedValue::Gone)],
            TreeStep::RemoveRun { n, count } => {
                (n..n + count).map(|n| of(n, PlannedValue::Gone)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn step(&mut self, step: &TreeStep) {
        let planned = self.planned(step);
        let most = self.tree.dirty_count() + self.tree.dirtied_by(planned.clone());
        self.act(step);
        if !planned.is_empty() {
            let now = self.tree.dirty_count();
            assert!(now <= most, "{step:?} has made {now} nodes dirty, instead of {most} at most");
        }
        assert!(self.tree.is_coherent(), "a node is outside its range of keys");
    }

    fn act(&mut self, step: &TreeStep) {
        match *step {
            TreeStep::Put { n, len, seed } => self.put(n, value(len, seed)),
            TreeStep::PutRun { n, count, len } => {
                (n..n + count).for_each(|n| self.put(n, value(len, n as u8)));
            }
            TreeStep::GetMut { n, seed } => self.get_mut(n, seed),
            TreeStep::Remove { n } => self.remove(n),
            TreeStep::RemoveRun { n, count } => (n..n + count).for_each(|n| self.remove(n)),
            TreeStep::Find { n } => self.find(n),
            TreeStep::Scan { n, count } => self.scan(key(n), count),
            TreeStep::Relocate { nth } => self.relocate(nth),
            TreeStep::Prune => self.tree.prune(),
            TreeStep::WriteOut => drop(self.write_out()),
            TreeStep::Evict { budget } => {
                self.tree.evict(budget);
                let most = budget.max(self.tree.dirty_count() + 1);
                assert!(self.tree.node_count() <= most);
            }
            TreeStep::Reopen => {
                let (root, level) = self.write_out();
                self.tree = Tree::open(root, level);
                assert_eq!((self.tree.node_count(), self.tree.height()), (0, level));
            }
        }
    }

    fn finish(mut self) {
        self.scan(Key::MIN, usize::MAX);
        self.step(&TreeStep::Reopen);
        self.scan(Key::MIN, usize::MAX);
        assert!(!self.flash.run(&mut self.tree, |tree| Ok(tree.get(&Key::MAX)?.is_some())));
    }
}

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
