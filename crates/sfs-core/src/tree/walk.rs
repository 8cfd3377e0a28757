//! Walks over the whole tree: all addresses, and a check of the invariants.

use super::node_cache::{is_dirty, is_on_device};
use super::{NodeNotCached, Tree};

impl Tree {
    /// Returns the device addresses of all clean nodes of the tree and the old addresses of dirty ones. All inner
    /// nodes have to be in memory.
    pub fn addresses(&self) -> Result<Vec<u64>, NodeNotCached> {
        let mut addresses: Vec<u64> = self.cache.old_addresses().collect();
        // At most one path leads to each node, however the tree was forged, so none is visited twice.
        let mut waiting = vec![self.root_path().to_missing()];
        while let Some(child) = waiting.pop() {
            addresses.extend(Some(child.pointer.address).filter(|address| is_on_device(*address)));
            if child.level > 0 {
                let node = self.cache.find(&child)?;
                waiting.extend((0..node.len()).map(|index| node.child_at(index, child.end())));
            }
        }
        Ok(addresses)
    }

    /// Returns whether all nodes in memory satisfy the invariants of [`Tree`]. Only a forged tree can violate them.
    pub fn is_coherent(&self) -> bool {
        let mut waiting = vec![self.root_path().to_missing()];
        while let Some(child) = waiting.pop() {
            let Some(node) = self.cache.get(child.pointer) else { continue };
            let is_dirty = is_dirty(child.pointer.address);
            let is_in_range = match (node.first_key().zip(node.last_key()), child.keys) {
                (Some((first, last)), Some(keys)) => keys.hold(first, last),
                (Some(_), None) => true,
                (None, None) => child.level == 0,
                (None, Some(_)) => child.level == 0 && is_dirty && !self.emptied.is_empty(),
            };
            if !is_in_range
                || node.level != child.level
                || !is_dirty && !node.belongs_to(child.keys)
            {
                return false;
            }
            let children = if child.level == 0 { 0 } else { node.len() };
            waiting.extend((0..children).map(|index| node.child_at(index, child.end())));
        }
        true
    }
}
