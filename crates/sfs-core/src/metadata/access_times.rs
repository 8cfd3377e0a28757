//! Times of access that wait in memory, as with the mount option `lazytime` of the kernel's filesystems.
//!
//! Reading a file moves its time of access here, and not in the tree. Every reader of the inode sees this time, and so does
//! every transaction that changes the inode: the time is written with the inode, and forgotten here. A crash loses
//! the times that wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::format::Timestamp;

/// Maximum number of files whose times wait; about 2 MiB of memory.
const FILES_MAX: usize = 1 << 15;

/// Times of access that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct AccessTimes {
    waiting: RwLock<WaitingTimes>,
    /// Length of `waiting`, to be read without its lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct WaitingTimes {
    times: FxHashMap<u64, Timestamp>,
    /// Time of the first access of all that wait, in seconds since 1970.
    since: Option<i64>,
}

impl AccessTimes {
    /// Returns the time of the last access to `ino`, if it waits.
    pub(crate) fn get(&self, ino: u64) -> Option<Timestamp> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.waiting.read().times.get(&ino).copied()
    }

    /// Sets the time of the last access to `ino`. Returns `false` if too many times wait.
    pub(crate) fn set(&self, ino: u64, time: Timestamp) -> bool {
        let mut waiting = self.waiting.write();
        if waiting.times.len() >= FILES_MAX && !waiting.times.contains_key(&ino) {
            return false;
        }
        waiting.times.insert(ino, time);
        waiting.since.get_or_insert(time.secs);
        self.count.store(waiting.times.len(), Ordering::Relaxed);
        true
    }

    /// Forgets the time of `ino`: it was written, or the file was deleted.
    pub(crate) fn forget(&self, ino: u64) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut waiting = self.waiting.write();
        waiting.times.remove(&ino);
        if waiting.times.is_empty() {
            *waiting = WaitingTimes::default();
        }
        self.count.store(waiting.times.len(), Ordering::Relaxed);
    }

    /// Returns the files whose times wait.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.waiting.read().times.keys().copied().collect()
    }

    /// Returns whether so many times wait that they should be written soon.
    pub(crate) fn are_many(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= FILES_MAX / 2
    }

    /// Returns the time of the first access of all that wait, in seconds since 1970.
    pub(crate) fn since(&self) -> Option<i64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.waiting.read().since
    }
}
