//! Ranges of keys, and the path of a lookup with the range that it leads to.

use super::NodeNotCached;
use super::node::{ChildEntry, Node};
use crate::format::{Key, NodePointer};

/// A range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// First key.
    pub from: Key,
    /// First key after the range; `None` for a range up to the last key.
    pub end: Option<Key>,
}

impl Keys {
    /// The empty range.
    pub(super) const NONE: Self = Self { from: Key::MAX, end: Some(Key::MIN) };

    /// Returns whether the range contains `first` and `last`, and so all keys between them.
    pub(super) fn hold(&self, first: Key, last: Key) -> bool {
        self.from <= first && self.end.is_none_or(|end| last < end)
    }
}

/// The end of a lookup's path: a node, and the entries that bound its keys. Unlike [`NodeNotCached`] it decodes the
/// keys only when they are needed.
#[derive(Clone, Copy)]
pub(super) struct DescentPath<'a> {
    pub(super) pointer: NodePointer,
    pub(super) level: u8,
    /// Entry that leads to the node; `None` for the root.
    entry: Option<&'a ChildEntry>,
    /// Entry after that one, in the same node or the nearest node above.
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
