//! Writing the tree out.
//!
//! Owns: the order in which dirty nodes get their addresses and checksums.
//! Promises: children come before parents; the bytes given away never change.
//! Never: chooses an address.

use sfs_device::Block;

use super::Tree;
use super::node_cache::is_on_device;
use crate::format::NodePointer;

/// What a write-out has to write.
pub struct WriteOut {
    /// The root, once `blocks` are written.
    pub root: NodePointer,
    /// Level of the root.
    pub level: u8,
    /// The nodes that were dirty, children before parents.
    pub pointers: Vec<NodePointer>,
    /// Their memory, in one piece: blocks on their own take twice as much, for their alignment.
    pub blocks: Vec<Block>,
}

/// What is the same for all nodes of a write-out.
struct Writer<F> {
    volume: u64,
    checkpoint: u64,
    address: F,
    pointers: Vec<NodePointer>,
    blocks: Vec<Block>,
}

impl Tree {
    /// Gives every dirty node the next of the addresses, seals it, and makes it clean. Nothing is
    /// dirty afterwards, and [`Tree::old_addresses`] is empty: ask it before.
    ///
    /// `address` is called once for each dirty node, children before parents; it gives block
    /// addresses that no node of the tree has.
    ///
    /// # Panics
    ///
    /// If empty leaves wait for [`Tree::prune`], or `address` gives 0 or something above
    /// `i64::MAX`.
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
