//! A tree beside an ordered map that must have the same items, and the steps that change both.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use sfs_core::format::{ItemKind, Key, NodeHeader, NodePointer, Tolerance, VALUE_LEN_MAX};
use sfs_core::tree::{NodeNotCached, PlannedChange, PlannedValue, Tree, VerifiedNode};

use super::flash::{Flash, VOLUME};

pub(crate) fn key(n: u64) -> Key {
    Key::new(n >> 7, ItemKind::decode((n >> 5 & 3) as u8 + 1).unwrap(), n & 31)
}

pub(crate) fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add(at as u8)).collect()
}

#[derive(Clone, Debug)]
pub(crate) enum TreeStep {
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

pub(crate) const SPAN: u64 = 6000;

pub(crate) fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(16), 1..80usize, 200..400usize, 1000..=VALUE_LEN_MAX]
}

pub(crate) fn any_step() -> impl Strategy<Value = TreeStep> {
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
pub(crate) struct Trial {
    pub(crate) tree: Tree,
    pub(crate) flash: Flash,
    pub(crate) model: BTreeMap<Key, Vec<u8>>,
    pub(crate) checkpoint: u64,
}

impl Trial {
    pub(crate) fn new() -> Self {
        let (tree, flash, model) = (Tree::new(), Flash::new(), BTreeMap::new());
        Self { tree, flash, model, checkpoint: 0 }
    }

    pub(crate) fn put(&mut self, n: u64, value: Vec<u8>) {
        self.flash.run(&mut self.tree, |tree| tree.prepare(&key(n)));
        self.tree.put(&key(n), &value).expect("prepared");
        self.model.insert(key(n), value);
    }

    pub(crate) fn remove(&mut self, n: u64) {
        let was = self.flash.run(&mut self.tree, |tree| tree.remove(&key(n)));
        assert_eq!(was, self.model.remove(&key(n)).is_some());
    }

    pub(crate) fn find(&mut self, n: u64) {
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

    pub(crate) fn scan(&mut self, from: Key, count: usize) {
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

    pub(crate) fn get_mut(&mut self, n: u64, seed: u8) {
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
    pub(crate) fn relocate(&mut self, nth: usize) {
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

    pub(crate) fn write_out(&mut self) -> (NodePointer, u8) {
        self.tree.prune();
        self.checkpoint += 1;
        self.flash.write_out(&mut self.tree, self.checkpoint)
    }

    /// Returns the changes of items that a step makes.
    pub(crate) fn planned(&self, step: &TreeStep) -> Vec<PlannedChange> {
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

    pub(crate) fn step(&mut self, step: &TreeStep) {
        let planned = self.planned(step);
        let most = self.tree.dirty_count() + self.tree.dirtied_by(planned.clone());
        self.act(step);
        if !planned.is_empty() {
            let now = self.tree.dirty_count();
            assert!(now <= most, "{step:?} has made {now} nodes dirty, instead of {most} at most");
        }
        assert!(self.tree.is_coherent(), "a node is outside its range of keys");
    }

    pub(crate) fn act(&mut self, step: &TreeStep) {
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

    pub(crate) fn finish(mut self) {
        self.scan(Key::MIN, usize::MAX);
        self.step(&TreeStep::Reopen);
        self.scan(Key::MIN, usize::MAX);
        assert!(!self.flash.run(&mut self.tree, |tree| Ok(tree.get(&Key::MAX)?.is_some())));
    }
}
