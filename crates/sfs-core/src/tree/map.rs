//! The tree: its root, its nodes in memory, and the descent from the root to a leaf.

use super::descent::DescentPath;
use super::node::Node;
use super::node_cache::NodeCache;
use super::{NodeNotCached, VerifiedNode};
use crate::format::{Key, NodePointer};

/// Tree of items by key. Many threads may search the tree at once.
///
/// The keys below an entry of an inner node are not below the entry's key, and are below the key of
/// the next entry. The first entry of a node also routes the keys below its own; a put of such a
/// key lowers the entry's key. Only a root, and leaves that wait for [`Tree::prune`], may be empty.
///
/// A lookup follows an entry to a clean node only if the node's keys satisfy this rule. The ranges of two
/// entries share no keys, so at most one path leads to each node in memory, in a forged tree too.
pub struct Tree {
    pub(super) root: NodePointer,
    pub(super) level: u8,
    pub(super) cache: NodeCache,
    /// Keys of leaves that became empty and wait for [`Tree::prune`].
    pub(super) emptied: Vec<Key>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// Returns an empty tree: one dirty leaf.
    pub fn new() -> Self {
        let mut cache = NodeCache::default();
        let root = cache.add_dirty(Node::new(0));
        Self { root, level: 0, cache, emptied: Vec::new() }
    }

    /// Returns the tree whose root, at `level`, is on the device at `root`. No node is in memory.
    pub fn open(root: NodePointer, level: u8) -> Self {
        Self { root, level, cache: NodeCache::default(), emptied: Vec::new() }
    }

    /// Adds the node that was missing. Has no effect if another thread has added the node or the
    /// tree has dropped its address.
    ///
    /// # Panics
    ///
    /// If `node` was not decoded for `missing`.
    pub fn insert(&mut self, missing: &NodeNotCached, node: VerifiedNode) {
        let (pointer, node) = node.into_parts();
        assert!(pointer == missing.pointer, "a node is given for {missing:?}, not {pointer:?}");
        assert!(node.level == missing.level, "a node of another level is given for {missing:?}");
        self.cache.add_clean(pointer, node);
    }

    /// Returns the value of the item `key`.
    pub fn get(&self, key: &Key) -> Result<Option<&[u8]>, NodeNotCached> {
        let leaf = self.leaf_of(key)?;
        Ok(leaf.find(key).ok().map(|index| leaf.value(index)))
    }

    /// Checks that every node that `put`, `remove` and `get_mut` of `key` need is in memory. Then
    /// these methods cannot return [`NodeNotCached`] before the next [`Tree::prune`],
    /// [`Tree::evict`] or [`Tree::insert`], whatever other items are put and removed.
    pub fn prepare(&self, key: &Key) -> Result<(), NodeNotCached> {
        self.leaf_of(key).map(|_| ())
    }

    /// Returns the number of nodes that the next write-out writes.
    pub fn dirty_count(&self) -> usize {
        self.cache.dirty_count()
    }

    /// Returns the number of nodes in memory, dirty ones included.
    pub fn node_count(&self) -> usize {
        self.cache.node_count()
    }

    /// Returns the level of the root: 0 for a leaf.
    pub fn height(&self) -> u8 {
        self.level
    }

    /// Returns the addresses that the next write-out frees: those of dirty and removed nodes, each once.
    pub fn old_addresses(&self) -> impl Iterator<Item = u64> {
        self.cache.old_addresses()
    }

    /// Returns the number of [`Tree::old_addresses`].
    pub fn old_count(&self) -> usize {
        self.cache.old_count()
    }

    /// Returns the number of nodes on the device after the next write-out, if there are `count` now.
    pub fn count_after_write_out(&self, count: u64) -> u64 {
        (count + self.dirty_count() as u64).saturating_sub(self.old_count() as u64)
    }

    /// Drops clean nodes that were not used lately until at most `budget` nodes are in memory. The root and dirty
    /// nodes stay.
    pub fn evict(&mut self, budget: usize) {
        self.cache.evict(budget, self.root.address);
    }

    fn leaf_of(&self, key: &Key) -> Result<&Node, NodeNotCached> {
        self.descend(|node| node.route(key)).map(|(leaf, _)| leaf)
    }

    /// Descends from the root to a leaf; `choose` returns the index of the child in each inner node. Returns the leaf
    /// and the first key after the leaf's range.
    pub(super) fn descend(
        &self,
        mut choose: impl FnMut(&Node) -> usize,
    ) -> Result<(&Node, Option<Key>), NodeNotCached> {
        let mut descent = self.root_path();
        loop {
            let node = self.cache.follow(&descent)?;
            if descent.level == 0 {
                return Ok((node, descent.end()));
            }
            descent = descent.below(node, choose(node));
        }
    }

    pub(super) fn root_path(&self) -> DescentPath<'_> {
        DescentPath::to_root(self.root, self.level)
    }
}
