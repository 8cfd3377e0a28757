//! Dirty data of all files: the list of dirty files, the number of their dirty blocks, and the
//! memory of these blocks.
//!
//! A file is listed before its data lock is released, so a commit that follows finds it. A file
//! whose data has to go with the next delta is in a second list, too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::dirty_blocks::DirtyBlock;
use super::inode_table::{FileData, InodeState};
use super::writeback_errors::VolumeWritebackErrors;
use crate::format::DecodeError;
use crate::memory::Pool;

/// Dirty data of all files.
#[derive(Debug)]
pub(crate) struct DirtyData {
    /// Files with dirty blocks or pending attributes.
    files: Mutex<BTreeMap<u64, Arc<InodeState>>>,
    /// Files whose data has to go with the next delta.
    ordered: Mutex<BTreeSet<u64>>,
    blocks: AtomicUsize,
    /// Number of dirty blocks that are not reserved.
    uncovered: AtomicUsize,
    pool: Pool,
    errors: Mutex<VolumeWritebackErrors>,
}

impl DirtyData {
    /// Returns an empty set, whose pool keeps up to `write_buffer_bytes` for reuse. `space::throttle` bounds the dirty data.
    pub(crate) fn new(write_buffer_bytes: usize) -> Self {
        Self {
            files: Mutex::default(),
            ordered: Mutex::default(),
            blocks: AtomicUsize::new(0),
            uncovered: AtomicUsize::new(0),
            pool: Pool::new(write_buffer_bytes),
            errors: Mutex::default(),
        }
    }

    /// Returns the memory pool of the write buffer.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the number of dirty blocks over all files.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Returns the number of dirty blocks over all files that are not reserved: those that admission counts.
    pub(crate) fn uncovered_count(&self) -> usize {
        self.uncovered.load(Ordering::Relaxed)
    }

    /// Returns the number of dirty files.
    pub(crate) fn file_count(&self) -> usize {
        self.files.lock().len()
    }

    /// Returns whether no file is dirty.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.lock().is_empty()
    }

    /// Returns whether `ino` is dirty.
    pub(crate) fn contains(&self, ino: u64) -> bool {
        self.files.lock().contains_key(&ino)
    }

    /// Returns whether data of any file has to go with the next delta.
    pub(crate) fn has_ordered(&self) -> bool {
        !self.ordered.lock().is_empty()
    }

    /// Lists a file that has dirty blocks or pending attributes.
    pub(crate) fn note_dirty(&self, file: &Arc<InodeState>) {
        let is_ordered = file.data().flush_with_next_delta.is_some();
        self.files.lock().entry(file.ino).or_insert_with(|| file.clone());
        if is_ordered {
            self.ordered.lock().insert(file.ino);
        }
    }

    /// Orders the data of `file`, if it has any, into the next delta, whose chunk will have number `next_sequence` or a
    /// later one.
    pub(crate) fn order(&self, file: &Arc<InodeState>, next_sequence: u64) {
        let mut data = file.data();
        // A pending size is data, too: the file may be one hole.
        if !data.dirty.is_empty() || data.pending.is_some() {
            data.flush_with_next_delta = Some(next_sequence);
            drop(data);
            self.note_dirty(file);
        }
    }

    /// Returns the dirty files.
    pub(crate) fn files(&self) -> Vec<Arc<InodeState>> {
        self.files.lock().values().cloned().collect()
    }

    /// Returns the files whose data has to go with the next delta, and the files that `choose` takes from the others.
    pub(crate) fn select(
        &self,
        choose: impl FnOnce(&BTreeMap<u64, Arc<InodeState>>) -> Vec<Arc<InodeState>>,
    ) -> (Vec<Arc<InodeState>>, Vec<Arc<InodeState>>) {
        let files = self.files.lock();
        let ordered = self.ordered.lock();
        let first = ordered.iter().filter_map(|ino| files.get(ino).cloned()).collect();
        let mut others = choose(&files);
        others.retain(|file| !ordered.contains(&file.ino));
        (first, others)
    }

    /// Adds a dirty block to a file, or replaces one.
    pub(crate) fn insert(&self, data: &mut FileData, block: u32, dirty: DirtyBlock) {
        let before = data.dirty.uncovered();
        if data.dirty.insert(block, dirty) {
            self.blocks.fetch_add(1, Ordering::Relaxed);
        }
        // The difference wraps around where the number has become smaller.
        self.uncovered.fetch_add(data.dirty.uncovered().wrapping_sub(before), Ordering::Relaxed);
    }

    /// Notes that all `blocks` of a file are reserved now.
    pub(crate) fn cover(&self, data: &mut FileData, blocks: RangeInclusive<u32>) {
        let before = data.dirty.uncovered();
        data.dirty.cover(blocks);
        self.uncovered.fetch_sub(before - data.dirty.uncovered(), Ordering::Relaxed);
    }

    /// Changes the dirty blocks of a file by `remove`, which adds none, and updates the counts.
    pub(crate) fn remove(&self, data: &mut FileData, remove: impl FnOnce(&mut FileData)) {
        let before = (data.dirty.len(), data.dirty.uncovered());
        remove(data);
        self.blocks.fetch_sub(before.0 - data.dirty.len(), Ordering::Relaxed);
        self.uncovered.fetch_sub(before.1 - data.dirty.uncovered(), Ordering::Relaxed);
    }

    /// Takes `ino` off the lists if it has no dirty blocks left. The caller holds `data`, so a later write lists
    /// the file again.
    pub(crate) fn unlist_if_clean(&self, ino: u64, data: &mut FileData) {
        if data.dirty.is_empty() {
            data.pending = None;
            data.flush_with_next_delta = None;
            self.files.lock().remove(&ino);
            self.ordered.lock().remove(&ino);
        }
    }

    /// Drops the dirty blocks of a file that was deleted or cannot be written.
    pub(crate) fn drop_file(&self, file: &InodeState) {
        let mut data = file.data();
        self.remove(&mut data, |data| data.dirty.clear());
        file.note_change();
        self.unlist_if_clean(file.ino, &mut data);
    }

    /// Drops the dirty data of a file whose place in the tree is damaged, and records the loss. The kernel does the
    /// same with pages that it cannot write back.
    pub(crate) fn lose_file(&self, file: &InodeState, damage: DecodeError) {
        self.drop_file(file);
        file.data().errors.note(damage);
        self.errors.lock().note(damage);
    }

    /// Calls `f` with the losses over all files.
    pub(crate) fn with_errors<T>(&self, f: impl FnOnce(&mut VolumeWritebackErrors) -> T) -> T {
        f(&mut self.errors.lock())
    }
}
