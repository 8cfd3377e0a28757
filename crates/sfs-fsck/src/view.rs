//! A tree as it would be: what a checkpoint holds, and edits over it.
//!
//! Owns: the order in which the two are read, and a few nodes that were needed lately.
//! Promises: ascending items; memory for the edits and a bounded number of nodes.
//! Never: writes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use sfs_core::format::{
    DecodeError, Key, Mapping, MappingRun, NodeHeader, NodePointer, RUN_BLOCKS, run_key,
};
use sfs_device::Block;

use crate::edits::Edits;
use crate::node::{self, Content};
use crate::progress::{Listener, Stage, tell};
use crate::volume::Volume;
use crate::walk::{Keys, LEVEL_MAX, Leaf, Part, Walk, any_contains};
use crate::{Findings, FsckError};

/// Nodes that are kept for the next search.
const NODES_MAX: usize = 1024;

/// Nodes between two reports of progress.
const REPORT_EVERY: u64 = 256;

/// Where a tree begins: its root, and the root's level.
pub(crate) type Root = (NodePointer, u8);

/// Who is told what a tree holds.
pub(crate) trait Visitor {
    /// A node on the device.
    fn node(&mut self, pointer: NodePointer);
    /// An item on the device, whatever becomes of it.
    fn old_item(&mut self, key: &Key, value: &[u8]);
    /// An item, with all edits.
    fn item(&mut self, key: &Key, value: &[u8]);
}

/// A tree with edits.
pub(crate) struct View<'a> {
    pub(crate) volume: &'a Volume<'a>,
    root: Option<Root>,
    pub(crate) edits: Edits,
    /// Keys that cannot be read, ascending, once that is known: edits say what is left of them.
    lost: Vec<Keys>,
    nodes: RefCell<HashMap<u64, Box<Block>>>,
}

impl<'a> View<'a> {
    /// The tree below `root`; without one it has only what edits put there.
    pub(crate) fn new(volume: &'a Volume<'a>, root: Option<Root>) -> Self {
        let nodes = RefCell::default();
        Self { volume, root, edits: Edits::default(), lost: Vec::new(), nodes }
    }

    /// From now on `lost` keys are nothing to be found any more.
    pub(crate) fn give_up(&mut self, lost: Vec<Keys>) {
        self.lost = lost;
    }

    /// The keys that were given up.
    pub(crate) fn lost(&self) -> &[Keys] {
        &self.lost
    }

