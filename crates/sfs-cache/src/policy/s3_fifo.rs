//! S3-FIFO (Yang et al., SOSP 2023): three queues in the order of arrival.
//!
//! A new key goes to the *small* queue, a tenth of the cache. A key that was used there twice moves to the *main* queue, the
//! others leave, and a list of *ghosts* remembers them: a ghost that comes back goes to the main queue at once. A key that
//! was used in the main queue goes round once more for each use, up to three times.

use super::chain::Chains;
use super::{EvictionPolicy, ExtentKey};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Largest count of uses.
const USES_MAX: u8 = 3;

/// Uses in the small queue after which a key moves to the main queue.
const USES_TO_MOVE: u8 = 2;

/// The queues of S3-FIFO.
pub(super) struct S3Fifo {
    queues: Chains,
    small_max: usize,
    ghosts_max: usize,
}

impl S3Fifo {
    /// Returns empty queues for `capacity` keys.
    pub(super) fn new(capacity: usize) -> Self {
        let small_max = (capacity / 10).max(1);
        Self { queues: Chains::new(3), small_max, ghosts_max: capacity.saturating_sub(small_max) }
    }

    fn evict_small(&mut self) -> Option<ExtentKey> {
        while let Some((key, uses)) = self.queues.pop_oldest(SMALL) {
            if uses < USES_TO_MOVE {
                self.queues.push_newest(GHOST, key, 0);
                while self.queues.len(GHOST) > self.ghosts_max {
                    self.queues.pop_oldest(GHOST);
                }
                return Some(key);
            }
            self.queues.push_newest(MAIN, key, 0);
        }
        None
    }

    fn evict_main(&mut self) -> Option<ExtentKey> {
        while let Some((key, uses)) = self.queues.pop_oldest(MAIN) {
            match uses {
                0 => return Some(key),
                _ => self.queues.push_newest(MAIN, key, uses - 1),
            }
        }
        None
    }
}

impl EvictionPolicy for S3Fifo {
    fn insert(&mut self, key: ExtentKey) {
        let queue = if self.queues.remove(key) { MAIN } else { SMALL };
        self.queues.push_newest(queue, key, 0);
    }

    fn touch(&mut self, key: ExtentKey) {
        if self.queues.list_of(key).is_some_and(|queue| queue != GHOST)
            && let Some(uses) = self.queues.count_mut(key)
        {
            *uses = (*uses + 1).min(USES_MAX);
        }
    }

    fn remove(&mut self, key: ExtentKey) {
        self.queues.remove(key);
    }

    fn evict(&mut self, _: ExtentKey) -> Option<ExtentKey> {
        if self.queues.len(SMALL) >= self.small_max
            && let Some(key) = self.evict_small()
        {
            return Some(key);
        }
        // The keys of the small queue may all move to the main one.
        self.evict_main().or_else(|| self.evict_small()).or_else(|| self.evict_main())
    }

    fn len(&self) -> usize {
        self.queues.len(SMALL) + self.queues.len(MAIN)
    }
}
