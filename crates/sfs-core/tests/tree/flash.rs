//! A device for the nodes of a tree: a map of blocks.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sfs_core::format::{NodePointer, Tolerance};
use sfs_core::tree::{Neighbourhood, NodeNotCached, Tree, VerifiedNode};
use sfs_device::Block;

pub(crate) const VOLUME: u64 = 7;

/// A device for nodes. Freed addresses are reused, the oldest first.
pub(crate) struct Flash {
    pub(crate) blocks: HashMap<u64, Arc<Block>>,
    pub(crate) free: Vec<u64>,
    pub(crate) end: u64,
    pub(crate) loads: usize,
    /// Every load whose number this divides reads neighbours along; 0 for none.
    pub(crate) along_every: usize,
    /// Number of nodes that were read along.
    pub(crate) neighbours: usize,
}

impl Flash {
    pub(crate) fn new() -> Self {
        Self {
            blocks: HashMap::new(),
            free: Vec::new(),
            end: 100,
            loads: 0,
            along_every: 0,
            neighbours: 0,
        }
    }

    pub(crate) fn reads_along(&self) -> bool {
        self.along_every > 0 && self.loads.is_multiple_of(self.along_every)
    }

    pub(crate) fn load(&mut self, tree: &mut Tree, missing: NodeNotCached) {
        self.loads += 1;
        assert!(self.loads < 1_000_000, "the tree never stops asking for {missing:?}");
        let block =
            self.blocks.get(&missing.pointer.address).expect("a node at an address that was freed");
        let node = VerifiedNode::decode(&**block, VOLUME, &missing, Tolerance::Exact)
            .expect("a sound node");
        let around = tree.neighbourhood(&missing, 16, 16).filter(|_| self.reads_along());
        tree.insert(&missing, node);
        let Some(Neighbourhood { blocks, neighbours }) = around else { return };
        assert!(blocks.contains(&missing.pointer.address) && blocks.end - blocks.start <= 16);
        for neighbour in neighbours {
            let address = neighbour.pointer.address;
            assert!(blocks.contains(&address) && address != missing.pointer.address);
            let block = self.blocks.get(&address).expect("a child of a node of the tree");
            let node = VerifiedNode::decode(&**block, VOLUME, &neighbour, Tolerance::Exact);
            tree.insert_neighbour(&neighbour, node.expect("a sound node"));
            self.neighbours += 1;
        }
    }

    /// Repeats `act`, and loads missing nodes, until it succeeds.
    pub(crate) fn run<T>(
        &mut self,
        tree: &mut Tree,
        act: impl Fn(&mut Tree) -> Result<T, NodeNotCached>,
    ) -> T {
        loop {
            let before = (tree.dirty_count(), tree.node_count(), tree.height());
            match act(tree) {
                Ok(result) => return result,
                Err(missing) => {
                    assert_eq!(before, (tree.dirty_count(), tree.node_count(), tree.height()));
                    self.load(tree, missing);
                }
            }
        }
    }

    pub(crate) fn write_out(&mut self, tree: &mut Tree, checkpoint: u64) -> (NodePointer, u8) {
        let old: Vec<u64> = tree.old_addresses().collect();
        let dirty_count = tree.dirty_count();
        let written = tree.write_out(VOLUME, checkpoint, || {
            self.free.pop().unwrap_or_else(|| {
                self.end += 1;
                self.end
            })
        });
        assert_eq!(written.pointers.len(), dirty_count);
        assert_eq!((tree.dirty_count(), tree.old_addresses().count()), (0, 0));
        for address in old {
            self.blocks.remove(&address).expect("an address is released once");
            self.free.insert(0, address);
        }
        for (pointer, block) in written.pointers.into_iter().zip(written.blocks) {
            assert!(self.blocks.insert(pointer.address, Arc::new(block)).is_none());
        }
        assert_eq!(
            self.reachable(written.root, written.level),
            self.blocks.keys().copied().collect()
        );
        (written.root, written.level)
    }

    pub(crate) fn reachable(&self, root: NodePointer, level: u8) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut todo = vec![NodeNotCached { pointer: root, level, keys: None }];
        while let Some(missing) = todo.pop() {
            let address = missing.pointer.address;
            let node =
                VerifiedNode::decode(&*self.blocks[&address], VOLUME, &missing, Tolerance::Exact)
                    .unwrap();
            assert!(found.insert(address), "two paths lead to {missing:?}");
            assert!(level == 0 || node.first_key().is_some(), "{missing:?} is empty");
            todo.extend(node.children());
        }
        found
    }
}
