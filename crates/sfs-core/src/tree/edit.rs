//! Changes to the tree: put, remove, and the splits and merges from a leaf up to the root.
//!
//! A change finds all nodes of its path before it modifies the first one. A merge with a sibling that is not in
//! memory is skipped.

use super::descent::DescentPath;
use super::node::{MERGED_LEN_MAX, Node};
use super::node_cache::is_dirty;
use super::{NodeNotCached, Tree, VerifiedNode};
use crate::format::{Key, NodePointer, Tolerance, VALUE_LEN_MAX};

/// One node on the path from the root.
struct PathNode {
    /// Number in the node cache.
    number: u64,
    /// Index of the next child on the path; 0 in the last node.
    index: usize,
}

impl Tree {
    /// Inserts the item `key`, or replaces its value.
    ///
    /// # Panics
    ///
    /// If no item can have the kind of `key`, or `value` is longer than [`VALUE_LEN_MAX`] bytes.
    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), NodeNotCached> {
        assert!(Tolerance::Newer.allows_kind(key.kind), "{key:?} is of no kind");
        assert!(value.len() <= VALUE_LEN_MAX, "the value of {key:?} has {} bytes", value.len());
        let (mut path, leaf) = self.path_to(key)?;
        self.make_path_dirty(&mut path);
        for node in &path[..leaf] {
            if node.index == 0 {
                self.cache.node_mut(node.number).lower_first_key(key);
            }
        }
        if let Some(right) = self.cache.node_mut(path[leaf].number).put(key, value) {
            self.grow(&path[..leaf], right);
        }
        Ok(())
    }

    /// Returns the value of the item `key` for a change in place; the leaf becomes dirty.
    pub fn get_mut(&mut self, key: &Key) -> Result<Option<&mut [u8]>, NodeNotCached> {
        let (mut path, leaf) = self.path_to(key)?;
        let Ok(index) = self.cache.node(path[leaf].number).find(key) else {
            return Ok(None);
        };
        self.make_path_dirty(&mut path);
        Ok(Some(self.cache.node_mut(path[leaf].number).value_mut(index)))
    }

    /// Removes the item `key` and returns whether it existed.
    pub fn remove(&mut self, key: &Key) -> Result<bool, NodeNotCached> {
        let (mut path, leaf) = self.path_to(key)?;
        let Ok(index) = self.cache.node(path[leaf].number).find(key) else {
            return Ok(false);
        };
        self.make_path_dirty(&mut path);
        self.cache.node_mut(path[leaf].number).remove_item(index);
        if leaf > 0 && self.cache.node(path[leaf].number).len() == 0 {
            self.emptied.push(*key);
        } else {
            self.shrink(&path);
        }
        Ok(true)
    }

    /// Removes empty leaves; to be called after a set of changes. Within the set, empty leaves
    /// stay: the leaf that takes over their keys may not be in memory, and a prepared key has to
    /// stay prepared.
    pub fn prune(&mut self) {
        for key in std::mem::take(&mut self.emptied) {
            let Ok((path, leaf)) = self.path_to(&key) else { continue };
            let number = path[leaf].number;
            // If the leaf was removed already, its key leads to another leaf, which has items or
            // waits to be removed, too.
            if leaf > 0 && self.cache.node(number).len() == 0 {
                self.shrink(&path);
            }
        }
    }

    /// Makes the node at `address` dirty, so that the next write-out moves it. Returns whether the tree refers to
    /// `node` there. The cleaner empties a segment of nodes with this.
    pub fn relocate_node(
        &mut self,
        node: &VerifiedNode,
        address: u64,
    ) -> Result<bool, NodeNotCached> {
        if node.level() > self.level {
            return Ok(false);
        }
        let key = node.first_key().unwrap_or(Key::MIN);
        let (mut path, descent) = self.path_above(&key, node.level())?;
        let descent = descent.to_missing();
        if descent.pointer.address != address {
            return Ok(false);
        }
        if descent.pointer == node.pointer() {
            let (pointer, node) = node.clone().into_parts();
            self.cache.add_clean(pointer, node);
        }
        self.cache.find(&descent)?;
        path.push(PathNode { number: address, index: 0 });
        self.make_path_dirty(&mut path);
        Ok(true)
    }

    /// Adds a leaf that is on the device at `pointer` after all others. Its key `first` is above every key of the
    /// tree.
    ///
    /// # Panics
    ///
    /// If the tree is empty.
    pub fn append_leaf(&mut self, first: &Key, pointer: NodePointer) -> Result<(), NodeNotCached> {
        let (mut path, descent) = self.path_above(&Key::MAX, 0)?;
        if path.is_empty() {
            self.cache.follow(&descent)?;
            path.push(PathNode { number: self.root.address, index: 0 });
            self.make_path_dirty(&mut path);
            self.grow_root(first, pointer);
            return Ok(());
        }
        self.make_path_dirty(&mut path);
        let (parent, above) = path.split_last().expect("a path that is not empty");
        let node = self.cache.node_mut(parent.number);
        if let Some(right) = node.add_child(parent.index + 1, first, pointer) {
            self.grow(above, right);
        }
        Ok(())
    }

    /// Returns the path to the leaf of `key`, and the index of the leaf in it.
    fn path_to(&self, key: &Key) -> Result<(Vec<PathNode>, usize), NodeNotCached> {
        let (mut path, descent) = self.path_above(key, 0)?;
        self.cache.follow(&descent)?;
        path.push(PathNode { number: descent.pointer.address, index: 0 });
        let last = path.len() - 1;
        Ok((path, last))
    }

    /// Returns the nodes above the node of `key` at `level`, and the pointer to that node.
    fn path_above(
        &self,
        key: &Key,
        level: u8,
    ) -> Result<(Vec<PathNode>, DescentPath<'_>), NodeNotCached> {
        let mut path = Vec::with_capacity(usize::from(self.level) + 1);
        let mut descent = self.root_path();
        while descent.level > level {
            let node = self.cache.follow(&descent)?;
            let index = node.route(key);
            path.push(PathNode { number: descent.pointer.address, index });
            descent = descent.below(node, index);
        }
        Ok((path, descent))
    }

    fn make_path_dirty(&mut self, path: &mut [PathNode]) {
        for depth in 0..path.len() {
            if is_dirty(path[depth].number) {
                continue;
            }
            let pointer = self.cache.make_dirty(path[depth].number);
            path[depth].number = pointer.address;
            match path[..depth].last() {
                Some(parent) => {
                    self.cache.node_mut(parent.number).set_child(parent.index, pointer);
                }
                None => self.root = pointer,
            }
        }
    }

    /// Inserts `right` after the node below `parents`, and divides parents that are full.
    fn grow(&mut self, parents: &[PathNode], mut right: Node) {
        for parent in parents.iter().rev() {
            let key = right.first_key().expect(DIVIDED);
            let pointer = self.cache.add_dirty(right);
            let node = self.cache.node_mut(parent.number);
            match node.add_child(parent.index + 1, &key, pointer) {
                Some(next) => right = next,
                None => return,
            }
        }
        let key = right.first_key().expect(DIVIDED);
        let pointer = self.cache.add_dirty(right);
        self.grow_root(&key, pointer);
    }

    /// Puts a new root above the root, with `pointer` as its second child.
    fn grow_root(&mut self, key: &Key, pointer: NodePointer) {
        let left_key = self.cache.node(self.root.address).first_key().expect(DIVIDED);
        self.level = self.level.checked_add(1).expect("the tree is higher than any volume needs");
        let mut root = Node::new(self.level);
        root.add_child(0, &left_key, self.root);
        root.add_child(1, key, pointer);
        self.root = self.cache.add_dirty(root);
    }

    /// Removes or merges the nodes of `path` that have become small, from the leaf up.
    fn shrink(&mut self, path: &[PathNode]) {
        for depth in (1..path.len()).rev() {
            let (parents, number) = (&path[..depth], path[depth].number);
            let parent = &path[depth - 1];
            if self.cache.node(number).len() == 0 {
                self.cache.remove(number);
                self.cache.node_mut(parent.number).remove_child(parent.index);
            } else if !self.merge(parents, number) {
                break;
            }
        }
        self.lower_root();
    }

    /// Merges the dirty node `number`, below `parents`, with the node after or before it if that one is in memory and
    /// both are small. Returns whether it did.
    fn merge(&mut self, parents: &[PathNode], number: u64) -> bool {
        if self.cache.node(number).used_len() > MERGED_LEN_MAX {
            return false;
        }
        let (parent, above) = parents.split_last().expect("a node that is not the root");
        let end = self.end_below(above);
        let after = self.merge_pair(parent.number, parent.index, end);
        after || parent.index > 0 && self.merge_pair(parent.number, parent.index - 1, end)
    }

    /// Returns the first key after the range of the node below `parents`.
    fn end_below(&self, parents: &[PathNode]) -> Option<Key> {
        parents.iter().rev().find_map(|parent| {
            let node = self.cache.node(parent.number);
            (parent.index + 1 < node.len()).then(|| node.key(parent.index + 1))
        })
    }

    /// Merges the children `index` and `index + 1` of the dirty node `parent`, whose range ends at `end`. Returns
    /// whether both were in memory and small enough.
    fn merge_pair(&mut self, parent: u64, index: usize, end: Option<Key>) -> bool {
        let node = self.cache.node(parent);
        if index + 1 >= node.len() {
            return false;
        }
        let (left, right) = (node.child_at(index, end), node.child_at(index + 1, end));
        let (level, key) = (left.level, node.key(index + 1));
        match (self.cache.find(&left), self.cache.find(&right)) {
            (Ok(left), Ok(right)) if left.used_len() + right.used_len() <= MERGED_LEN_MAX => {}
            _ => return false,
        }
        let right = self.cache.remove(right.pointer.address);
        let left = self.cache.dirtied(left.pointer);
        match level {
            0 => self.cache.node_mut(left.address).absorb_items(&right),
            _ => self.cache.node_mut(left.address).absorb_children(&right, &key),
        }
        let node = self.cache.node_mut(parent);
        node.set_child(index, left);
        node.remove_child(index + 1);
        true
    }

    /// Removes dirty roots without a child or with one that is in memory. The new root is dirty, so that a tree
    /// without dirty nodes still has its old root.
    fn lower_root(&mut self) {
        while self.level > 0 {
            let root = self.cache.node(self.root.address);
            let child = match root.len() {
                0 => None,
                1 => Some(root.child_at(0, None)),
                _ => return,
            };
            if child.is_some_and(|child| self.cache.find(&child).is_err()) {
                return;
            }
            self.cache.remove(self.root.address);
            self.level = child.map_or(0, |child| child.level);
            self.root = match child {
                Some(child) => self.cache.dirtied(child.pointer),
                None => self.cache.add_dirty(Node::new(0)),
            };
        }
    }
}

/// Panic message for a node that must have a first key.
const DIVIDED: &str = "both parts of a divided node have items";
