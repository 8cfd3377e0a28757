//! Scan of the leaves in key order, for readers of the whole tree.
//!
//! A scan needs the inner nodes in memory, of which there is one for more than a hundred leaves, and takes a copy of a leaf that
//! is in memory. Other leaves are read by the caller and do not enter the cache, so a scan of a large tree displaces few
//! nodes of other readers.

use super::node_cache::is_on_device;
use super::{NodeNotCached, Tree, VerifiedNode};
use crate::format::Key;

/// Path from the root to a leaf.
pub struct ScanPath {
    /// The inner nodes on the path, the root first, without those that only exist in memory.
    pub inner: Vec<NodeNotCached>,
    /// The leaf.
    pub leaf: NodeNotCached,
    /// Copy of the leaf, if it is in memory.
    pub copy: Option<VerifiedNode>,
}

impl ScanPath {
    /// Returns the first key after those of the leaf; `None` after the last leaf.
    pub fn end(&self) -> Option<Key> {
        self.leaf.end()
    }

    /// Returns whether the leaf is on the device as it is in memory.
    pub fn is_stored(&self) -> bool {
        is_on_device(self.leaf.pointer.address)
    }
}

impl Tree {
    /// Returns the path to the leaf of `key`. The leaf need not be in memory.
    pub fn scan_path(&self, key: &Key) -> Result<ScanPath, NodeNotCached> {
        let mut inner = Vec::new();
        let mut descent = self.root_path();
        while descent.level > 0 {
            let node = self.cache.follow(&descent)?;
            inner.push(descent.to_missing());
            descent = descent.below(node, node.route(key));
        }
        inner.retain(|node| is_on_device(node.pointer.address));
        let leaf = descent.to_missing();
        let copy = self.cache.find(&leaf).ok().map(|node| VerifiedNode::copy_of(node, &leaf));
        Ok(ScanPath { inner, leaf, copy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::ItemKind;

    #[test]
    fn a_scan_meets_every_item_once() {
        let mut tree = Tree::new();
        let keys: Vec<Key> = (16..3000).map(|ino| Key::new(ino, ItemKind::Inode, 0)).collect();
        for key in &keys {
            tree.put(key, &[7; 100]).expect("in memory");
        }
        let (mut found, mut leaves) = (Vec::new(), 0);
        let mut from = Some(Key::MIN);
        while let Some(key) = from {
            let path = tree.scan_path(&key).expect("in memory");
            assert!(path.inner.is_empty() && !path.is_stored(), "every node is dirty");
            let copy = path.copy.as_ref().expect("the leaf is in memory");
            found.extend(copy.items().map(|(key, _)| key));
            leaves += 1;
            from = path.end();
        }
        assert_eq!(found, keys);
        assert!(leaves > 50, "{leaves}");
    }
}
