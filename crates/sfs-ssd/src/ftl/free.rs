//! Erased clustered blocks, waiting for use.
//!
//! Owns: their order.
//! Promises: the same order every time; the least worn first if wear is levelled, else the first
//! freed.
//! Never: erases.

use std::collections::BTreeSet;

use super::WearLevelling;

/// Free clustered blocks.
pub(super) struct Free {
    wear: WearLevelling,
    /// Erase count (zero if it does not matter), a number that grows, the block.
    order: BTreeSet<(u32, u64, u32)>,
    freed_count: u64,
}

impl Free {
    pub(super) fn new(wear: WearLevelling, clusters: impl Iterator<Item = u32>) -> Free {
        let mut free = Free { wear, order: BTreeSet::new(), freed_count: 0 };
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

    /// The next to be used.
    ///
    /// # Panics
    ///
    /// If there is none: layers make room before they need it.
    pub(super) fn take(&mut self) -> u32 {
        self.order.pop_first().expect("room was made before").2
    }

    /// The most worn one, for what will not change soon.
    pub(super) fn take_most_worn(&mut self) -> Option<u32> {
        self.order.pop_last().map(|(_, _, cluster)| cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_worn_comes_first_or_the_first_freed() {
        let mut levelled = Free::new(WearLevelling::Dynamic, 0..0);
        let mut plain = Free::new(WearLevelling::None, 0..0);
        for free in [&mut levelled, &mut plain] {
            [(7, 3), (8, 1), (9, 3)]
                .into_iter()
                .for_each(|(cluster, erases)| free.put(cluster, erases));
        }
        assert_eq!([(); 3].map(|()| plain.take()), [7, 8, 9]);
        assert_eq!((levelled.take(), levelled.take_most_worn(), levelled.len()), (8, Some(9), 1));
    }
}
