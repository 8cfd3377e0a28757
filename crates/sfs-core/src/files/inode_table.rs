//! Inode table: the state of a file in memory beyond its tree items.
//!
//! A file keeps its [`InodeState`] while it is dirty, and while data that still arrives would have to be ordered with
//! the next delta. References by callers are counted apart from the state: the kernel refers to every file that it has
//! listed, and a lookup makes no state.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxHashMap;
use sfs_device::BLOCK_SIZE;

use super::dirty_blocks::DirtyBlocks;
use super::writeback_errors::WritebackErrors;
use crate::format::{Inode, Timestamp};
use crate::lock_rank::{Rank, Ranked};

/// Attributes that must not reach the tree before the data that they describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Length in bytes.
    pub(crate) size: u64,
    /// mtime and ctime of the last write; `None` if the caller sets them itself.
    pub(crate) times: Option<(Timestamp, Timestamp)>,
}

impl Pending {
    /// Changes `inode` to the attributes that callers see.
    pub(crate) fn overlay(self, inode: &mut Inode) {
        inode.size = self.size;
        if let Some((mtime, ctime)) = self.times {
            inode.mtime = mtime;
            inode.ctime = inode.ctime.max(ctime);
        }
    }
}

/// Data of a file in memory.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    pub(crate) dirty: DirtyBlocks,
    pub(crate) pending: Option<Pending>,
    /// `Some` if a namespace change makes sense only together with the data of this file, present
    /// and future: the data goes with the next delta (durability contract, sentence 4). The value
    /// is the sequence number that the next chunk had at that change.
    pub(crate) flush_with_next_delta: Option<u64>,
    /// Dirty data of this file that was lost.
    pub(crate) errors: WritebackErrors,
}

impl FileData {
    /// Changes `inode` to the attributes that callers see.
    pub(crate) fn overlay(&self, inode: &mut Inode) {
        if let Some(pending) = self.pending {
            pending.overlay(inode);
        }
        inode.blocks = self.blocks_of(inode);
    }

    /// Returns the number of blocks of `inode` including dirty ones; the size in `inode` is as
    /// callers see it. Only the tree could tell which dirty blocks replace mapped blocks, and the
    /// tree is not read here. So the number is never too low, and too high only for a file with
    /// holes that is overwritten, until the commit.
    pub(crate) fn blocks_of(&self, inode: &Inode) -> u64 {
        let most = inode.size.div_ceil(BLOCK_SIZE as u64).max(inode.blocks);
        most.min(inode.blocks.saturating_add(self.dirty.uncovered() as u64))
    }

    /// Returns whether data of this file has to go with the next delta, and none has arrived yet.
    pub(crate) fn awaits_ordered_data(&self) -> bool {
        self.flush_with_next_delta.is_some() && self.dirty.is_empty()
    }

    /// Returns whether nothing of this state has to stay in memory when the next chunk has number `next_sequence`. Data
    /// that arrives after the chunk with the namespace change is too late to go with it.
    fn is_forgettable(&self, next_sequence: u64) -> bool {
        let is_encoded = self.flush_with_next_delta.is_none_or(|sequence| sequence < next_sequence);
        self.dirty.is_empty() && self.pending.is_none() && is_encoded && self.errors.all_reported()
    }
}

/// State of one file.
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) ino: u64,
    /// Lock of the content: readers share it, writers and truncation own it.
    io: RwLock<()>,
    /// Number of times that the content may have changed.
    version: AtomicU64,
    data: Mutex<FileData>,
}

impl InodeState {
    fn new(ino: u64) -> Self {
        Self { ino, io: RwLock::new(()), version: AtomicU64::new(0), data: Mutex::default() }
    }

    /// Locks the content for reading.
    pub(crate) fn io_read(&self) -> Ranked<RwLockReadGuard<'_, ()>> {
        Ranked::take(Rank::FileIo, || self.io.read())
    }

    /// Locks the content for reading, unless that would take time.
    pub(crate) fn try_io_read(&self) -> Option<Ranked<RwLockReadGuard<'_, ()>>> {
        Ranked::try_take(Rank::FileIo, || self.io.try_read())
    }

    /// Locks the content for writing or truncation.
    pub(crate) fn io_write(&self) -> Ranked<RwLockWriteGuard<'_, ()>> {
        let io = Ranked::take(Rank::FileIo, || self.io.write());
        self.note_change();
        io
    }

    /// Notes that the content may change, or has changed: whatever was read ahead is old.
    pub(crate) fn note_change(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the version of the content. While it stays the same, reads return the same bytes. Every thread that locks the
    /// content for writing changes it first.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Locks the dirty blocks and pending attributes.
    pub(crate) fn data(&self) -> DataGuard<'_> {
        Ranked::take(Rank::FileData, || self.data.lock())
    }

    /// Locks as [`InodeState::data`] does, unless another thread holds the lock.
    pub(crate) fn try_data(&self) -> Option<DataGuard<'_>> {
        Ranked::try_take(Rank::FileData, || self.data.try_lock())
    }
}

