//! Forged trees of nodes that are sound by themselves, but outside their range of keys or reachable twice.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sfs_core::format::{
    Corruption, CorruptionKind, ItemKind, Key, NodeHeader, NodePointer, Tolerance,
};
use sfs_core::tree::{NodeNotCached, Tree, VerifiedNode};
use sfs_device::{BLOCK_SIZE, Block};

const VOLUME: u64 = 7;
const SLOT_LEN: usize = Key::LEN + 4;
const ENTRY_LEN: usize = Key::LEN + NodePointer::LEN;

/// Length of the longest value: three such items fill a leaf.
const BIG: usize = 1280;

fn key(n: u64) -> Key {
    Key::new(5, ItemKind::Mapping, n)
}

/// A device; the first block is at address 1.
#[derive(Default)]
struct Flash {
    blocks: Vec<Block>,
    loads: usize,
}

impl Flash {
    fn add(&mut self, mut bytes: [u8; BLOCK_SIZE], level: u8, count: usize) -> NodePointer {
        let address = self.blocks.len() as u64 + 1;
        let header = NodeHeader { level, item_count: count as u16 };
        let checksum = header.seal(&mut bytes, VOLUME, address, 1);
        self.blocks.push(Block(bytes));
        NodePointer { address, checksum }
    }

    /// Adds a leaf of items, given by their numbers and the lengths of their values.
    fn leaf(&mut self, items: &[(u64, usize)]) -> NodePointer {
        let mut bytes = [0; BLOCK_SIZE];
        let (slots, mut end) = (bytes[NodeHeader::LEN..].chunks_exact_mut(SLOT_LEN), BLOCK_SIZE);
        for (slot, (n, len)) in slots.zip(items) {
            end -= len;
            slot[..Key::LEN].copy_from_slice(&key(*n).encode());
            slot[Key::LEN..Key::LEN + 2].copy_from_slice(&(end as u16).to_le_bytes());
            slot[Key::LEN + 2..].copy_from_slice(&(*len as u16).to_le_bytes());
        }
        self.add(bytes, 0, items.len())
    }

    fn inner(&mut self, level: u8, entries: &[(u64, NodePointer)]) -> NodePointer {
        let mut bytes = [0; BLOCK_SIZE];
        let room = bytes[NodeHeader::LEN..].chunks_exact_mut(ENTRY_LEN);
        for (entry, (n, pointer)) in room.zip(entries) {
            entry[..Key::LEN].copy_from_slice(&key(*n).encode());
            entry[Key::LEN..].copy_from_slice(&pointer.encode());
        }
        self.add(bytes, level, entries.len())
    }

    /// Repeats `act`, and loads missing nodes, until it succeeds or a node is refused.
    fn run<T>(
        &mut self,
        tree: &mut Tree,
        act: impl Fn(&mut Tree) -> Result<T, NodeNotCached>,
    ) -> Result<T, Corruption> {
        loop {
            let missing = match act(tree) {
                Ok(value) => return Ok(value),
                Err(missing) => missing,
            };
            self.loads += 1;
            assert!(self.loads < 10_000, "the tree asks for ever for {missing:?}");
            let block = &self.blocks[missing.pointer.address as usize - 1];
            tree.insert(&missing, VerifiedNode::decode(block, VOLUME, &missing, Tolerance::Exact)?);
        }
    }

    /// Removes the items that a search finds, at most `most`, until none is left or a node is refused. Returns the number
    /// of removed items, and the error.
    fn remove_all(
        &mut self,
        tree: &mut Tree,
        backwards: bool,
        most: usize,
    ) -> (usize, Option<Corruption>) {
        for count in 0..=most {
            let found = self.run(tree, |tree| {
                let item = match backwards {
                    true => tree.last_before(&Key::MAX)?,
                    false => tree.first_from(&Key::MIN)?,
                };
                Ok(item.map(|(key, _)| key))
            });
            let key = match found {
                Ok(Some(key)) => key,
                Ok(None) => return (count, None),
                Err(corruption) => return (count, Some(corruption)),
            };
            assert_eq!(self.run(tree, |tree| tree.remove(&key)), Ok(true), "{key:?}");
            tree.prune();
        }
        panic!("more items were removed than the {most} items of the tree");
    }
}

