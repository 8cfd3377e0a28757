//! Sparse set of block addresses.
//!
//! A page of bits covers 128 MiB of the device. The page takes 4 KiB of memory, and exists from its first bit on.
//! The set accepts all addresses, independent of the size of the device.

use std::collections::HashMap;

use fixedbitset::FixedBitSet;

/// Number of bits in a page.
const PAGE_BITS: u64 = 512 * 64;

/// Set of block addresses.
#[derive(Default)]
pub(crate) struct BlockSet {
    /// Pages by address / [`PAGE_BITS`].
    pages: HashMap<u64, FixedBitSet>,
}

impl BlockSet {
    /// Adds `address`. Returns whether it is new in the set.
    pub(crate) fn insert(&mut self, address: u64) -> bool {
        let new_page = || FixedBitSet::with_capacity(PAGE_BITS as usize);
        let page = self.pages.entry(address / PAGE_BITS).or_insert_with(new_page);
        !page.put((address % PAGE_BITS) as usize)
    }

    /// Returns whether `address` is in the set.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let page = self.pages.get(&(address / PAGE_BITS));
        page.is_some_and(|page| page.contains((address % PAGE_BITS) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_contains_exactly_the_inserted_addresses() {
        let mut set = BlockSet::default();
        let added = [0, 1, 63, 64, PAGE_BITS - 1, PAGE_BITS, u64::MAX];
        assert!(added.iter().all(|address| set.insert(*address)));
        assert!(added.iter().all(|address| !set.insert(*address) && set.contains(*address)));
        for other in [2, 62, 65, PAGE_BITS - 2, PAGE_BITS + 1, u64::MAX - 1] {
            assert!(!set.contains(other), "{other}");
        }
    }
}