/// Guard of the dirty blocks and pending attributes of a file.
pub(crate) type DataGuard<'a> = Ranked<MutexGuard<'a, FileData>>;

/// Number of shards, each with a lock of its own.
const SHARDS: usize = 16;

/// Files in memory, by inode number.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    shards: [Mutex<Shard>; SHARDS],
    /// Number of files that callers refer to.
    referenced_files: AtomicUsize,
}

/// Capacity for each file of a shard beyond which a sweep returns memory.
const SPARE_FACTOR: usize = 4;

/// Number of files for which a shard always keeps the memory.
const SHARD_LEN_KEPT: usize = 256;

/// Files of one shard, by inode number.
type Shard = FxHashMap<u64, InodeEntry>;

/// References to a file, and its state.
#[derive(Debug, Default)]
struct InodeEntry {
    /// Number of references that callers hold.
    references: u64,
    /// `true` if a caller has got a reference since the last call of
    /// [`InodeTable::old_references`].
    is_recent: bool,
    /// `true` if the file was made without a name and has had none since.
    is_linkable: bool,
    state: Option<Arc<InodeState>>,
}

impl InodeEntry {
    /// Returns whether the file has no references, its state has no users, and nothing of the state has to stay in
    /// memory.
    fn is_idle(&self, next_sequence: u64) -> bool {
        self.references == 0
            && self.state.as_ref().is_none_or(|state| {
                Arc::strong_count(state) == 1 && state.data().is_forgettable(next_sequence)
            })
    }
}

impl InodeEntry {
    /// Drops the state of a file that callers still refer to, if nothing of the state has to stay in memory. A loss
    /// stays for the handles that have not reported it.
    fn drop_idle_state(&mut self, next_sequence: u64) {
        self.state.take_if(|state| {
            let is_idle = Arc::strong_count(state) == 1;
            is_idle && {
                let data = state.data();
                data.is_forgettable(next_sequence) && data.errors.count() == 0
            }
        });
    }
}

