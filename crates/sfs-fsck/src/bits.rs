//! A set of blocks of the device.
//!
//! Owns: one bit for each block, in pages that exist from their first bit on.
//! Promises: 128 MiB of device take 4 KiB of memory, if anything in them is in the set.
//! Never: fails for an address, however large.

use std::collections::HashMap;

/// Words of a page.
const PAGE_WORDS: usize = 512;

/// Bits of a page.
const PAGE_BITS: u64 = PAGE_WORDS as u64 * 64;

/// A set of block addresses.
#[derive(Default)]
pub(crate) struct Bits(HashMap<u64, Box<[u64; PAGE_WORDS]>>);

impl Bits {
    /// Adds `address`; whether it was not there.
    pub(crate) fn insert(&mut self, address: u64) -> bool {
        let page = self.0.entry(address / PAGE_BITS).or_insert_with(|| Box::new([0; PAGE_WORDS]));
        let (word, mask) = place(address);
        let is_new = page[word] & mask == 0;
        page[word] |= mask;
        is_new
    }

    /// Whether `address` is in the set.
    pub(crate) fn contains(&self, address: u64) -> bool {
        let (word, mask) = place(address);
        self.0.get(&(address / PAGE_BITS)).is_some_and(|page| page[word] & mask != 0)
    }
}

fn place(address: u64) -> (usize, u64) {
    ((address % PAGE_BITS / 64) as usize, 1 << (address % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_there_and_nothing_else() {
        let mut bits = Bits::default();
        let added = [0, 1, 63, 64, PAGE_BITS - 1, PAGE_BITS, u64::MAX];
        assert!(added.iter().all(|address| bits.insert(*address)));
        assert!(added.iter().all(|address| !bits.insert(*address) && bits.contains(*address)));
        for other in [2, 62, 65, PAGE_BITS - 2, PAGE_BITS + 1, u64::MAX - 1] {
            assert!(!bits.contains(other), "{other}");
        }
    }
}
