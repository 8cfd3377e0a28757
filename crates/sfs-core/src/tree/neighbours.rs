//! Nodes that lie near a missing one on the device and have the same parent: they were written together, and are often read
//! together.

use std::ops::Range;

use super::node_cache::is_on_device;
use super::{NodeNotCached, Tree, VerifiedNode};

/// Adjacent blocks of the device that hold a missing node and some of its neighbours.
pub struct Neighbourhood {
    /// Addresses of the blocks.
    pub blocks: Range<u64>,
    /// The neighbours in these blocks that are not in memory.
    pub neighbours: Vec<NodeNotCached>,
}

impl Tree {
    /// Returns up to `count` blocks around `missing` with as many neighbours as possible, the nearest first, and gaps of up to
    /// `gap_max` blocks between them; `None` if there are none, or the tree leads to `missing` no longer.
    pub fn neighbourhood(
        &self,
        missing: &NodeNotCached,
        count: u64,
        gap_max: u64,
    ) -> Option<Neighbourhood> {
        let first_key = missing.keys?.from;
        let parent_level = missing.level.checked_add(1)?;
        let mut path = self.root_path();
        while path.level > parent_level {
            let node = self.cache.follow(&path).ok()?;
            path = path.below(node, node.route(&first_key));
        }
        if path.level != parent_level {
            return None;
        }
        let parent = self.cache.follow(&path).ok()?;
        if parent.entries()[parent.route(&first_key)].pointer() != missing.pointer {
            return None;
        }
        let address = missing.pointer.address;
        let is_wanted = |child: &NodeNotCached| {
            let distance = child.pointer.address.abs_diff(address);
            (1..count).contains(&distance) && is_on_device(child.pointer.address)
        };
        let children = (0..parent.len()).map(|index| path.below(parent, index).to_missing());
        let mut neighbours: Vec<NodeNotCached> = children
            .filter(|child| is_wanted(child) && self.cache.get(child.pointer).is_none())
            .collect();
        let blocks = longest(address, &mut neighbours, count, gap_max);
        neighbours.retain(|child| blocks.contains(&child.pointer.address));
        (!neighbours.is_empty()).then_some(Neighbourhood { blocks, neighbours })
    }

    /// Adds a node that was read along with a missing one. It leaves the cache earlier than others unless it is used.
    pub fn insert_neighbour(&mut self, neighbour: &NodeNotCached, node: VerifiedNode) {
        let (pointer, node) = node.into_parts();
        assert!(pointer == neighbour.pointer, "a node is given for {neighbour:?}, not {pointer:?}");
        self.cache.add_neighbour(pointer, node);
    }
}

/// Extends the block at `address` to neighbours, the nearest first, over gaps of up to `gap_max` blocks, as long as it has at most
/// `count` blocks.
fn longest(address: u64, neighbours: &mut [NodeNotCached], count: u64, gap_max: u64) -> Range<u64> {
    neighbours.sort_by_key(|node| node.pointer.address.abs_diff(address));
    let mut blocks = address..address.saturating_add(1);
    for node in neighbours {
        let at = node.pointer.address;
        let longer = blocks.start.min(at)..blocks.end.max(at.saturating_add(1));
        let added = (longer.end - longer.start) - (blocks.end - blocks.start);
        if longer.end - longer.start <= count && added <= gap_max.saturating_add(1) {
            blocks = longer;
        }
    }
    blocks
}
