//! The full clustered blocks of a gang, in the order in which they would be cleaned.
//!
//! Greedy collection has one linked list for each number of live pages; FIFO collection has a
//! single list. Every update that a write causes takes constant time.

use super::layer::Collection;
use crate::flash::NONE;

/// Full blocks of a gang, by their number on the device.
pub(super) struct VictimQueue {
    collection: Collection,
    /// First and last block of the list of each number of live pages; FIFO has the first list only.
    lists: Vec<[u32; 2]>,
    /// Previous and next block of each block in its list; `NONE` at the ends.
    links: Vec<[u32; 2]>,
    /// List of each block; `NONE` for a block that is not queued.
    list_of: Vec<u32>,
    /// Lower bound on the index of the first list that is not empty.
    first: usize,
}

impl VictimQueue {
    pub(super) fn new(collection: Collection, clusters: u32, cluster_pages: u32) -> VictimQueue {
        let list_count = match collection {
            Collection::Greedy => cluster_pages as usize + 1,
            Collection::Fifo => 1,
        };
        VictimQueue {
            collection,
            lists: vec![[NONE; 2]; list_count],
            links: vec![[NONE; 2]; clusters as usize],
            list_of: vec![NONE; clusters as usize],
            first: list_count - 1,
        }
    }

    /// Adds a block that became full, with the number of its live pages.
    pub(super) fn add(&mut self, cluster: u32, live_pages: u32) {
        let list = match self.collection {
            Collection::Greedy => live_pages,
            Collection::Fifo => 0,
        };
        let last = self.lists[list as usize][1];
        self.links[cluster as usize] = [last, NONE];
        match last {
            NONE => self.lists[list as usize][0] = cluster,
            _ => self.links[last as usize][1] = cluster,
        }
        self.lists[list as usize][1] = cluster;
        self.list_of[cluster as usize] = list;
        self.first = self.first.min(list as usize);
    }

    /// Removes a block and returns whether it was queued.
    pub(super) fn remove(&mut self, cluster: u32) -> bool {
        let list = std::mem::replace(&mut self.list_of[cluster as usize], NONE);
        if list == NONE {
            return false;
        }
        let [before, after] = self.links[cluster as usize];
        let list = &mut self.lists[list as usize];
        match before {
            NONE => list[0] = after,
            _ => self.links[before as usize][1] = after,
        }
        match after {
            NONE => list[1] = before,
            _ => self.links[after as usize][0] = before,
        }
        true
    }

    /// Updates a block, one of whose pages became dead, to its lower number of live pages.
    pub(super) fn lower(&mut self, cluster: u32, live_pages: u32) {
        if self.collection == Collection::Greedy && self.remove(cluster) {
            self.add(cluster, live_pages);
        }
    }

    /// Returns the next victim.
    pub(super) fn first(&mut self) -> Option<u32> {
        while self.first + 1 < self.lists.len() && self.lists[self.first][0] == NONE {
            self.first += 1;
        }
        let cluster = self.lists[self.first][0];
        (cluster != NONE).then_some(cluster)
    }

    /// Returns whether a block is queued.
    pub(super) fn has(&self, cluster: u32) -> bool {
        self.list_of[cluster as usize] != NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(mut victims: VictimQueue) -> Vec<u32> {
        std::iter::from_fn(|| victims.first().inspect(|&first| assert!(victims.remove(first))))
            .collect()
    }

    fn filled(collection: Collection) -> VictimQueue {
        let mut victims = VictimQueue::new(collection, 6, 8);
        for (cluster, live_pages) in [(0, 8), (1, 3), (2, 5), (3, 3)] {
            victims.add(cluster, live_pages);
        }
        victims.lower(0, 7);
        victims.lower(2, 3);
        victims.lower(5, 0);
        victims
    }

    #[test]
    fn greedy_returns_the_block_with_the_fewest_live_pages_first() {
        assert_eq!(drained(filled(Collection::Greedy)), [1, 3, 2, 0]);
    }

    #[test]
    fn fifo_returns_the_block_that_was_filled_first() {
        assert_eq!(drained(filled(Collection::Fifo)), [0, 1, 2, 3]);
    }

    #[test]
    fn a_removed_block_is_not_returned() {
        let mut victims = filled(Collection::Greedy);
        assert!(victims.remove(3) && !victims.remove(3) && !victims.has(3) && victims.has(2));
        assert_eq!(drained(victims), [1, 2, 0]);
    }
}
