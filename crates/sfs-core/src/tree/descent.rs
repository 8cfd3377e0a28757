//! The path of a lookup, with the range of keys that it leads to.

use super::node::{ChildEntry, Node};
use super::{Keys, NodeNotCached};
use crate::format::{Key, NodePointer};

/// The end of a lookup's path: a node, and the entries that bound its keys. Unlike [`NodeNotCached`] it decodes the
/// keys only when they are needed.
#[derive(Clone, Copy)]
pub(super) struct DescentPath<'a> {
    pub(super) pointer: NodePointer,
    pub(super) level: u8,
    /// Entry that leads to the node; `None` for the root.
    entry: Option<&'a ChildEntry>,
    /// Entry after `entry`, in the same node or the nearest node above.
    next: Option<&'a ChildEntry>,
}

impl<'a> DescentPath<'a> {
    pub(super) fn to_root(pointer: NodePointer, level: u8) -> Self {
        Self { pointer, level, entry: None, next: None }
    }

    /// Extends the path to the child at `index` of `node`, to which this path leads.
    pub(super) fn below(&self, node: &'a Node, index: usize) -> Self {
        let entries = node.entries();
        Self {
            pointer: entries[index].pointer(),
            level: self.level - 1,
            entry: Some(&entries[index]),
            next: entries.get(index + 1).or(self.next),
        }
    }

    pub(super) fn keys(&self) -> Option<Keys> {
        self.entry.map(|entry| Keys { from: entry.key(), end: self.end() })
    }

    /// Returns the first key after the node's range.
    pub(super) fn end(&self) -> Option<Key> {
        self.next.map(ChildEntry::key)
    }

    pub(super) fn to_missing(self) -> NodeNotCached {
        NodeNotCached { pointer: self.pointer, level: self.level, keys: self.keys() }
    }
}
