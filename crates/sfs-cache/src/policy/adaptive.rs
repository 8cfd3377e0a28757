//! ARC (Megiddo and Modha, FAST 2003): two LRU lists, of keys used once and of keys used again, and the ghosts of both.
//!
//! A ghost that comes back moves the border between the lists towards the list that has lost it.

use super::chain::Chains;
use super::{EvictionPolicy, ExtentKey};

const ONCE: usize = 0;
const AGAIN: usize = 1;
const GHOSTS_OF_ONCE: usize = 2;
const GHOSTS_OF_AGAIN: usize = 3;

/// The lists of ARC.
pub(super) struct AdaptiveReplacement {
    lists: Chains,
    capacity: usize,
    /// Wanted length of the list of keys used once.
    once_target: usize,
}

impl AdaptiveReplacement {
    /// Returns empty lists for `capacity` keys.
    pub(super) fn new(capacity: usize) -> Self {
        Self { lists: Chains::new(4), capacity: capacity.max(1), once_target: 0 }
    }

    /// Moves the border for a ghost that comes back.
    fn adapt(&mut self, list: usize) {
        let [once, again] =
            [GHOSTS_OF_ONCE, GHOSTS_OF_AGAIN].map(|list| self.lists.len(list).max(1));
        self.once_target = match list {
            GHOSTS_OF_ONCE => (self.once_target + (again / once).max(1)).min(self.capacity),
            _ => self.once_target.saturating_sub((once / again).max(1)),
        };
    }

    fn limit_ghosts(&mut self) {
        while self.lists.len(ONCE) + self.lists.len(GHOSTS_OF_ONCE) > self.capacity
            && self.lists.pop_oldest(GHOSTS_OF_ONCE).is_some()
        {}
        let all =
            |lists: &Chains| (ONCE..=GHOSTS_OF_AGAIN).map(|list| lists.len(list)).sum::<usize>();
        while all(&self.lists) > 2 * self.capacity
            && self.lists.pop_oldest(GHOSTS_OF_AGAIN).is_some()
        {}
    }
}

impl EvictionPolicy for AdaptiveReplacement {
    fn insert(&mut self, key: ExtentKey) {
        let to = match self.lists.list_of(key) {
            Some(list) => {
                self.lists.remove(key);
                if list >= GHOSTS_OF_ONCE {
                    self.adapt(list);
                }
                AGAIN
            }
            None => ONCE,
        };
        self.lists.push_newest(to, key, 0);
        self.limit_ghosts();
    }

    fn touch(&mut self, key: ExtentKey) {
        if self.lists.list_of(key).is_some_and(|list| list <= AGAIN) {
            self.lists.remove(key);
            self.lists.push_newest(AGAIN, key, 0);
        }
    }

    fn remove(&mut self, key: ExtentKey) {
        self.lists.remove(key);
    }

    fn evict(&mut self, incoming: ExtentKey) -> Option<ExtentKey> {
        let once = self.lists.len(ONCE);
        let is_ghost_of_again = self.lists.list_of(incoming) == Some(GHOSTS_OF_AGAIN);
        let takes_once = once > 0
            && (once > self.once_target || (is_ghost_of_again && once == self.once_target));
        let order = if takes_once { [ONCE, AGAIN] } else { [AGAIN, ONCE] };
        let (list, key) =
            order.into_iter().find_map(|list| Some((list, self.lists.pop_oldest(list)?.0)))?;
        self.lists.push_newest(list + GHOSTS_OF_ONCE, key, 0);
        Some(key)
    }

    fn len(&self) -> usize {
        self.lists.len(ONCE) + self.lists.len(AGAIN)
    }
}
