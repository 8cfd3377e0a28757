//! Eviction policies: which extent leaves the cache when room is needed.
//!
//! A policy orders keys and knows nothing else: no device, no time. The laboratory runs the same policies over traces.

mod adaptive;
mod chain;
mod lru;
mod multilevel;
mod s3_fifo;

use adaptive::AdaptiveReplacement;
use lru::LeastRecentlyUsed;
use multilevel::MultilevelLru;
use s3_fifo::S3Fifo;

/// The part of an object that is cached as one: blocks `no * extent_blocks` and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentKey {
    /// Number of the object.
    pub object: u64,
    /// Number of the extent within the object, in extents.
    pub no: u64,
}

/// Order in which extents leave a cache.
pub trait EvictionPolicy: Send {
    /// Adds `key`, which is not in the cache.
    fn insert(&mut self, key: ExtentKey);

    /// Notes a use of `key`; nothing happens if it is not in the cache.
    fn touch(&mut self, key: ExtentKey);

    /// Removes `key`, which has left the cache for another reason; nothing happens if it is not in the cache.
    fn remove(&mut self, key: ExtentKey);

    /// Removes and returns the extent that makes room for `incoming`; `None` if the cache is empty.
    fn evict(&mut self, incoming: ExtentKey) -> Option<ExtentKey>;

    /// Returns the number of extents in the cache.
    fn len(&self) -> usize;

    /// Returns whether the cache is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Name of an eviction policy, with its code in the header of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PolicyName {
    /// S3-FIFO: a small queue for what is used once, a main queue, and a list of what the small queue has lost.
    #[default]
    S3Fifo = 1,
    /// The circular multilevel LRU of the N-hybrid paper.
    Multilevel = 2,
    /// Least recently used.
    Lru = 3,
    /// Adaptive replacement.
    Arc = 4,
}

impl PolicyName {
    /// All policies, in the order of the help.
    pub const ALL: [Self; 4] = [Self::S3Fifo, Self::Multilevel, Self::Lru, Self::Arc];

    /// Returns the name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::S3Fifo => "s3-fifo",
            Self::Multilevel => "multilevel",
            Self::Lru => "lru",
            Self::Arc => "arc",
        }
    }

    /// Returns the policy with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Returns the policy with this code.
    pub(crate) fn by_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| *policy as u8 == code)
    }

    /// Returns an empty policy for a cache of `capacity` extents.
    pub fn policy(self, capacity: usize) -> Box<dyn EvictionPolicy> {
        match self {
            Self::S3Fifo => Box::new(S3Fifo::new(capacity)),
            Self::Multilevel => Box::new(MultilevelLru::new(capacity)),
            Self::Lru => Box::new(LeastRecentlyUsed::default()),
            Self::Arc => Box::new(AdaptiveReplacement::new(capacity)),
        }
    }
}

#[cfg(test)]
mod tests;
