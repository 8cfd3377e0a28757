//! Tree of a checkpoint with edits over it.
//!
//! A check sees the tree with the log past its checkpoint, and a repair sees the tree that it will
//! write. Items come in ascending order. Memory holds the edits and a bounded number of nodes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use sfs_core::format::{
    DecodeError, Key, Mapping, MappingRun, NodeHeader, NodePointer, RUN_BLOCKS, run_key,
};
use sfs_device::Block;

use crate::error::FsckError;
use crate::findings::Findings;
use crate::progress::{self, ProgressListener, Stage};
use crate::read::edits::TreeEdits;
use crate::read::key_range::{KeyRange, any_contains};
use crate::read::node::{self, NodeContent};
use crate::read::volume::VolumeReader;
use crate::read::walk::{LEVEL_MAX, Leaf, TreePart, TreeWalk};

/// Maximum number of nodes that are cached for lookups.
const NODES_MAX: usize = 1024;

/// Number of nodes between two reports of progress.
const REPORT_INTERVAL_NODES: u64 = 256;

/// Pointer to a root node, and its level.
pub(crate) type TreeRoot = (NodePointer, u8);

/// Receiver of the nodes and items of a tree.
pub(crate) trait TreeVisitor {
    /// Receives a node on the device.
    fn node(&mut self, pointer: NodePointer);
    /// Receives an item on the device, before any edit.
    fn old_item(&mut self, key: &Key, value: &[u8]);
    /// Receives an item, with all edits applied.
    fn item(&mut self, key: &Key, value: &[u8]);
}

/// Tree of a checkpoint with edits over it.
pub(crate) struct OverlayTree<'a> {
    pub(crate) volume: &'a VolumeReader<'a>,
    root: Option<TreeRoot>,
    pub(crate) edits: TreeEdits,
    /// Ranges of keys, ascending, that are known to be lost. Only edits restore items in them.
    lost: Vec<KeyRange>,
    nodes: RefCell<HashMap<u64, Box<Block>>>,
}

impl<'a> OverlayTree<'a> {
    /// Returns the tree below `root`, or without a root the empty tree, with no edits.
    pub(crate) fn new(volume: &'a VolumeReader<'a>, root: Option<TreeRoot>) -> Self {
        let nodes = RefCell::default();
        Self { volume, root, edits: TreeEdits::default(), lost: Vec::new(), nodes }
    }

    /// Declares the keys of `lost` as lost: from now on their unreadable nodes are no findings.
    pub(crate) fn set_lost(&mut self, lost: Vec<KeyRange>) {
        self.lost = lost;
    }

    /// Returns the ranges of [`OverlayTree::set_lost`].
    pub(crate) fn lost(&self) -> &[KeyRange] {
        &self.lost
    }

