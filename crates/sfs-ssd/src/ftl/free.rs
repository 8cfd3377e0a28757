//! The list of free clustered blocks, in the order of their next use.
//!
//! With wear levelling, the least worn block is used first, and otherwise the block that was freed first.
//! Blocks of equal wear are used in the order in which they were freed, so the order is deterministic.

use std::collections::BTreeSet;

use super::layer::WearLevelling;

/// Free clustered blocks.
pub(super) struct FreeBlocks {
    wear: WearLevelling,
    /// Erase count (zero without wear levelling), running number, clustered block.
    order: BTreeSet<(u32, u64, u32)>,
    freed_count: u64,
}

impl FreeBlocks {
    pub(super) fn new(wear: WearLevelling, clusters: impl Iterator<Item = u32>) -> FreeBlocks {
        let mut free = FreeBlocks { wear, order: BTreeSet::new(), freed_count: 0 };
        clusters.for_each(|cluster| free.put(cluster, 0));
        free
    }

    pub(super) fn len(&self) -> u32 {
        self.order.len() as u32
    }

    pub(super) fn put(&mut self, cluster: u32, erases: u32) {
        let rank = if self.wear == WearLevelling::None { 0 } else { erases };
        self.order.insert((rank, self.freed_count, cluster));
        self.freed_count += 1;
    }

    /// Removes and returns the block to be used next.
    ///
    /// # Panics
    ///
    /// If no block is free. Layers clean before they run out.
    pub(super) fn take(&mut self) -> u32 {
        self.order.pop_first().expect("layers clean before they run out of free blocks").2
    }

    /// Removes and returns the most worn block, for data that will not change soon.
    pub(super) fn take_most_worn(&mut self) -> Option<u32> {
        self.order.pop_last().map(|(_, _, cluster)| cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_worn_block_is_first_or_the_first_freed() {
        let mut levelled = FreeBlocks::new(WearLevelling::Dynamic, 0..0);
        let mut plain = FreeBlocks::new(WearLevelling::None, 0..0);
        for free in [&mut levelled, &mut plain] {
            [(7, 3), (8, 1), (9, 3)]
                .into_iter()
                .for_each(|(cluster, erases)| free.put(cluster, erases));
        }
        assert_eq!([(); 3].map(|()| plain.take()), [7, 8, 9]);
        assert_eq!((levelled.take(), levelled.take_most_worn(), levelled.len()), (8, Some(9), 1));
    }
}
