//! The cache of nodes in memory, clean and dirty, and the addresses that dirty nodes have left.
//!
//! A clean node is stored under its address, a dirty one under a number with the highest bit set. A
//! node is found only through a pointer with its checksum that leads to its keys, so a late or
//! forged node counts as missing. Eviction uses the clock algorithm.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::descent::DescentPath;
use super::node::Node;
use super::{Keys, NodeNotCached};
use crate::format::NodePointer;

/// Bit set in the number of a dirty node. The number of a clean node is its address.
const DIRTY: u64 = 1 << 63;

/// Returns whether `address`, in a pointer in memory, is the number of a dirty node.
pub(super) fn is_dirty(address: u64) -> bool {
    address & DIRTY != 0
}

/// Returns whether a node can be at `address` on a device.
pub(super) fn is_on_device(address: u64) -> bool {
    address != 0 && !is_dirty(address)
}

/// The cache of nodes; see the module documentation.
#[derive(Default)]
pub(super) struct NodeCache {
    nodes: FxHashMap<u64, Node>,
    dirty_count: usize,
    next_dirty: u64,
    old_addresses: FxHashSet<u64>,
    /// Clock queue: addresses of clean nodes, the next candidate for eviction first. Some of the nodes are no
    /// longer cached.
    clock: VecDeque<u64>,
    /// Addresses of clean nodes that were read along with others, the first one first. Those that are used move to `clock`.
    read_along: VecDeque<u64>,
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

    /// Returns the node that `descent` leads to.
    pub(super) fn follow(&self, descent: &DescentPath<'_>) -> Result<&Node, NodeNotCached> {
        self.find_at(descent.pointer, descent.level, || descent.keys())
    }

    /// Returns the node that `missing` describes.
    pub(super) fn find(&self, missing: &NodeNotCached) -> Result<&Node, NodeNotCached> {
        self.find_at(missing.pointer, missing.level, || missing.keys)
    }

    fn find_at(
        &self,
        pointer: NodePointer,
        level: u8,
        keys: impl Fn() -> Option<Keys>,
    ) -> Result<&Node, NodeNotCached> {
        match self.get(pointer) {
            // A dirty node was made here: its keys need no check.
            Some(node)
                if node.level == level
                    && (is_dirty(pointer.address) || node.belongs_to(keys())) =>
            {
                node.mark_used();
                Ok(node)
            }
            // The tree has taken the node from this address. In a forged tree another entry may
            // lead to the same address. The node must not come back through that entry, or a caller
            // that removes items would never terminate.
            _ if self.old_addresses.contains(&pointer.address) => {
                Err(NodeNotCached { pointer, level, keys: Some(Keys::NONE) })
            }
            _ => Err(NodeNotCached { pointer, level, keys: keys() }),
        }
    }

    /// Returns the node at `pointer` without a check of its keys. Does not count as use.
    pub(super) fn get(&self, pointer: NodePointer) -> Option<&Node> {
        self.nodes.get(&pointer.address).filter(|node| node.checksum == pointer.checksum)
    }

    /// Returns the node `number`, which was found before.
    pub(super) fn node(&self, number: u64) -> &Node {
        self.nodes.get(&number).expect(FOUND_BEFORE)
    }

    /// Returns the dirty node `number`.
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

    /// Adds a node that was read along with another, unless it is in memory, or the tree has left its address.
    pub(super) fn add_neighbour(&mut self, pointer: NodePointer, node: Node) {
        let NodePointer { address, .. } = pointer;
        if self.old_addresses.contains(&address) || self.nodes.contains_key(&address) {
            return;
        }
        self.nodes.insert(address, node);
        compact(&mut self.read_along, &self.nodes);
        self.read_along.push_back(address);
    }

    /// Adds a new dirty node and returns the pointer to it.
    pub(super) fn add_dirty(&mut self, mut node: Node) -> NodePointer {
        let number = DIRTY | self.next_dirty;
        self.next_dirty += 1;
        self.dirty_count += 1;
        node.checksum = 0;
        self.nodes.insert(number, node);
        NodePointer { address: number, checksum: 0 }
    }

    /// Makes the clean node at `address` dirty and returns the new pointer to it.
    pub(super) fn make_dirty(&mut self, address: u64) -> NodePointer {
        let node = self.remove(address);
        self.add_dirty(node)
    }

    /// Makes the node at `pointer` dirty if it is clean, and returns the pointer to the dirty node.
    pub(super) fn dirtied(&mut self, pointer: NodePointer) -> NodePointer {
        if is_dirty(pointer.address) { pointer } else { self.make_dirty(pointer.address) }
    }

    /// Removes a node from the tree; the address of a clean node becomes an old address.
    pub(super) fn remove(&mut self, number: u64) -> Node {
        if is_dirty(number) {
            self.dirty_count -= 1;
        } else {
            self.old_addresses.insert(number);
        }
        self.nodes.remove(&number).expect(FOUND_BEFORE)
    }

    /// Makes the dirty node `number`, which is sealed, a clean node at `address`.
    pub(super) fn make_clean(&mut self, number: u64, address: u64) {
        let node = self.remove(number);
        self.nodes.insert(address, node);
        self.enqueue(address);
    }

    /// Clears the old addresses after a write-out.
    pub(super) fn forget_old_addresses(&mut self) {
        self.old_addresses = FxHashSet::default();
    }

    /// Drops clean nodes until `budget` are left, but not `root`. A node used since the clock's last pass gets a
    /// second chance. Nodes that were read along and are not used yet go first, as soon as they are more than a part of
    /// what dirty nodes leave of the budget.
    pub(super) fn evict(&mut self, budget: usize, root: u64) {
        let read_along_max = budget.saturating_sub(self.dirty_count) / READ_ALONG_DIVISOR;
        while self.nodes.len() > budget && self.read_along.len() > read_along_max {
            let Some(address) = self.read_along.pop_front() else { break };
            self.drop_unless_used(address, root);
        }
        for _ in 0..2 * self.clock.len() {
            if self.nodes.len() <= budget {
                return;
            }
            let Some(address) = self.clock.pop_front() else { return };
            self.drop_unless_used(address, root);
        }
    }

    /// Drops the clean node at `address`, if it is in memory, or moves it to the end of the clock queue.
    fn drop_unless_used(&mut self, address: u64, root: u64) {
        let Some(node) = self.nodes.get_mut(&address) else { return };
        if node.take_used() || address == root {
            self.clock.push_back(address);
        } else {
            self.nodes.remove(&address);
        }
    }

    fn enqueue(&mut self, address: u64) {
        compact(&mut self.clock, &self.nodes);
        self.clock.push_back(address);
    }
}

/// Takes the addresses of nodes that are no longer in memory out of a long queue.
fn compact(queue: &mut VecDeque<u64>, nodes: &FxHashMap<u64, Node>) {
    if queue.len() > 2 * nodes.len() + QUEUE_SLACK {
        let mut seen = FxHashSet::default();
        queue.retain(|address| nodes.contains_key(address) && seen.insert(*address));
    }
}

/// Part of the room for clean nodes that nodes may have that were read along and not used yet, as a divisor.
const READ_ALONG_DIVISOR: usize = 8;

/// Number of addresses that a queue may hold beyond twice the number of cached nodes before it is compacted.
const QUEUE_SLACK: usize = 64;

/// Panic message for a node that must be in memory.
const FOUND_BEFORE: &str = "a node that was found is in memory until it is evicted";
