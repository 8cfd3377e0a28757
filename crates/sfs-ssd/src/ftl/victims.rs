//! Filled clustered blocks, in the order in which they would be cleaned.
//!
//! Owns: the order, as linked lists by the number of live pages.
//! Promises: constant time for what happens at every write.
//! Never: cleans.

use super::Collection;
use crate::flash::NONE;

/// The filled blocks of a pool, by their number on the device.
pub(super) struct Victims {
    collection: Collection,
    /// First and last of the list of each number of live pages (of the first list for FIFO).
    lists: Vec<[u32; 2]>,
    /// Before and after each block in its list; `NONE` at the ends.
    links: Vec<[u32; 2]>,
    /// Which list each block is in; `NONE` if it is not filled.
    list_of: Vec<u32>,
    /// No list before this one has any.
    first: usize,
}

impl Victims {
    pub(super) fn new(collection: Collection, clusters: u32, cluster_pages: u32) -> Victims {
        let list_count = match collection {
            Collection::Greedy => cluster_pages as usize + 1,
            Collection::Fifo => 1,
        };
        Victims {
            collection,
            lists: vec![[NONE; 2]; list_count],
            links: vec![[NONE; 2]; clusters as usize],
            list_of: vec![NONE; clusters as usize],
            first: list_count - 1,
        }
    }

    /// A block has been filled, and so many of its pages live.
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

    /// Takes a block out. Whether it was in.
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

    /// A page of a block has died; so many are left.
    pub(super) fn lower(&mut self, cluster: u32, live_pages: u32) {
        if self.collection == Collection::Greedy && self.remove(cluster) {
            self.add(cluster, live_pages);
        }
    }

    /// The next victim.
    pub(super) fn first(&mut self) -> Option<u32> {
        while self.first + 1 < self.lists.len() && self.lists[self.first][0] == NONE {
            self.first += 1;
        }
        let cluster = self.lists[self.first][0];
        (cluster != NONE).then_some(cluster)
    }

    /// Whether a block is among them.
    pub(super) fn has(&self, cluster: u32) -> bool {
        self.list_of[cluster as usize] != NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(mut victims: Victims) -> Vec<u32> {
        std::iter::from_fn(|| victims.first().inspect(|&first| assert!(victims.remove(first))))
            .collect()
    }

    fn filled(collection: Collection) -> Victims {
        let mut victims = Victims::new(collection, 6, 8);
        for (cluster, live_pages) in [(0, 8), (1, 3), (2, 5), (3, 3)] {
            victims.add(cluster, live_pages);
        }
        victims.lower(0, 7);
        victims.lower(2, 3);
        victims.lower(5, 0);
        victims
    }

    #[test]
    fn greedy_takes_the_emptiest_and_of_those_the_first() {
        assert_eq!(drained(filled(Collection::Greedy)), [1, 3, 2, 0]);
    }

    #[test]
    fn fifo_takes_the_first_filled() {
        assert_eq!(drained(filled(Collection::Fifo)), [0, 1, 2, 3]);
    }

    #[test]
    fn what_is_removed_does_not_come() {
        let mut victims = filled(Collection::Greedy);
        assert!(victims.remove(3) && !victims.remove(3) && !victims.has(3) && victims.has(2));
        assert_eq!(drained(victims), [1, 2, 0]);
    }
}
