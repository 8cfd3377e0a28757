//! Reading the leaves of the tree one by one, in key order, without the lock during device requests, and without adding
//! leaves to the cache.

use super::store::MetadataStore;
use crate::Error;
use crate::format::{ErrorKind, Key};
use crate::tree::{NodeNotCached, ScanPath, VerifiedNode};

/// A leaf of the tree as it was at one moment.
pub(crate) struct ScannedLeaf {
    /// Path to the leaf.
    pub(crate) path: ScanPath,
    /// The leaf with its items.
    pub(crate) leaf: VerifiedNode,
    /// `true` if the leaf was read from the device, or from memory on its way to the device.
    pub(crate) is_read: bool,
}

/// A node on the path to a leaf that cannot be read. Its error is counted already.
#[derive(Debug)]
pub(crate) struct UnreadableNode {
    pub(crate) node: NodeNotCached,
    pub(crate) error: Error,
}

impl MetadataStore {
    /// Returns the leaf of `key`.
    ///
    /// # Errors
    ///
    /// The node that cannot be read. The keys of that node are lost to the scan, and it can go on after them.
    pub(crate) fn scan_leaf(&self, key: &Key) -> Result<ScannedLeaf, UnreadableNode> {
        let scanned = self.find_leaf(key);
        self.trim();
        scanned
    }

    fn find_leaf(&self, key: &Key) -> Result<ScannedLeaf, UnreadableNode> {
        let (mut failed_inner, mut failed) = (None, None);
        loop {
            let found = self.read().tree.scan_path(key);
            let mut path = match found {
                Ok(path) => path,
                Err(node) => {
                    let loaded = self.load(&node, &mut failed_inner);
                    loaded.map_err(|error| UnreadableNode { node, error })?;
                    continue;
                }
            };
            if let Some(leaf) = path.copy.take() {
                return Ok(ScannedLeaf { path, leaf, is_read: false });
            }
            let node = path.leaf;
            match self.read_node(&node) {
                Ok(leaf) => {
                    if failed == Some(node) {
                        self.health.note_error(ErrorKind::Retry, node.pointer.address);
                    }
                    return Ok(ScannedLeaf { path, leaf, is_read: true });
                }
                // The leaf may have moved since the lock was released, or the next attempt may succeed.
                Err(Error::Corrupt(_) | Error::Device(_)) if failed != Some(node) => {
                    failed = Some(node);
                }
                Err(Error::Corrupt(damage)) => {
                    self.note_if_misplaced(node.pointer.address);
                    let error = self.health.counted(damage.into());
                    return Err(UnreadableNode { node, error });
                }
                Err(error) => return Err(UnreadableNode { node, error }),
            }
        }
    }
}