impl InodeTable {
    fn shard(&self, ino: u64) -> Ranked<MutexGuard<'_, Shard>> {
        lock_shard(&self.shards[ino as usize % SHARDS])
    }

    /// Returns the state of `ino`, and makes the state if it does not exist.
    pub(crate) fn get(&self, ino: u64) -> Arc<InodeState> {
        let mut shard = self.shard(ino);
        let file = shard.entry(ino).or_default();
        file.state.get_or_insert_with(|| Arc::new(InodeState::new(ino))).clone()
    }

    /// Returns the state of `ino` if there is one.
    pub(crate) fn find(&self, ino: u64) -> Option<Arc<InodeState>> {
        self.shard(ino).get(&ino)?.state.clone()
    }

    /// Adds a reference to `ino`.
    pub(crate) fn refer(&self, ino: u64) {
        let mut shard = self.shard(ino);
        let file = shard.entry(ino).or_default();
        file.references += 1;
        file.is_recent = true;
        if file.references == 1 {
            self.referenced_files.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes `count` references to `ino`; returns whether none is left. The next chunk will have sequence number
    /// `next_sequence` or a later one.
    pub(crate) fn forget(&self, ino: u64, count: u64, next_sequence: u64) -> bool {
        let mut shard = self.shard(ino);
        let Entry::Occupied(mut file) = shard.entry(ino) else { return true };
        let left = file.get().references.saturating_sub(count);
        if left == 0 && file.get().references > 0 {
            self.referenced_files.fetch_sub(1, Ordering::Relaxed);
        }
        file.get_mut().references = left;
        if file.get().is_idle(next_sequence) {
            file.remove();
        }
        left == 0
    }

    /// Returns whether a caller refers to `ino`.
    pub(crate) fn is_referenced(&self, ino: u64) -> bool {
        self.shard(ino).get(&ino).is_some_and(|file| file.references > 0)
    }

    /// Sets whether `ino`, which has a reference, may get a name although the file has none.
    pub(crate) fn set_linkable(&self, ino: u64, is_linkable: bool) {
        if let Some(file) = self.shard(ino).get_mut(&ino) {
            file.is_linkable = is_linkable;
        }
    }

    /// Returns whether `ino` may get a name although the file has none. A file without references may not.
    pub(crate) fn is_linkable(&self, ino: u64) -> bool {
        self.shard(ino).get(&ino).is_some_and(|file| file.references > 0 && file.is_linkable)
    }

    /// Returns the number of files that callers refer to.
    pub(crate) fn referenced_files(&self) -> usize {
        self.referenced_files.load(Ordering::Relaxed)
    }

    /// Returns about `count` files that callers refer to: first files without a lookup since the
    /// last call, then others. The references stay.
    pub(crate) fn old_references(&self, count: usize) -> Vec<u64> {
        let of_shard = count.div_ceil(SHARDS);
        let mut old = Vec::with_capacity(of_shard * SHARDS);
        for shard in &self.shards {
            let mut shard = lock_shard(shard);
            let wanted = old.len() + of_shard;
            for recent in [false, true] {
                let referenced = shard.iter_mut().filter(|(_, file)| file.references > 0);
                let of_kind = referenced.filter(|(_, file)| file.is_recent == recent);
                old.extend(of_kind.map(|(ino, _)| *ino).take(wanted.saturating_sub(old.len())));
            }
            shard.values_mut().for_each(|file| file.is_recent = false);
        }
        old
    }

    /// Returns every file that callers refer to, with the number of references, and whether it may get a name although it has
    /// none.
    pub(crate) fn references(&self) -> Vec<(u64, u64, bool)> {
        let mut found = Vec::with_capacity(self.referenced_files());
        for shard in &self.shards {
            let shard = lock_shard(shard);
            let referenced = shard.iter().filter(|(_, file)| file.references > 0);
            found.extend(referenced.map(|(ino, file)| (*ino, file.references, file.is_linkable)));
        }
        found
    }

    /// Adds `count` references to `ino`, at least one.
    pub(crate) fn refer_often(&self, ino: u64, count: u64) {
        self.refer(ino);
        if let Some(file) = self.shard(ino).get_mut(&ino) {
            file.references = file.references.saturating_add(count.saturating_sub(1));
        }
    }

    /// Returns the number of references over all files.
    pub(crate) fn reference_count(&self) -> u64 {
        let count = |shard| {
            let files: Ranked<MutexGuard<'_, Shard>> = lock_shard(shard);
            files.values().map(|file| file.references).sum::<u64>()
        };
        self.shards.iter().map(count).sum()
    }

    /// Drops the files and states that are not needed, and the spare memory of the table. The next
    /// chunk will have sequence number `next_sequence` or a later one.
    pub(crate) fn sweep(&self, next_sequence: u64) {
        for shard in &self.shards {
            let mut shard = lock_shard(shard);
            shard.retain(|_, file| {
                file.drop_idle_state(next_sequence);
                !file.is_idle(next_sequence)
            });
            if shard.capacity() > SPARE_FACTOR * shard.len().max(SHARD_LEN_KEPT) {
                let least = 2 * shard.len();
                shard.shrink_to(least);
            }
        }
    }
}

fn lock_shard(shard: &Mutex<Shard>) -> Ranked<MutexGuard<'_, Shard>> {
    Ranked::take(Rank::InodeShard, || shard.lock())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the table kept memory for the largest number of files that it had ever had.
    #[test]
    fn a_sweep_returns_the_memory_of_forgotten_files() {
        let inodes = InodeTable::default();
        let capacity =
            || inodes.shards.iter().map(|shard| lock_shard(shard).capacity()).sum::<usize>();
        (0..200_000).for_each(|ino| inodes.refer(ino));
        (100..200_000).for_each(|ino| assert!(inodes.forget(ino, 1, 1)));
        assert!(capacity() >= 200_000);
        inodes.sweep(1);
        assert!(capacity() <= 2 * SHARDS * SPARE_FACTOR * SHARD_LEN_KEPT, "{}", capacity());
        assert_eq!(inodes.reference_count(), 100);
    }

    #[test]
    fn references_that_were_not_renewed_are_old() {
        let inodes = InodeTable::default();
        (0..320).for_each(|ino| inodes.refer(ino));
        assert_eq!(inodes.old_references(320).len(), 320, "all, as none is older");
        (0..160).for_each(|ino| inodes.refer(ino));
        let old = inodes.old_references(160);
        assert!(old.len() == 160 && old.iter().all(|ino| *ino >= 160), "{old:?}");
        (0..320).for_each(|ino| assert!(inodes.forget(ino, 2, 1)));
        assert_eq!((inodes.referenced_files(), inodes.old_references(5).len()), (0, 0));
    }

    #[test]
    fn an_inode_without_data_is_kept_until_the_chunk_it_is_ordered_with() {
        for forgotten_first in [false, true] {
            let inodes = InodeTable::default();
            inodes.refer(20);
            inodes.get(20).data().flush_with_next_delta = Some(7);
            if forgotten_first {
                assert!(inodes.forget(20, 1, 7));
                inodes.sweep(7);
                assert!(inodes.find(20).is_some(), "data may still arrive before the chunk");
                inodes.sweep(8);
            } else {
                inodes.sweep(7);
                assert!(inodes.find(20).is_some(), "data may still arrive before the chunk");
                // Regression: the state stayed for as long as the kernel referred to the file.
                inodes.sweep(8);
                assert!(inodes.find(20).is_none() && inodes.is_referenced(20), "only a reference");
                assert!(inodes.forget(20, 1, 8));
            }
            assert!(inodes.find(20).is_none(), "the file is not needed");
        }
    }
}
