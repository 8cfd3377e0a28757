//! The metadata map: a copy-on-write B+tree of 4 KiB nodes, in memory.
//!
//! Owns: the nodes in memory, which of them are dirty, and the addresses that they leave behind.
//! Promises: an operation that answers [`NodeNotCached`] has changed nothing; nodes from a device,
//! however they were forged, cannot make it panic or loop.
//! Never: reads or writes a device, or knows what an item means.

mod edit;
mod inner;
mod keys;
mod leaf;
mod node;
mod node_cache;
mod search;
mod verified;
mod walk;
mod write_out;

pub use keys::Keys;
pub use search::{Item, Range};
pub use verified::VerifiedNode;
pub use write_out::WriteOut;

use crate::format::{Key, NodePointer};
use keys::DescentPath;
use node::Node;
use node_cache::NodeCache;

/// A node that is needed and not in memory. The caller reads it without holding a lock, verifies
/// it with [`VerifiedNode::decode`], gives it with [`Tree::insert`], and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNotCached {
    /// Where it is, and its checksum.
    pub pointer: NodePointer,
    /// The level that it must have: 0 for a leaf.
    pub level: u8,
    /// Where its keys must be; it must have some. `None` for a root, and for whoever does not know
    /// how the tree leads to it.
    pub keys: Option<Keys>,
}

impl NodeNotCached {
    /// The first key after those that may be there.
    fn end(&self) -> Option<Key> {
        self.keys.and_then(|keys| keys.end)
    }
}

/// The tree. Many threads may look things up in it at once.
///
/// The keys of a node, at any depth, are not below the key of the entry that leads to it, and below
/// that of the next entry. The first entry of a node also takes the keys that are below its own,
/// which becomes the lowest of them when they are put. No node is empty but a root, and leaves that
/// wait for [`Tree::prune`].
///
/// A node from a device is followed only from where this is true of it. So there is one way at most
/// to each node in memory, whatever is forged: two entries share no keys.
pub struct Tree {
    root: NodePointer,
    level: u8,
    cache: NodeCache,
    /// Keys whose leaves became empty, and wait for [`Tree::prune`].
    emptied: Vec<Key>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree: one dirty leaf.
    pub fn new() -> Self {
        let mut cache = NodeCache::default();
        let root = cache.add_dirty(Node::new(0));
        Self { root, level: 0, cache, emptied: Vec::new() }
    }

    /// The tree whose root, at `level`, is on the device at `root`. Nothing of it is in memory.
    pub fn open(root: NodePointer, level: u8) -> Self {
        Self { root, level, cache: NodeCache::default(), emptied: Vec::new() }
    }

    /// Gives the node that was missing. Does no harm if it has come in the meantime, or is not part
    /// of the tree any more.
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

    /// The value of the item `key`.
    pub fn get(&self, key: &Key) -> Result<Option<&[u8]>, NodeNotCached> {
        let leaf = self.leaf_of(key)?;
        Ok(leaf.find(key).ok().map(|index| leaf.value(index)))
    }

    /// Says whether everything that `put`, `remove` and `get_mut` of `key` need is in memory. If
    /// so, they cannot answer [`NodeNotCached`] before the next [`Tree::prune`], [`Tree::evict`] or
    /// [`Tree::insert`], whatever else is put and removed.
    pub fn prepare(&self, key: &Key) -> Result<(), NodeNotCached> {
        self.leaf_of(key).map(|_| ())
    }

    /// Nodes that the next write-out writes.
    pub fn dirty_count(&self) -> usize {
        self.cache.dirty_count()
    }

    /// Nodes in memory, dirty ones included.
    pub fn node_count(&self) -> usize {
        self.cache.node_count()
    }

    /// Level of the root: 0 if it is a leaf.
    pub fn height(&self) -> u8 {
        self.level
    }

    /// The addresses that the next write-out lets go: where dirty and removed nodes were, each once.
    pub fn old_addresses(&self) -> impl Iterator<Item = u64> {
        self.cache.old_addresses()
    }

    /// How many there are.
    pub fn old_count(&self) -> usize {
        self.cache.old_count()
    }

    /// Dirty nodes that take the place of none: each will be one more on the device.
    pub fn new_count(&self) -> u64 {
        self.dirty_count().saturating_sub(self.old_count()) as u64
    }

    /// Drops clean nodes that were not used lately, until at most `budget` nodes are in memory or
    /// only the root and dirty nodes are.
    pub fn evict(&mut self, budget: usize) {
        self.cache.evict(budget, self.root.address);
    }

    fn leaf_of(&self, key: &Key) -> Result<&Node, NodeNotCached> {
        self.descend(|node| node.route(key)).map(|(leaf, _)| leaf)
    }

    /// Goes from the root down to a leaf, by way of the children that `choose` says. Gives the leaf
    /// and the first key after those that may be in it.
    fn descend(
        &self,
        mut choose: impl FnMut(&Node) -> usize,
    ) -> Result<(&Node, Option<Key>), NodeNotCached> {
        let mut way = self.way_to_root();
        loop {
            let node = self.cache.follow(&way)?;
            if way.level == 0 {
                return Ok((node, way.end()));
            }
            way = way.below(node, choose(node));
        }
    }

    fn way_to_root(&self) -> DescentPath<'_> {
        DescentPath::to_root(self.root, self.level)
    }
}
