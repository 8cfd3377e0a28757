//! Doubly linked lists of keys in one vector: every key is in at most one list, and is found, moved and removed in
//! constant time.

use rustc_hash::FxHashMap;

use super::ExtentKey;

/// End of a list.
const NONE: u32 = u32::MAX;

struct Node {
    key: ExtentKey,
    list: u32,
    newer: u32,
    older: u32,
    count: u8,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    len: usize,
}

/// Lists of keys, each from its newest to its oldest key.
pub(super) struct Chains {
    nodes: Vec<Node>,
    unused: Vec<u32>,
    places: FxHashMap<ExtentKey, u32>,
    lists: Vec<Ends>,
}

impl Chains {
    /// Returns `count` empty lists.
    pub(super) fn new(count: usize) -> Self {
        let empty = Ends { newest: NONE, oldest: NONE, len: 0 };
        Self {
            nodes: Vec::new(),
            unused: Vec::new(),
            places: FxHashMap::default(),
            lists: vec![empty; count],
        }
    }

    /// Returns the length of a list.
    pub(super) fn len(&self, list: usize) -> usize {
        self.lists[list].len
    }

    /// Returns the list that has `key`.
    pub(super) fn list_of(&self, key: ExtentKey) -> Option<usize> {
        self.places.get(&key).map(|at| self.nodes[*at as usize].list as usize)
    }

    /// Returns the counter of `key`, which is in a list.
    pub(super) fn count_mut(&mut self, key: ExtentKey) -> Option<&mut u8> {
        self.places.get(&key).map(|at| &mut self.nodes[*at as usize].count)
    }

    /// Puts `key`, which is in no list, before the newest one, with this counter.
    pub(super) fn push_newest(&mut self, list: usize, key: ExtentKey, count: u8) {
        let at = self.place(list, key, count);
        let Ends { newest, .. } = self.lists[list];
        self.nodes[at as usize].older = newest;
        match newest {
            NONE => self.lists[list].oldest = at,
            _ => self.nodes[newest as usize].newer = at,
        }
        self.lists[list].newest = at;
    }

    /// Puts `key`, which is in no list, behind the oldest one.
    pub(super) fn push_oldest(&mut self, list: usize, key: ExtentKey) {
        let at = self.place(list, key, 0);
        let Ends { oldest, .. } = self.lists[list];
        self.nodes[at as usize].newer = oldest;
        match oldest {
            NONE => self.lists[list].newest = at,
            _ => self.nodes[oldest as usize].older = at,
        }
        self.lists[list].oldest = at;
    }

    fn place(&mut self, list: usize, key: ExtentKey, count: u8) -> u32 {
        let node = Node { key, list: list as u32, newer: NONE, older: NONE, count };
        let at = match self.unused.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        let before = self.places.insert(key, at);
        assert!(before.is_none(), "a key is in one list");
        self.lists[list].len += 1;
        at
    }

    /// Removes `key`; returns whether it was in a list.
    pub(super) fn remove(&mut self, key: ExtentKey) -> bool {
        let Some(at) = self.places.remove(&key) else { return false };
        let Node { list, newer, older, .. } = self.nodes[at as usize];
        let ends = &mut self.lists[list as usize];
        ends.len -= 1;
        match newer {
            NONE => ends.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => ends.oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        self.unused.push(at);
        true
    }

    /// Removes and returns the oldest key of a list, with its counter.
    pub(super) fn pop_oldest(&mut self, list: usize) -> Option<(ExtentKey, u8)> {
        let at = self.lists[list].oldest;
        let Node { key, count, .. } = *self.nodes.get(at as usize)?;
        self.remove(key);
        Some((key, count))
    }
}
