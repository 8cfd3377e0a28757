//! The circular multilevel LRU of the N-hybrid paper (section III C), with extents in place of its inodes.
//!
//! Levels of 1,024 keys stand in a circle. A key goes to the *current* level, and back to it when it is used again. A full
//! current level makes the next one current. Keys leave from the *flush* level, the one with the oldest keys.

use super::chain::Chains;
use super::{EvictionPolicy, ExtentKey};

/// Keys of a level ("each queue links 1K number of accessed inodes").
const LEVEL_KEYS: usize = 1024;

/// Levels in a circle.
pub(super) struct MultilevelLru {
    levels: Chains,
    level_count: usize,
    level_keys: usize,
    current: usize,
    flush: usize,
    len: usize,
}

impl MultilevelLru {
    /// Returns empty levels for `capacity` keys. The smallest caches have shorter levels, so that there are several.
    pub(super) fn new(capacity: usize) -> Self {
        let level_keys = LEVEL_KEYS.min(capacity / 8).max(1);
        let level_count = capacity.div_ceil(level_keys) + 2;
        let levels = Chains::new(level_count);
        Self { levels, level_count, level_keys, current: 0, flush: 0, len: 0 }
    }

    fn after(&self, level: usize) -> usize {
        (level + 1) % self.level_count
    }

    fn push(&mut self, key: ExtentKey) {
        if self.levels.len(self.current) >= self.level_keys {
            let next = self.after(self.current);
            if next == self.flush {
                self.leave_flush_level();
            }
            self.current = next;
        }
        self.levels.push_newest(self.current, key, 0);
    }

    /// Makes the level after the flush level the flush level, and its oldest keys those of the flush level: uses have
    /// thinned the levels out, so that more of them are in use than the keys would fill.
    fn leave_flush_level(&mut self) {
        let next = self.after(self.flush);
        let mut left = Vec::new();
        while let Some((key, _)) = self.levels.pop_oldest(self.flush) {
            left.push(key);
        }
        left.into_iter().rev().for_each(|key| self.levels.push_oldest(next, key));
        self.flush = next;
    }
}

impl EvictionPolicy for MultilevelLru {
    fn insert(&mut self, key: ExtentKey) {
        self.push(key);
        self.len += 1;
    }

    fn touch(&mut self, key: ExtentKey) {
        if self.levels.list_of(key).is_some_and(|level| level != self.current) {
            self.levels.remove(key);
            self.push(key);
        }
    }

    fn remove(&mut self, key: ExtentKey) {
        self.len -= usize::from(self.levels.remove(key));
    }

    fn evict(&mut self, _: ExtentKey) -> Option<ExtentKey> {
        loop {
            if let Some((key, _)) = self.levels.pop_oldest(self.flush) {
                self.len -= 1;
                return Some(key);
            }
            if self.flush == self.current {
                return None;
            }
            self.flush = self.after(self.flush);
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
