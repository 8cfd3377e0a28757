//! The error of an operation that needs a node which is not in memory.

use super::keys::Keys;
use crate::format::{Key, NodePointer};

/// A node that is needed and not in memory. The caller reads the node without holding a lock,
/// verifies it with [`VerifiedNode::decode`](super::VerifiedNode::decode), inserts it with
/// [`Tree::insert`](super::Tree::insert), and tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNotCached {
    /// Address and checksum.
    pub pointer: NodePointer,
    /// Level that the node must have: 0 for a leaf.
    pub level: u8,
    /// Range in which the node must have its keys, at least one. `None` for a root, and for a caller that does not
    /// know the node's parent.
    pub keys: Option<Keys>,
}

impl NodeNotCached {
    /// Returns the first key after the range.
    pub(super) fn end(&self) -> Option<Key> {
        self.keys.and_then(|keys| keys.end)
    }
}
