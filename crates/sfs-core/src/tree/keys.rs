//! Where the keys of a node belong.

use super::NodeNotCached;
use super::node::{ChildEntry, Node};
use crate::format::{Key, NodePointer};

/// A range of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first one.
    pub from: Key,
    /// The first one after them; `None` if they go on to the last key.
    pub end: Option<Key>,
}

impl Keys {
    /// No keys at all.
    pub(super) const NONE: Self = Self { from: Key::MAX, end: Some(Key::MIN) };

    /// Whether `first`, `last`, and so what is between them, belong to the range.
    pub(super) fn hold(&self, first: Key, last: Key) -> bool {
        self.from <= first && self.end.is_none_or(|end| last < end)
    }
}

/// The way to a node: a [`NodeNotCached`] for a lookup, which has no time to decode keys that it does not
/// need.
#[derive(Clone, Copy)]
pub(super) struct DescentPath<'a> {
    pub(super) pointer: NodePointer,
    pub(super) level: u8,
    /// The entry that leads there.
    entry: Option<&'a ChildEntry>,
    /// The next entry, of the same node or the nearest above.
    next: Option<&'a ChildEntry>,
}

impl<'a> DescentPath<'a> {
    pub(super) fn to_root(pointer: NodePointer, level: u8) -> Self {
        Self { pointer, level, entry: None, next: None }
    }

    /// The way to the child at `index` of `node`, which this one leads to.
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

    /// The first key after those that may be there.
    pub(super) fn end(&self) -> Option<Key> {
        self.next.map(ChildEntry::key)
    }

    pub(super) fn to_missing(self) -> NodeNotCached {
        NodeNotCached { pointer: self.pointer, level: self.level, keys: self.keys() }
    }
}
