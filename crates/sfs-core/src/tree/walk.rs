//! Looking at all of a tree at once.

use super::node_cache::{is_dirty, is_on_device};
use super::{NodeNotCached, Tree};

impl Tree {
    /// The addresses of all nodes of the tree that are on the device, and those that dirty nodes
    /// had there. All inner nodes have to be in memory.
    pub fn addresses(&self) -> Result<Vec<u64>, NodeNotCached> {
        let mut addresses: Vec<u64> = self.cache.old_addresses().collect();
        // No node is met twice, whatever is forged: only one way leads to each.
        let mut ways = vec![self.way_to_root().to_missing()];
        while let Some(way) = ways.pop() {
            addresses.extend(Some(way.pointer.address).filter(|address| is_on_device(*address)));
            if way.level > 0 {
                let node = self.cache.find(&way)?;
                ways.extend((0..node.len()).map(|index| node.way_to(index, way.end())));
            }
        }
        Ok(addresses)
    }

    /// Whether what is said of the keys of a [`Tree`] is true of all nodes in memory. It always is
    /// unless the tree was forged.
    pub fn is_coherent(&self) -> bool {
        let mut ways = vec![self.way_to_root().to_missing()];
        while let Some(way) = ways.pop() {
            let Some(node) = self.cache.resident(way.pointer) else { continue };
            let is_dirty = is_dirty(way.pointer.address);
            let is_placed = match (node.first_key().zip(node.last_key()), way.keys) {
                (Some((first, last)), Some(keys)) => keys.hold(first, last),
                (Some(_), None) => true,
                (None, None) => way.level == 0,
                (None, Some(_)) => way.level == 0 && is_dirty && !self.emptied.is_empty(),
            };
            if !is_placed || node.level != way.level || !is_dirty && !node.belongs_to(way.keys) {
                return false;
            }
            let children = if way.level == 0 { 0 } else { node.len() };
            ways.extend((0..children).map(|index| node.way_to(index, way.end())));
        }
        true
    }
}
