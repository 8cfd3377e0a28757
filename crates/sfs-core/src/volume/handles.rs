//! In-core files: what is in memory of a file beyond its tree items.
//!
//! Owns: references that callers hold, dirty blocks, and attributes that wait for data.
//! Promises: a file that is referenced or dirty keeps its handle.
//! Never: touches the tree or the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;

use crate::buffer::BlockRef;
use crate::format::{Inode, Timestamp};

/// A block that is not on the device yet.
#[derive(Clone, Debug)]
pub(crate) struct DirtyBlock {
    pub(crate) memory: BlockRef,
    /// CRC-32C of the memory.
    pub(crate) checksum: u32,
}

/// Attributes that must not reach the tree before the data they speak of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Length in bytes.
    pub(crate) size: u64,
    /// mtime and ctime of the last write, unless the caller keeps them.
    pub(crate) times: Option<(Timestamp, Timestamp)>,
}

impl Pending {
    /// `inode` as callers see it.
    pub(crate) fn overlay(self, inode: &mut Inode) {
        inode.size = self.size;
        if let Some((mtime, ctime)) = self.times {
            inode.mtime = mtime;
            inode.ctime = inode.ctime.max(ctime);
        }
    }
}

/// The data of a file in memory.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    pub(crate) dirty: BTreeMap<u32, DirtyBlock>,
    pub(crate) pending: Option<Pending>,
    /// The namespace already says something that only makes sense with this data: it goes with
    /// the next delta (durability contract, sentence 4).
    pub(crate) ordered: bool,
}

/// One in-core file.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) ino: u64,
    /// Readers of the content share it; writers and truncation have it alone.
    pub(crate) io: RwLock<()>,
    data: Mutex<FileData>,
    references: AtomicU64,
}

impl Handle {
    fn new(ino: u64) -> Self {
        Self { ino, io: RwLock::new(()), data: Mutex::default(), references: AtomicU64::new(0) }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, FileData> {
        self.data.lock()
    }

    fn is_idle(&self) -> bool {
        let data = self.data.lock();
        self.references.load(Ordering::Relaxed) == 0
            && data.dirty.is_empty()
            && data.pending.is_none()
    }
}

const SHARDS: usize = 16;

/// All in-core files.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    shards: [Mutex<FxHashMap<u64, Arc<Handle>>>; SHARDS],
}

impl Handles {
    fn shard(&self, ino: u64) -> MutexGuard<'_, FxHashMap<u64, Arc<Handle>>> {
        self.shards[ino as usize % SHARDS].lock()
    }

    /// The handle of `ino`, made if there is none.
    pub(crate) fn get(&self, ino: u64) -> Arc<Handle> {
        self.shard(ino).entry(ino).or_insert_with(|| Arc::new(Handle::new(ino))).clone()
    }

    /// The handle of `ino` if there is one.
    pub(crate) fn find(&self, ino: u64) -> Option<Arc<Handle>> {
        self.shard(ino).get(&ino).cloned()
    }

    /// A caller got to know `ino`.
    pub(crate) fn refer(&self, ino: u64) {
        let mut shard = self.shard(ino);
        let handle = shard.entry(ino).or_insert_with(|| Arc::new(Handle::new(ino)));
        handle.references.fetch_add(1, Ordering::Relaxed);
    }

    /// A caller forgets `count` references; says whether none is left.
    pub(crate) fn forget(&self, ino: u64, count: u64) -> bool {
        let mut shard = self.shard(ino);
        let Some(handle) = shard.get(&ino) else { return true };
        let before = handle.references.load(Ordering::Relaxed);
        let left = before.saturating_sub(count);
        handle.references.store(left, Ordering::Relaxed);
        if left == 0 && Arc::strong_count(handle) == 1 && handle.is_idle() {
            shard.remove(&ino);
        }
        left == 0
    }

    /// Whether a caller knows `ino`.
    pub(crate) fn is_referenced(&self, ino: u64) -> bool {
        self.shard(ino).get(&ino).is_some_and(|h| h.references.load(Ordering::Relaxed) > 0)
    }

    /// References that callers hold, over all files.
    pub(crate) fn reference_count(&self) -> u64 {
        let count = |shard: &Mutex<FxHashMap<u64, Arc<Handle>>>| {
            shard.lock().values().map(|h| h.references.load(Ordering::Relaxed)).sum::<u64>()
        };
        self.shards.iter().map(count).sum()
    }

    /// Drops handles that nobody needs.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            shard.lock().retain(|_, handle| Arc::strong_count(handle) > 1 || !handle.is_idle());
        }
    }
}