/// Nodes by level, the leaves first; entries lead to any nodes of the level below.
#[derive(Clone, Debug)]
struct Draft {
    leaves: Vec<BTreeSet<u64>>,
    levels: Vec<Vec<BTreeMap<u64, usize>>>,
}

fn any_draft() -> impl Strategy<Value = Draft> {
    let leaf = prop::collection::btree_set(0..60u64, 0..4);
    let inner = prop::collection::btree_map(0..60u64, any::<usize>(), 1..9);
    let level = prop::collection::vec(inner, 1..5);
    (prop::collection::vec(leaf, 1..10), prop::collection::vec(level, 1..4))
        .prop_map(|(leaves, levels)| Draft { leaves, levels })
}

/// Returns a strategy for trees that are nearly sound: the entries lead to leaves in order, except
/// a few that lead to any leaf.
fn any_nearly_sound_draft() -> impl Strategy<Value = Draft> {
    (1..4u64, 2..9u64, prop::collection::vec((0..9usize, any::<usize>()), 1..4)).prop_map(
        |(len, count, aliases)| {
            let leaves = (0..count).map(|at| (at * len..at * len + len).collect()).collect();
            let mut entries: BTreeMap<u64, usize> =
                (0..count).map(|at| (at * len, at as usize)).collect();
            let keys: Vec<u64> = entries.keys().copied().collect();
            for (from, to) in aliases {
                entries.insert(keys[from % keys.len()], to);
            }
            Draft { leaves, levels: vec![vec![entries]] }
        },
    )
}

fn any_tree() -> impl Strategy<Value = Draft> {
    prop_oneof![any_draft(), any_nearly_sound_draft()]
}

impl Draft {
    fn build(&self) -> (Flash, Tree) {
        let mut flash = Flash::default();
        let big = |items: &BTreeSet<u64>| items.iter().map(|n| (*n, BIG)).collect::<Vec<_>>();
        let mut below: Vec<NodePointer> =
            self.leaves.iter().map(|items| flash.leaf(&big(items))).collect();
        for (level, nodes) in (1..).zip(&self.levels) {
            let lead = |entries: &BTreeMap<u64, usize>| {
                entries.iter().map(|(n, to)| (*n, below[to % below.len()])).collect::<Vec<_>>()
            };
            below = nodes.iter().map(|entries| flash.inner(level, &lead(entries))).collect();
        }
        (flash, Tree::open(below[0], self.levels.len() as u8))
    }

    fn item_count(&self) -> usize {
        self.leaves.iter().map(BTreeSet::len).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None, cases: 2048, ..ProptestConfig::default()
    })]

    #[test]
    fn a_prepared_key_stays_prepared(
        draft in any_tree(),
        puts in prop::collection::vec(0..62u64, 2..5),
    ) {
        let (mut flash, mut tree) = draft.build();
        for n in &puts {
            let _ = flash.run(&mut tree, |tree| tree.put(&key(*n), &[1; BIG]));
        }
        let prepared: Vec<Key> = (0..62)
            .map(key)
            .filter(|key| flash.run(&mut tree, |tree| tree.prepare(key)).is_ok())
            .collect();
        for key in &prepared {
            prop_assert_eq!(tree.put(key, &[2; BIG]), Ok(()));
        }
        for key in &prepared {
            prop_assert_eq!(tree.get(key), Ok(Some(&[2; BIG][..])));
        }
    }

    #[test]
    fn removing_found_items_comes_to_an_end(draft in any_tree(), backwards in any::<bool>()) {
        let (mut flash, mut tree) = draft.build();
        flash.remove_all(&mut tree, backwards, draft.item_count());
    }

    #[test]
    fn a_found_item_can_be_read(draft in any_tree(), ops in prop::collection::vec((0..62u64, 0..3), 0..9)) {
        let (mut flash, mut tree) = draft.build();
        for (n, act) in ops {
            let _ = match act {
                0 => flash.run(&mut tree, |tree| tree.remove(&key(n)).map(drop)),
                _ => flash.run(&mut tree, |tree| tree.put(&key(n), &[1; BIG])),
            };
            tree.prune();
            for n in 0..62 {
                let found = flash.run(&mut tree, |tree| {
                    let after = tree.first_from(&key(n))?.map(|(key, _)| key);
                    let before = tree.last_before(&key(n))?.map(|(key, _)| key);
                    Ok((after, before))
                });
                let Ok((after, before)) = found else { continue };
                prop_assert!(after >= Some(key(n)) || after.is_none());
                prop_assert!(before < Some(key(n)));
                for found in after.into_iter().chain(before) {
                    let got = flash.run(&mut tree, |tree| Ok(tree.get(&found)?.is_some()));
                    prop_assert_eq!(got, Ok(true), "{:?}", found);
                }
            }
        }
    }
}

