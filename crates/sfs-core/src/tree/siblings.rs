//! The siblings of a node that is about to be read: readers of neighbouring keys need them next.

use super::node_cache::is_on_device;
use super::{Keys, NodeNotCached, Tree};

/// Siblings of a node.
pub struct Siblings {
    /// Those that are on the device and not in memory, the node itself included, ascending by key.
    pub missing: Vec<NodeNotCached>,
    /// Range of all of them, in memory or not.
    pub keys: Keys,
}

impl Tree {
    /// Returns the siblings of `node` from `reach` places before it to `reach` places after it. `None` for the root, and
    /// if the tree has changed since `node` was met.
    pub fn siblings(&self, node: &NodeNotCached, reach: usize) -> Option<Siblings> {
        let from = node.keys?.from;
        let mut descent = self.root_path();
        while descent.level > node.level.checked_add(1)? {
            let inner = self.cache.follow(&descent).ok()?;
            descent = descent.below(inner, inner.route(&from));
        }
        let parent = self.cache.follow(&descent).ok().filter(|parent| parent.level > node.level)?;
        let index = parent.route(&from);
        let places = index.saturating_sub(reach)..(index + reach + 1).min(parent.len());
        let children: Vec<NodeNotCached> =
            places.clone().map(|place| parent.child_at(place, descent.end())).collect();
        if children[index - places.start].pointer != node.pointer {
            return None;
        }
        let keys = Keys { from: children[0].keys?.from, end: children[children.len() - 1].end() };
        let is_missing = |child: &NodeNotCached| {
            is_on_device(child.pointer.address) && self.cache.get(child.pointer).is_none()
        };
        Some(Siblings { missing: children.into_iter().filter(is_missing).collect(), keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{ItemKind, Key, Tolerance};
    use crate::tree::VerifiedNode;

    #[test]
    fn siblings_are_the_missing_neighbours_under_one_parent() {
        let mut tree = Tree::new();
        for ino in 16..3000 {
            tree.put(&Key::new(ino, ItemKind::Inode, 0), &[7; 100]).expect("in memory");
        }
        let mut next = 1000;
        let out = tree.write_out(5, 1, || {
            next += 1;
            next
        });
        tree.evict(0);
        // Reads inner nodes until a leaf is missing.
        let key = Key::new(1500, ItemKind::Inode, 0);
        let read = |tree: &mut Tree, node: &NodeNotCached| {
            let block = &out.blocks[(node.pointer.address - 1001) as usize];
            let node_read = VerifiedNode::decode(block, 5, node, Tolerance::Exact);
            tree.insert(node, node_read.expect("a sound node"));
        };
        let leaf = loop {
            let node = tree.get(&key).expect_err("the leaf is missing");
            if node.level == 0 {
                break node;
            }
            read(&mut tree, &node);
        };
        let found = tree.siblings(&leaf, 4).expect("the parent is in memory");
        let at = leaf.pointer.address;
        let addresses: Vec<u64> = found.missing.iter().map(|node| node.pointer.address).collect();
        assert_eq!(addresses, (at - 4..=at + 4).collect::<Vec<_>>(), "written in key order");
        assert!(found.keys.from < key && found.keys.end.is_some_and(|end| end > key));
        read(&mut tree, &found.missing[2]);
        let fewer = tree.siblings(&leaf, 4).expect("the parent is in memory");
        assert_eq!((fewer.missing.len(), fewer.keys), (8, found.keys));
        let changed = NodeNotCached { pointer: found.missing[3].pointer, ..leaf };
        assert!(tree.siblings(&changed, 4).is_none(), "another node has the keys");
    }
}
