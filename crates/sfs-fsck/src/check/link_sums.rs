//! Comparison of link counts with names in bounded memory.
//!
//! The links of each inode and the names that lead to it are two sets of hashes. The sums of both sets are
//! equal if each link has its name. Inode numbers are spread over a fixed number of buckets, and a bucket whose
//! sums differ is a *suspect*: its inodes and names have to be compared one by one.

use fixedbitset::FixedBitSet;
use sfs_core::format::FileKind;

use crate::check::reference::mix;

/// Number of buckets. Neighbouring inode numbers are in different buckets.
const BUCKETS: usize = 1 << 20;

/// Sums of links and names by bucket.
#[derive(Default)]
pub(crate) struct LinkSums {
    /// Sum for the links minus sum for the names, up to the last bucket with either.
    differences: Vec<u64>,
    suspects: FixedBitSet,
}

impl LinkSums {
    /// Adds an inode with `links` links.
    pub(crate) fn add_links(&mut self, ino: u64, kind: FileKind, links: u32) {
        let sum = self.difference(ino);
        *sum = sum.wrapping_add(hash(ino, kind as u8).wrapping_mul(links.into()));
    }

    /// Adds a name that leads to inode `target`.
    pub(crate) fn add_name(&mut self, target: u64, kind: u8) {
        let sum = self.difference(target);
        *sum = sum.wrapping_sub(hash(target, kind));
    }

    fn difference(&mut self, ino: u64) -> &mut u64 {
        let bucket = bucket(ino);
        if bucket >= self.differences.len() {
            self.differences.resize((bucket + 1).next_power_of_two(), 0);
        }
        &mut self.differences[bucket]
    }

    /// Makes the bucket of `ino` a suspect, whatever its sums are.
    pub(crate) fn suspect(&mut self, ino: u64) {
        self.suspects.grow_and_insert(bucket(ino));
    }

    /// Makes suspects of the buckets whose sums differ. Returns whether there are suspects.
    pub(crate) fn compare(&mut self) -> bool {
        for (bucket, difference) in self.differences.iter().enumerate() {
            if *difference != 0 {
                self.suspects.grow_and_insert(bucket);
            }
        }
        !self.suspects.is_clear()
    }

    /// Returns whether the bucket of `ino` is a suspect.
    pub(crate) fn is_suspect(&self, ino: u64) -> bool {
        self.suspects.contains(bucket(ino))
    }
}

fn bucket(ino: u64) -> usize {
    (ino % BUCKETS as u64) as usize
}

/// Returns the hash of one link. The hash is odd, so its product with a nonzero difference of link
/// counts is not 0.
fn hash(ino: u64, kind: u8) -> u64 {
    mix(mix(ino) ^ u64::from(kind)) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_buckets_with_a_difference_are_suspects() {
        let regular = FileKind::Regular;
        let mut sums = LinkSums::default();
        for ino in 16..2000 {
            sums.add_links(ino, regular, (ino % 3) as u32);
            (0..ino % 3).for_each(|_| sums.add_name(ino, regular as u8));
        }
        assert!(!sums.compare());
        sums.add_links(20, regular, 1);
        sums.add_name(21, regular as u8);
        sums.add_links(22, regular, 1);
        sums.add_name(22, FileKind::Symlink as u8);
        sums.suspect(23);
        assert!(sums.compare());
        let suspects: Vec<u64> = (16..2000).filter(|ino| sums.is_suspect(*ino)).collect();
        assert_eq!(suspects, [20, 21, 22, 23]);
    }

    /// A link of one inode does not cancel out a name of another inode in the same bucket.
    #[test]
    fn inodes_of_one_bucket_are_told_apart() {
        let mut sums = LinkSums::default();
        sums.add_links(16, FileKind::Regular, 1);
        sums.add_name(16 + BUCKETS as u64, FileKind::Regular as u8);
        assert!(sums.compare() && sums.is_suspect(16));
    }
}