/// Returns a tree of one item below `levels` nodes, in each of which all entries lead to the same
/// child. The child's keys are above all entries, so the last entry is valid, and after its removal
/// the entry before it.
fn aliased(levels: u8) -> (Flash, Tree) {
    let mut flash = Flash::default();
    let mut below = flash.leaf(&[(1_000_000, 1)]);
    for level in 1..=levels {
        let first = u64::from(levels - level) * 1000;
        let entries: Vec<_> = (first..first + 139).map(|n| (n, below)).collect();
        below = flash.inner(level, &entries);
    }
    (flash, Tree::open(below, levels))
}

fn is_out_of_order(corruption: Corruption) -> bool {
    corruption.kind == CorruptionKind::Order
}

#[test]
fn a_removed_node_does_not_come_back_through_another_entry() {
    let (mut flash, mut tree) = aliased(5);
    let (count, corruption) = flash.remove_all(&mut tree, true, 1);
    assert_eq!(count, 1);
    assert!(corruption.is_some_and(is_out_of_order), "{corruption:?}");
}

#[test]
fn a_walk_visits_an_aliased_node_once() {
    let (mut flash, mut tree) = aliased(4);
    flash.run(&mut tree, |tree| Ok(tree.last_before(&Key::MAX)?.is_some())).expect("the last path");
    let refused = flash.run(&mut tree, |tree| tree.addresses()).map(|addresses| addresses.len());
    assert!(refused.is_err_and(is_out_of_order));
}

#[test]
fn a_leaf_with_items_before_its_entry_is_refused() {
    let mut flash = Flash::default();
    let low = flash.leaf(&[(0, BIG)]);
    // A split in the middle would put the separator 40 after the separator 1000.
    let forged = flash.leaf(&[(20, BIG), (30, BIG), (40, 600), (50, 600), (1600, 0)]);
    let high = flash.leaf(&[(2000, BIG)]);
    let root = flash.inner(1, &[(0, low), (1000, forged), (2000, high)]);
    let mut tree = Tree::open(root, 1);
    assert_eq!(flash.run(&mut tree, |tree| tree.prepare(&key(600))), Ok(()));
    let refused = flash.run(&mut tree, |tree| tree.prepare(&key(1500)));
    assert!(refused.is_err_and(is_out_of_order));
}

#[test]
fn a_leaf_with_items_from_the_next_entry_on_is_refused() {
    let mut flash = Flash::default();
    let forged = flash.leaf(&[(0, BIG), (1000, BIG)]);
    let high = flash.leaf(&[(1000, BIG)]);
    let root = flash.inner(1, &[(0, forged), (1000, high)]);
    // The range of a node's last child ends where the node's range ends.
    let node = flash.inner(1, &[(0, forged)]);
    let top = flash.inner(2, &[(0, node), (1000, root)]);
    for (root, level) in [(root, 1), (top, 2)] {
        let refused = flash.run(&mut Tree::open(root, level), |tree| tree.prepare(&key(0)));
        assert!(refused.is_err_and(is_out_of_order));
    }
}

#[test]
fn an_empty_leaf_below_a_root_is_refused() {
    let mut flash = Flash::default();
    let empty = flash.leaf(&[]);
    let root = flash.inner(1, &[(0, empty)]);
    let refused = flash.run(&mut Tree::open(root, 1), |tree| tree.prepare(&key(0)));
    assert!(refused.is_err_and(|corruption| corruption.kind == CorruptionKind::Length));
    assert_eq!(flash.run(&mut Tree::open(empty, 0), |tree| tree.prepare(&key(0))), Ok(()));
}
