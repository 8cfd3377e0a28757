//! The nodes in memory.
//!
//! Owns: which node is resident under which number, which are dirty, and what they leave behind.
//! Promises: a node is found only through a pointer that has its checksum and leads to its keys, so
//! a late or forged node is as good as missing.
//! Never: follows a pointer from one node to another.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::keys::DescentPath;
use super::node::Node;
use super::{Keys, NodeNotCached};
use crate::format::NodePointer;

/// Set in the number of a dirty node. The number of a clean one is its address.
const DIRTY: u64 = 1 << 63;

/// Whether `address`, in a pointer in memory, is the number of a dirty node.
pub(super) fn is_dirty(address: u64) -> bool {
    address & DIRTY != 0
}

/// Whether a node can be at `address` on a device.
pub(super) fn is_on_device(address: u64) -> bool {
    address != 0 && !is_dirty(address)
}

/// The nodes in memory.
#[derive(Default)]
pub(super) struct NodeCache {
    nodes: FxHashMap<u64, Node>,
    dirty_count: usize,
    next_dirty: u64,
    old_addresses: FxHashSet<u64>,
    /// The clock: addresses of clean nodes, the next to be looked at first. Some may have gone.
    clock: VecDeque<u64>,
}

impl NodeCache {
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn dirty_count(&self) -> usize {
        self.dirty_count
    }

    pub(super) fn old_addresses(&self) -> impl Iterator<Item = u64> {
        self.old_addresses.iter().copied()
    }

    pub(super) fn old_count(&self) -> usize {
        self.old_addresses.len()
    }

    /// The node that `way` leads to, if it is in memory.
    pub(super) fn follow(&self, way: &DescentPath<'_>) -> Result<&Node, NodeNotCached> {
        self.find_at(way.pointer, way.level, || way.keys())
    }

    /// The node that is `missing`, if it is not.
    pub(super) fn find(&self, missing: &NodeNotCached) -> Result<&Node, NodeNotCached> {
        self.find_at(missing.pointer, missing.level, || missing.keys)
    }

    fn find_at(
        &self,
        pointer: NodePointer,
        level: u8,
        keys: impl Fn() -> Option<Keys>,
    ) -> Result<&Node, NodeNotCached> {
        match self.resident(pointer) {
            // Dirty nodes are our own.
            Some(node)
                if node.level == level
                    && (is_dirty(pointer.address) || node.belongs_to(keys())) =>
            {
                node.mark_used();
                Ok(node)
            }
            // The tree has taken the node from there. It must not come back through another entry
            // of a forged tree that took over its keys: what is removed would never come to an end.
            _ if self.old_addresses.contains(&pointer.address) => {
                Err(NodeNotCached { pointer, level, keys: Some(Keys::NONE) })
            }
            _ => Err(NodeNotCached { pointer, level, keys: keys() }),
        }
    }

    /// The node at `pointer`, wherever its keys are, if it is in memory. Does not count as use.
    pub(super) fn resident(&self, pointer: NodePointer) -> Option<&Node> {
        self.nodes.get(&pointer.address).filter(|node| node.checksum == pointer.checksum)
    }

    /// The node `number`, which was found before.
    pub(super) fn node(&self, number: u64) -> &Node {
        self.nodes.get(&number).expect(FOUND_BEFORE)
    }

    /// The dirty node `number`.
    pub(super) fn node_mut(&mut self, number: u64) -> &mut Node {
        assert!(is_dirty(number), "a clean node is about to be changed");
        self.nodes.get_mut(&number).expect(FOUND_BEFORE)
    }

    /// Adds a node that was read from the device, unless the tree has left its address.
    pub(super) fn add_clean(&mut self, pointer: NodePointer, node: Node) {
        assert!(is_on_device(pointer.address), "no node can be at {pointer:?}");
        if self.old_addresses.contains(&pointer.address) {
            return;
        }
        if self.nodes.insert(pointer.address, node).is_none() {
            self.enqueue(pointer.address);
        }
    }

    /// Adds a node that is on no device yet, and gives the pointer to it.
    pub(super) fn add_dirty(&mut self, mut node: Node) -> NodePointer {
        let number = DIRTY | self.next_dirty;
        self.next_dirty += 1;
        self.dirty_count += 1;
        node.checksum = 0;
        self.nodes.insert(number, node);
        NodePointer { address: number, checksum: 0 }
    }

    /// Makes the clean node at `address` dirty, and gives the pointer to it.
    pub(super) fn make_dirty(&mut self, address: u64) -> NodePointer {
        let node = self.remove(address);
        self.add_dirty(node)
    }

    /// The pointer to the node at `pointer` once that is dirty.
    pub(super) fn dirtied(&mut self, pointer: NodePointer) -> NodePointer {
        if is_dirty(pointer.address) { pointer } else { self.make_dirty(pointer.address) }
    }

    /// Takes a node out of the tree, with the address that it may have.
    pub(super) fn remove(&mut self, number: u64) -> Node {
        if is_dirty(number) {
            self.dirty_count -= 1;
        } else {
            self.old_addresses.insert(number);
        }
        self.nodes.remove(&number).expect(FOUND_BEFORE)
    }

    /// Makes the dirty node `number`, which is sealed, the clean one at `address`.
    pub(super) fn make_clean(&mut self, number: u64, address: u64) {
        let node = self.remove(number);
        self.nodes.insert(address, node);
        self.enqueue(address);
    }

    /// Says that no node of the last checkpoint is needed any more but those in the tree.
    pub(super) fn forget_old_addresses(&mut self) {
        self.old_addresses = FxHashSet::default();
    }

    /// Drops clean nodes until `budget` are left, those used since the last time later. The node
    /// `root` stays.
    pub(super) fn evict(&mut self, budget: usize, root: u64) {
        for _ in 0..2 * self.clock.len() {
            if self.nodes.len() <= budget {
                return;
            }
            let Some(address) = self.clock.pop_front() else { return };
            let Some(node) = self.nodes.get_mut(&address) else { continue };
            if node.take_used() || address == root {
                self.clock.push_back(address);
            } else {
                self.nodes.remove(&address);
            }
        }
    }

    fn enqueue(&mut self, address: u64) {
        if self.clock.len() > 2 * self.nodes.len() + CLOCK_SLACK {
            let mut seen = FxHashSet::default();
            self.clock.retain(|address| self.nodes.contains_key(address) && seen.insert(*address));
        }
        self.clock.push_back(address);
    }
}

/// Addresses of nodes that have gone, which the clock may keep in any case.
const CLOCK_SLACK: usize = 64;

/// Why a node must be in memory.
const FOUND_BEFORE: &str = "a node that was found is in memory until it is evicted";
