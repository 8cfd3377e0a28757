//! Inner nodes: routing of keys to children, insertion and removal of children, splits and merges.
//!
//! Every key is routed to some child; keys below the first entry go to the first child.

use super::node::{ChildEntry, Node, ROOM, count_first};
use super::node_cache::is_dirty;
use super::{Keys, NodeNotCached};
use crate::format::{Key, NodePointer};

/// Maximum number of children of an inner node.
pub(super) const CHILDREN_MAX: usize = ROOM / size_of::<ChildEntry>();

impl Node {
    /// Returns the index of the child for `key`.
    pub(super) fn route(&self, key: &Key) -> usize {
        count_first(self.entries(), |entry| entry.key() <= *key).saturating_sub(1)
    }

    /// Returns the index of the child for the keys right below `key`.
    pub(super) fn route_below(&self, key: &Key) -> usize {
        count_first(self.entries(), |entry| entry.key() < *key).saturating_sub(1)
    }

    /// Returns pointer, level and key range of the child at `index`. The range of this node ends at `end`.
    pub(super) fn child_at(&self, index: usize, end: Option<Key>) -> NodeNotCached {
        let (entry, next) = (&self.entries()[index], self.entries().get(index + 1));
        let keys = Keys { from: entry.key(), end: next.map(ChildEntry::key).or(end) };
        NodeNotCached { pointer: entry.pointer(), level: self.level - 1, keys: Some(keys) }
    }

    /// Returns the key of the child at `index`.
    pub(super) fn key(&self, index: usize) -> Key {
        self.entries()[index].key()
    }

    /// Returns index and number of each dirty child.
    pub(super) fn dirty_children(&self) -> Vec<(usize, u64)> {
        if self.level == 0 {
            return Vec::new();
        }
        let numbers = self.entries().iter().map(|entry| entry.pointer().address).enumerate();
        numbers.filter(|(_, number)| is_dirty(*number)).collect()
    }

    /// Sets the pointer to the child at `index`.
    pub(super) fn set_child(&mut self, index: usize, pointer: NodePointer) {
        let count = self.len();
        self.entries_mut(count)[index].pointer = pointer.encode();
    }

    /// Lowers the first key to `key` if the first key is greater.
    pub(super) fn lower_first_key(&mut self, key: &Key) {
        let first = &mut self.entries_mut(1)[0];
        if *key < first.key() {
            first.key = key.encode();
        }
    }

    /// Adds a child at `index`. A full node is split, and the new right node is returned. If the new child is
    /// the last, the right node gets only that child, so that sequential inserts fill their nodes.
    pub(super) fn add_child(
        &mut self,
        index: usize,
        key: &Key,
        pointer: NodePointer,
    ) -> Option<Node> {
        let count = self.len();
        if count < CHILDREN_MAX {
            self.insert_entry(index, key, pointer);
            return None;
        }
        let mut right = Node::new(self.level);
        if index == count {
            right.insert_entry(0, key, pointer);
            return Some(right);
        }
        let split_at = count / 2;
        right.append_entries(&self.entries()[split_at..]);
        self.item_count = split_at as u16;
        if index <= split_at {
            self.insert_entry(index, key, pointer);
        } else {
            right.insert_entry(index - split_at, key, pointer);
        }
        Some(right)
    }

    /// Removes the child at `index`.
    pub(super) fn remove_child(&mut self, index: usize) {
        let count = self.len();
        self.entries_mut(count).copy_within(index + 1.., index);
        self.item_count -= 1;
    }

    /// Appends the children of the node after this one, whose key in the parent is `key`.
    pub(super) fn absorb_children(&mut self, right: &Node, key: &Key) {
        let joint = self.len();
        self.append_entries(right.entries());
        let count = self.len();
        self.entries_mut(count)[joint].key = key.encode();
    }

    fn append_entries(&mut self, entries: &[ChildEntry]) {
        let count = self.len();
        self.entries_mut(count + entries.len())[count..].copy_from_slice(entries);
        self.item_count += entries.len() as u16;
    }

    fn insert_entry(&mut self, index: usize, key: &Key, pointer: NodePointer) {
        let count = self.len();
        let entries = self.entries_mut(count + 1);
        entries.copy_within(index..count, index + 1);
        entries[index] = ChildEntry { key: key.encode(), pointer: pointer.encode() };
        self.item_count += 1;
    }
}