    /// A walk over the nodes that hold keys `within`.
    pub(crate) fn parts(&self, within: Keys) -> Option<Walk<'a>> {
        self.root.map(|root| Walk::new(self.volume, root, within))
    }

    /// Shows everything to `visitor`, and gives the keys that cannot be read. A tree has about
    /// `node_count` nodes, if that is not 0.
    pub(crate) fn show(
        &self,
        visitor: &mut dyn Visitor,
        node_count: u64,
        findings: &mut Findings,
        listener: Listener<'_>,
    ) -> Result<Vec<Keys>, FsckError> {
        let (mut lost, mut done) = (Vec::new(), 0);
        let Some(mut walk) = self.parts(Keys::ALL) else {
            self.show_lost(visitor, &Keys::ALL);
            return Ok(vec![Keys::ALL]);
        };
        // What was given up has been said once.
        let mut known = Findings::default();
        let findings = if self.lost.is_empty() { findings } else { &mut known };
        while let Some(part) = walk.next(findings) {
            match part {
                Part::Inner(pointer) => visitor.node(pointer),
                Part::Leaf(leaf) => {
                    visitor.node(leaf.pointer);
                    self.show_leaf(visitor, &leaf);
                }
                Part::Lost(keys) => {
                    self.show_lost(visitor, &keys);
                    lost.push(keys);
                }
            }
            done += 1;
            if done % REPORT_EVERY == 0 {
                tell(listener, Stage::Tree, done, node_count)?;
            }
        }
        Ok(lost)
    }

    fn show_leaf(&self, visitor: &mut dyn Visitor, leaf: &Leaf) {
        let items = leaf.items();
        items.iter().for_each(|(key, value)| visitor.old_item(key, value));
        self.edits.merge(&leaf.keys, &items, |key, value| visitor.item(key, value));
    }

    fn show_lost(&self, visitor: &mut dyn Visitor, keys: &Keys) {
        self.edits.merge(keys, &[], |key, value| visitor.item(key, value));
    }

    /// Calls `each` for the items of `keys`.
    pub(crate) fn each(&self, keys: Keys, mut each: impl FnMut(&Key, &[u8])) {
        let mut inside = |key: &Key, value: &[u8]| {
            if keys.contains(key) {
                each(key, value);
            }
        };
        let mut ignored = Findings::default();
        let Some(mut walk) = self.parts(keys) else {
            return self.edits.merge(&keys, &[], inside);
        };
        while let Some(part) = walk.next(&mut ignored) {
            match part {
                Part::Inner(_) => {}
                Part::Leaf(leaf) => self.edits.merge(&leaf.keys, &leaf.items(), &mut inside),
                Part::Lost(lost) => self.edits.merge(&lost, &[], &mut inside),
            }
        }
    }

    /// The value of the item `key`. What cannot be read is not there.
    pub(crate) fn get(&self, key: &Key) -> Option<Box<[u8]>> {
        match self.edits.get(key) {
            Some(value) => value.map(Into::into),
            None if any_contains(&self.lost, key) => None,
            None => self.find(key),
        }
    }

    fn find(&self, key: &Key) -> Option<Box<[u8]>> {
        let (mut pointer, mut level) = self.root.filter(|(_, level)| *level <= LEVEL_MAX)?;
        loop {
            let block = self.node(pointer)?;
            let header = NodeHeader::verify(&block.0, self.volume.id(), pointer).ok()?;
            let content = node::decode(&block.0, header, pointer.address).ok()?;
            match content {
                _ if header.level != level => return None,
                Content::Leaf(items) => {
                    let index = items.binary_search_by_key(key, |(key, _)| *key).ok()?;
                    return Some(items[index].1.into());
                }
                Content::Inner(children) => {
                    let index = children.partition_point(|(low, _)| low <= key);
                    pointer = children[index.checked_sub(1)?].1;
                    level = level.checked_sub(1)?;
                }
            }
        }
    }

    fn node(&self, pointer: NodePointer) -> Option<Box<Block>> {
        let mut nodes = self.nodes.borrow_mut();
        if let Some(block) = nodes.get(&pointer.address) {
            return Some(block.clone());
        }
        self.volume.in_segments(pointer.address).then_some(())?;
        let block = self.volume.read(pointer.address, &mut Findings::default())?;
        if nodes.len() >= NODES_MAX {
            nodes.clear();
        }
        nodes.insert(pointer.address, block.clone());
        Some(block)
    }

    /// Forgets the mappings of `blocks` of `ino`.
    pub(crate) fn unmap(
        &mut self,
        ino: u64,
        blocks: RangeInclusive<u32>,
    ) -> Result<(), DecodeError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let (low, last) = (run_key(ino, *blocks.start()), run_key(ino, *blocks.end()));
        let mut keys = Vec::new();
        self.each(Keys { low, high: Some(last.next()) }, |key, _| keys.push(*key));
        for key in keys {
            let first = key.offset as u32 * RUN_BLOCKS;
            self.change_run(key, |run| {
                for block in (first..=first + (RUN_BLOCKS - 1)).filter(|at| blocks.contains(at)) {
                    run.set(block, None);
                }
            })?;
        }
        Ok(())
    }

    /// Maps `block` of `ino`, or not any more.
    pub(crate) fn map(
        &mut self,
        ino: u64,
        block: u32,
        mapping: Option<Mapping>,
    ) -> Result<(), DecodeError> {
        self.change_run(run_key(ino, block), |run| {
            run.set(block, mapping);
        })
    }

    fn change_run(
        &mut self,
        key: Key,
        change: impl FnOnce(&mut MappingRun),
    ) -> Result<(), DecodeError> {
        let mut run = match self.get(&key) {
            Some(value) => MappingRun::decode(&value, &key, self.volume.superblock.tolerance())?,
            None => MappingRun::default(),
        };
        change(&mut run);
        if run.is_empty() {
            self.edits.delete(key);
        } else {
            let mut value = Vec::new();
            run.encode(&mut value);
            self.edits.put(key, value);
        }
        Ok(())
    }
}
