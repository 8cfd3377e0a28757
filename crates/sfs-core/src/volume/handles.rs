//! In-core files: what is in memory of a file beyond its tree items.
//!
//! Owns: references that callers hold, dirty blocks, and attributes that wait for data.
//! Promises: a file that is referenced or dirty keeps its handle, and so does one whose data would
//! have to go with the next delta; none of them for longer than that. Who only looks at a file makes
//! none: the kernel refers to all that it has ever listed.
//! Never: touches the tree or the device.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;
use sfs_device::BLOCK_SIZE;

use super::dirty::DirtyBlocks;
use super::losses::Losses;
use crate::format::{Inode, Timestamp};

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
    pub(crate) dirty: DirtyBlocks,
    pub(crate) pending: Option<Pending>,
    /// The namespace already says something that only makes sense with the data of this file, what
    /// there is of it and what will be: it goes with the next delta (durability contract, sentence
    /// 4). The sequence number that the next chunk had when that was said.
    pub(crate) ordered: Option<u64>,
    /// What was given up of it.
    pub(crate) lost: Losses,
}

impl FileData {
    /// `inode` as callers see it.
    pub(crate) fn overlay(&self, inode: &mut Inode) {
        if let Some(pending) = self.pending {
            pending.overlay(inode);
        }
        inode.blocks = self.blocks_of(inode);
    }

    /// Blocks of `inode`, whose length is as callers see it, with those that wait. Which of these
    /// take the place of others is not known without a look at the tree: it is never too few, and
    /// too many only for a file with holes whose data is overwritten, until it is committed.
    pub(crate) fn blocks_of(&self, inode: &Inode) -> u64 {
        let most = inode.size.div_ceil(BLOCK_SIZE as u64).max(inode.blocks);
        most.min(inode.blocks.saturating_add(self.dirty.len() as u64))
    }

    /// Whether the namespace says something that only makes sense with data of this file, and none has come.
    pub(crate) fn waits_for_data(&self) -> bool {
        self.ordered.is_some() && self.dirty.is_empty()
    }

    /// Whether nothing of this has to be remembered, not even that something was lost, when
    /// `next_sequence` is what the next chunk will have. Data that comes after the chunk that said it is
    /// too late to go with it.
    fn is_forgettable(&self, next_sequence: u64) -> bool {
        let is_said = self.ordered.is_none_or(|sequence| sequence < next_sequence);
        self.dirty.is_empty() && self.pending.is_none() && is_said && self.lost.is_told()
    }
}

/// One in-core file.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) ino: u64,
    /// Readers of the content share it; writers and truncation have it alone.
    pub(crate) io: RwLock<()>,
    data: Mutex<FileData>,
}

impl Handle {
    fn new(ino: u64) -> Self {
        Self { ino, io: RwLock::new(()), data: Mutex::default() }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, FileData> {
        self.data.lock()
    }
}

const SHARDS: usize = 16;

/// All in-core files.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    shards: [Mutex<FxHashMap<u64, InCore>>; SHARDS],
}

/// What is known of a file, by its number.
#[derive(Debug, Default)]
struct InCore {
    /// References that callers hold.
    references: u64,
    /// It was made without a name, and has not had one.
    linkable: bool,
    handle: Option<Arc<Handle>>,
}

impl InCore {
    /// Whether nobody refers to the file, nobody uses its handle, and nothing of it has to be
    /// remembered.
    fn is_idle(&self, next_sequence: u64) -> bool {
        self.references == 0
            && self.handle.as_ref().is_none_or(|handle| {
                Arc::strong_count(handle) == 1 && handle.data().is_forgettable(next_sequence)
            })
    }
}

impl Handles {
    fn shard(&self, ino: u64) -> MutexGuard<'_, FxHashMap<u64, InCore>> {
        self.shards[ino as usize % SHARDS].lock()
    }

    /// The handle of `ino`, made if there is none.
    pub(crate) fn get(&self, ino: u64) -> Arc<Handle> {
        let mut shard = self.shard(ino);
        let file = shard.entry(ino).or_default();
        file.handle.get_or_insert_with(|| Arc::new(Handle::new(ino))).clone()
    }

    /// The handle of `ino` if there is one.
    pub(crate) fn find(&self, ino: u64) -> Option<Arc<Handle>> {
        self.shard(ino).get(&ino)?.handle.clone()
    }

    /// A caller got to know `ino`.
    pub(crate) fn refer(&self, ino: u64) {
        self.shard(ino).entry(ino).or_default().references += 1;
    }

    /// A caller forgets `count` references; says whether none is left. The next chunk will have
    /// sequence number `next_sequence` or a later one.
    pub(crate) fn forget(&self, ino: u64, count: u64, next_sequence: u64) -> bool {
        let mut shard = self.shard(ino);
        let Entry::Occupied(mut file) = shard.entry(ino) else { return true };
        let left = file.get().references.saturating_sub(count);
        file.get_mut().references = left;
        if file.get().is_idle(next_sequence) {
            file.remove();
        }
        left == 0
    }

    /// Whether a caller knows `ino`.
    pub(crate) fn is_referenced(&self, ino: u64) -> bool {
        self.shard(ino).get(&ino).is_some_and(|file| file.references > 0)
    }

    /// Says of `ino`, to which a caller refers, whether it may get a name though it has none.
    pub(crate) fn set_linkable(&self, ino: u64, linkable: bool) {
        if let Some(file) = self.shard(ino).get_mut(&ino) {
            file.linkable = linkable;
        }
    }

    /// Whether `ino` may get a name though it has none: as long as a caller knows it.
    pub(crate) fn is_linkable(&self, ino: u64) -> bool {
        self.shard(ino).get(&ino).is_some_and(|file| file.references > 0 && file.linkable)
    }

    /// References that callers hold, over all files.
    pub(crate) fn reference_count(&self) -> u64 {
        let count = |shard: &Mutex<FxHashMap<u64, InCore>>| {
            shard.lock().values().map(|file| file.references).sum::<u64>()
        };
        self.shards.iter().map(count).sum()
    }

    /// Drops what nobody needs. The next chunk will have sequence number `next_sequence` or a later
    /// one.
    pub(crate) fn sweep(&self, next_sequence: u64) {
        for shard in &self.shards {
            shard.lock().retain(|_, file| !file.is_idle(next_sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_without_data_waits_for_the_chunk_that_it_was_ordered_before() {
        for forgotten_first in [false, true] {
            let handles = Handles::default();
            handles.refer(20);
            handles.get(20).data().ordered = Some(7);
            if forgotten_first {
                assert!(handles.forget(20, 1, 7));
                handles.sweep(7);
                assert!(handles.find(20).is_some(), "data may still come before the chunk");
                handles.sweep(8);
            } else {
                handles.sweep(8);
                assert!(handles.find(20).is_some(), "it is referenced");
                assert!(handles.forget(20, 1, 8));
            }
            assert!(handles.find(20).is_none(), "nobody needs it");
        }
    }
}
