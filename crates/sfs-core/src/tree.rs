//! The metadata map: a copy-on-write B+tree of 4 KiB nodes, in memory.
//!
//! Owns: the nodes in memory, which of them are dirty, and the addresses that they leave behind.
//! Promises: an operation that answers [`Missing`] has changed nothing; nodes from a device,
//! however they were forged, cannot make it panic or loop.
//! Never: reads or writes a device, or knows what an item means.

mod edit;
mod inner;
mod leaf;
mod node;
mod residents;
mod search;
mod verified;
mod walk;
mod write_out;

pub use search::{Item, Range};
pub use verified::VerifiedNode;
pub use write_out::WriteOut;

use crate::format::{Key, NodePointer};
use node::Node;
use residents::Residents;

/// A node that is needed and not in memory. The caller reads it without holding a lock, verifies
/// it with [`VerifiedNode::decode`], gives it with [`Tree::insert`], and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where it is, and its checksum.
    pub pointer: NodePointer,
    /// The level that it must have: 0 for a leaf.
    pub level: u8,
}

/// The tree. Many threads may look things up in it at once.
///
/// Every entry of an inner node has a key that is not above any key below it. The first entry of a
/// node also takes the keys that are below its own.
pub struct Tree {
    root: NodePointer,
    level: u8,
    residents: Residents,
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
        let mut residents = Residents::default();
        let root = residents.add_dirty(Node::new(0));
        Self { root, level: 0, residents, emptied: Vec::new() }
    }

    /// The tree whose root, at `level`, is on the device at `root`. Nothing of it is in memory.
    pub fn open(root: NodePointer, level: u8) -> Self {
        Self { root, level, residents: Residents::default(), emptied: Vec::new() }
    }

    /// Gives the node that was missing. Does nothing if it has come in the meantime, and no harm
    /// if it is not part of the tree any more.
    ///
    /// # Panics
    ///
    /// If `node` was not decoded for `missing`.
    pub fn insert(&mut self, missing: &Missing, node: VerifiedNode) {
        let (pointer, node) = node.into_parts();
        assert!(pointer == missing.pointer, "a node is given for {missing:?}, not {pointer:?}");
        assert!(node.level == missing.level, "a node of another level is given for {missing:?}");
        self.residents.add_clean(pointer, node);
    }

    /// The value of the item `key`.
    pub fn get(&self, key: &Key) -> Result<Option<&[u8]>, Missing> {
        let leaf = self.leaf_of(key)?;
        Ok(leaf.find(key).ok().map(|index| leaf.value(index)))
    }

    /// Says whether everything that `put`, `remove` and `get_mut` of `key` need is in memory. If
    /// so, they cannot answer [`Missing`] before the next [`Tree::prune`], [`Tree::evict`] or
    /// [`Tree::insert`], whatever else is put and removed.
    pub fn prepare(&self, key: &Key) -> Result<(), Missing> {
        self.leaf_of(key).map(|_| ())
    }

    /// Nodes that the next write-out writes.
    pub fn dirty_count(&self) -> usize {
        self.residents.dirty_count()
    }

    /// Nodes in memory, dirty ones included.
    pub fn node_count(&self) -> usize {
        self.residents.node_count()
    }

    /// Level of the root: 0 if it is a leaf.
    pub fn height(&self) -> u8 {
        self.level
    }

    /// The addresses that the next write-out lets go: where dirty and removed nodes were. Each
    /// comes once, unless a forged tree has two pointers to one node.
    pub fn old_addresses(&self) -> impl Iterator<Item = u64> {
        self.residents.old_addresses()
    }

    /// How many there are.
    pub fn old_count(&self) -> usize {
        self.residents.old_count()
    }

    /// Dirty nodes that take the place of none: each will be one more on the device.
    pub fn new_count(&self) -> u64 {
        self.dirty_count().saturating_sub(self.old_count()) as u64
    }

    /// Drops clean nodes that were not used lately, until at most `budget` nodes are in memory or
    /// only the root and dirty nodes are.
    pub fn evict(&mut self, budget: usize) {
        self.residents.evict(budget, self.root.address);
    }

    fn leaf_of(&self, key: &Key) -> Result<&Node, Missing> {
        self.descend(|node| node.route(key))
    }

    /// Goes from the root down to a leaf, by way of the children that `choose` says.
    fn descend(&self, mut choose: impl FnMut(&Node) -> usize) -> Result<&Node, Missing> {
        let mut pointer = self.root;
        for level in (1..=self.level).rev() {
            let node = self.residents.find(pointer, level)?;
            pointer = node.child(choose(node));
        }
        self.residents.find(pointer, 0)
    }
}