    /// Returns a walk over the nodes that hold keys `within`, if there is a root.
    pub(crate) fn walk(&self, within: KeyRange) -> Option<TreeWalk<'a>> {
        self.root.map(|root| TreeWalk::new(self.volume, root, within))
    }

    /// Calls `visitor` for all nodes and items, and returns the ranges of unreadable keys. `node_count` is
    /// the approximate number of nodes for the progress, or 0.
    pub(crate) fn visit(
        &self,
        visitor: &mut dyn TreeVisitor,
        node_count: u64,
        findings: &mut Findings,
        listener: ProgressListener<'_>,
    ) -> Result<Vec<KeyRange>, FsckError> {
        let (mut lost, mut done) = (Vec::new(), 0);
        let Some(mut walk) = self.walk(KeyRange::ALL) else {
            self.visit_lost(visitor, &KeyRange::ALL);
            return Ok(vec![KeyRange::ALL]);
        };
        // The walk that found the lost keys has reported their nodes.
        let mut reported = Findings::default();
        let findings = if self.lost.is_empty() { findings } else { &mut reported };
        while let Some(part) = walk.next(findings) {
            match part {
                TreePart::Inner(pointer) => visitor.node(pointer),
                TreePart::Leaf(leaf) => {
                    visitor.node(leaf.pointer);
                    self.visit_leaf(visitor, &leaf);
                }
                TreePart::Lost(range) => {
                    self.visit_lost(visitor, &range);
                    lost.push(range);
                }
            }
            done += 1;
            if done % REPORT_INTERVAL_NODES == 0 {
                progress::report(listener, Stage::Tree, done, node_count)?;
            }
        }
        Ok(lost)
    }

    fn visit_leaf(&self, visitor: &mut dyn TreeVisitor, leaf: &Leaf) {
        let items = leaf.items();
        items.iter().for_each(|(key, value)| visitor.old_item(key, value));
        self.edits.merge(&leaf.range, &items, |key, value| visitor.item(key, value));
    }

    fn visit_lost(&self, visitor: &mut dyn TreeVisitor, range: &KeyRange) {
        self.edits.merge(range, &[], |key, value| visitor.item(key, value));
    }

    /// Calls `each` for the items of `range`, with all edits applied.
    pub(crate) fn each(&self, range: KeyRange, mut each: impl FnMut(&Key, &[u8])) {
        let mut inside = |key: &Key, value: &[u8]| {
            if range.contains(key) {
                each(key, value);
            }
        };
        let mut ignored = Findings::default();
        let Some(mut walk) = self.walk(range) else {
            return self.edits.merge(&range, &[], inside);
        };
        while let Some(part) = walk.next(&mut ignored) {
            match part {
                TreePart::Inner(_) => {}
                TreePart::Leaf(leaf) => self.edits.merge(&leaf.range, &leaf.items(), &mut inside),
                TreePart::Lost(lost) => self.edits.merge(&lost, &[], &mut inside),
            }
        }
    }

    /// Returns the value of the item `key`, with edits applied. An unreadable item does not exist.
    pub(crate) fn get(&self, key: &Key) -> Option<Box<[u8]>> {
        match self.edits.get(key) {
            Some(value) => value.map(Into::into),
            None if any_contains(&self.lost, key) => None,
            None => self.search(key),
        }
    }

    /// Searches the nodes on the device for `key`.
    fn search(&self, key: &Key) -> Option<Box<[u8]>> {
        let (mut pointer, mut level) = self.root.filter(|(_, level)| *level <= LEVEL_MAX)?;
        loop {
            let block = self.node(pointer)?;
            let header = NodeHeader::verify(&block.0, self.volume.id(), pointer).ok()?;
            let content = node::decode(&block.0, header, pointer.address).ok()?;
            match content {
                _ if header.level != level => return None,
                NodeContent::Leaf(items) => {
                    let index = items.binary_search_by_key(key, |(key, _)| *key).ok()?;
                    return Some(items[index].1.into());
                }
                NodeContent::Inner(children) => {
                    let index = children.partition_point(|(low, _)| low <= key);
                    pointer = children[index.checked_sub(1)?].1;
                    level = level.checked_sub(1)?;
                }
            }
        }
    }

    /// Returns the node at `pointer` from the cache, or reads it.
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

    /// Returns the mapping of `block` of `ino`. A run that does not decode maps nothing.
    pub(crate) fn mapping(&self, ino: u64, block: u32) -> Option<Mapping> {
        let key = run_key(ino, block);
        let tolerance = self.volume.superblock.tolerance();
        MappingRun::find(&self.get(&key)?, &key, block, tolerance).ok()?
    }

    /// Unmaps `blocks` of `ino`.
    ///
    /// # Errors
    ///
    /// Decoding error of a mapping run.
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
        self.each(KeyRange { low, high: Some(last.next()) }, |key, _| keys.push(*key));
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

    /// Sets the mapping of `block` of `ino`; `None` unmaps the block.
    ///
    /// # Errors
    ///
    /// Decoding error of a mapping run.
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

    /// Applies `change` to the run `key`, and deletes a run that becomes empty.
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
