//! Looking at all of a tree at once.

use super::residents::is_on_device;
use super::{Missing, Tree};

impl Tree {
    /// The addresses of all nodes of the tree that are on the device, and those that dirty nodes
    /// had there. All inner nodes have to be in memory.
    pub fn addresses(&self) -> Result<Vec<u64>, Missing> {
        let mut addresses: Vec<u64> = self.residents.old_addresses().collect();
        let mut level_nodes = vec![self.root];
        for level in (0..=self.level).rev() {
            let on_device = level_nodes.iter().map(|pointer| pointer.address);
            addresses.extend(on_device.filter(|address| is_on_device(*address)));
            if level == 0 {
                break;
            }
            let mut below = Vec::new();
            for pointer in level_nodes {
                let node = self.residents.find(pointer, level)?;
                below.extend((0..node.len()).map(|index| node.child(index)));
            }
            level_nodes = below;
        }
        Ok(addresses)
    }
}
