//! Least recently used.

use super::chain::Chains;
use super::{EvictionPolicy, ExtentKey};

/// One list, by last use.
pub(super) struct LeastRecentlyUsed(Chains);

impl Default for LeastRecentlyUsed {
    fn default() -> Self {
        Self(Chains::new(1))
    }
}

impl EvictionPolicy for LeastRecentlyUsed {
    fn insert(&mut self, key: ExtentKey) {
        self.0.push_newest(0, key, 0);
    }

    fn touch(&mut self, key: ExtentKey) {
        if self.0.remove(key) {
            self.0.push_newest(0, key, 0);
        }
    }

    fn remove(&mut self, key: ExtentKey) {
        self.0.remove(key);
    }

    fn evict(&mut self, _: ExtentKey) -> Option<ExtentKey> {
        self.0.pop_oldest(0).map(|(key, _)| key)
    }

    fn len(&self) -> usize {
        self.0.len(0)
    }
}
