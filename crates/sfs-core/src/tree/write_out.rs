//! Write-out: new addresses and checksums for all dirty nodes, children before parents.
//!
//! The caller chooses the addresses and writes the returned blocks, which never change afterwards.

use sfs_device::Block;

use super::Tree;
use super::node_cache::is_on_device;
use crate::format::NodePointer;

/// The result of a write-out: the new root, and the nodes to write.
pub struct WriteOut {
    /// Pointer to the root, valid once `blocks` are written.
    pub root: NodePointer,
    /// Level of the root.
    pub level: u8,
    /// Pointers to the nodes that were dirty, children before parents.
    pub pointers: Vec<NodePointer>,
    /// Content of these nodes, in one allocation: single blocks would take twice the memory for their alignment.
    pub blocks: Vec<Block>,
}

/// Arguments and results of a write-out in progress.
struct Writer<F> {
    volume: u64,
    checkpoint: u64,
    address: F,
    pointers: Vec<NodePointer>,
    blocks: Vec<Block>,
}

impl Tree {
    /// Gives every dirty node a new address, seals it, and makes it clean. Afterwards no node is
    /// dirty and [`Tree::old_addresses`] is empty; a caller that needs the old addresses reads them
    /// before.
    ///
    /// `address` is called once for each dirty node, children before parents, and returns block addresses that no
    /// node of the tree has.
    ///
    /// # Panics
    ///
    /// If empty leaves wait for [`Tree::prune`], or `address` returns 0 or a number above `i64::MAX`.
    pub fn write_out(
        &mut self,
        volume: u64,
        checkpoint: u64,
        address: impl FnMut() -> u64,
    ) -> WriteOut {
        assert!(self.emptied.is_empty(), "a tree is pruned before it is written out");
        let count = self.dirty_count();
        let (pointers, blocks) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut writer = Writer { volume, checkpoint, address, pointers, blocks };
        if self.dirty_count() > 0 {
            self.root = self.write_node(self.root.address, &mut writer);
        }
        assert!(self.dirty_count() == 0, "a dirty node is not in the tree");
        self.cache.forget_old_addresses();
        let Writer { pointers, blocks, .. } = writer;
        WriteOut { root: self.root, level: self.level, pointers, blocks }
    }

    /// Writes the dirty node `number` after its dirty children.
    fn write_node(&mut self, number: u64, writer: &mut Writer<impl FnMut() -> u64>) -> NodePointer {
        for (index, child) in self.cache.node(number).dirty_children() {
            let pointer = self.write_node(child, writer);
            self.cache.node_mut(number).set_child(index, pointer);
        }
        let address = (writer.address)();
        assert!(is_on_device(address), "no node can be written at {address:#x}");
        let node = self.cache.node_mut(number);
        let pointer = node.seal(writer.volume, address, writer.checkpoint);
        writer.pointers.push(pointer);
        writer.blocks.push(Block(*node.bytes));
        self.cache.make_clean(number, address);
        pointer
    }
}
