//! Orphans: files to delete and truncations to finish, in bounded steps.
//!
//! An orphan item in the tree records each of them, so a crash loses neither. A file without a name
//! or reference gives back all its blocks; an unfinished truncation is finished. Each step changes
//! a bounded number of blocks and items.

use std::sync::Arc;

use parking_lot::Mutex;

use super::dirty_data::DirtyData;
use super::inode_table::InodeTable;
use crate::format::{Corruption, CorruptionKind, ItemKind, Key, Tolerance};
use crate::metadata::{MetadataError, MetadataStore, Txn};
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// Approximate number of items of one file that a step deletes.
const ITEMS_MAX: usize = 1024;

fn orphan_key(ino: u64) -> Key {
    Key::new(0, ItemKind::Orphan, ino)
}

/// Records that the last name of `ino` is gone, and returns `ino`.
pub(crate) fn remember(txn: &mut Txn<'_>, ino: u64) -> u64 {
    if !mutated(Mutant::OrphanForgotten) {
        remember_cut(txn, ino, 0);
    }
    ino
}

/// Records that the blocks of `ino` from `first` on have to be unmapped.
pub(crate) fn remember_cut(txn: &mut Txn<'_>, ino: u64, first: u32) {
    txn.put(orphan_key(ino), u64::from(first).to_le_bytes().to_vec());
}

/// Removes the record: the blocks of `ino` have been unmapped.
pub(crate) fn forget_cut(txn: &mut Txn<'_>, ino: u64) {
    txn.delete(orphan_key(ino));
}

/// Work left for a file.
enum Left {
    More,
    Nothing,
}

/// Files that wait to be deleted, and truncations that wait to be finished.
pub(crate) struct Orphans {
    queue: Mutex<Vec<u64>>,
    metadata: Arc<MetadataStore>,
    inodes: Arc<InodeTable>,
    dirty: Arc<DirtyData>,
}

impl Orphans {
    /// Returns an empty queue.
    pub(crate) fn new(
        metadata: Arc<MetadataStore>,
        inodes: Arc<InodeTable>,
        dirty: Arc<DirtyData>,
    ) -> Self {
        Self { queue: Mutex::default(), metadata, inodes, dirty }
    }

    /// Queues the files that an earlier mount has left.
    pub(crate) fn find_all(&self) -> Result<()> {
        let mut from = orphan_key(0);
        while let Some(ino) = self.metadata.read_txn(|txn| next_orphan(txn, &from))? {
            self.queue(ino);
            from = orphan_key(ino).next();
        }
        Ok(())
    }

    /// Queues a file for [`Orphans::step`].
    pub(crate) fn queue(&self, ino: u64) {
        self.queue.lock().push(ino);
    }

    /// Returns whether `ino` has an orphan item: its last name is gone, or a truncation is
    /// unfinished.
    pub(crate) fn is_orphan(&self, ino: u64) -> bool {
        let found = self.metadata.read_txn(|txn| Ok(txn.get(&orphan_key(ino))?.is_some()));
        matches!(found, Ok(true))
    }

    /// Takes a file from the queue, for [`Orphans::step`].
    pub(crate) fn take(&self) -> Option<u64> {
        self.queue.lock().pop()
    }

    /// Does one step for a file taken from the queue, and queues the rest. After an error the file is left to the next
    /// mount.
    pub(crate) fn step(&self, ino: u64) -> Result<()> {
        if let Left::More = self.delete_some(ino)? {
            self.queue(ino);
        }
        Ok(())
    }

    /// Does the first step of deleting `ino`, and queues the rest. So a caller that deletes files
    /// faster than the background does not fill the volume.
    pub(crate) fn begin(&self, ino: u64) {
        if !matches!(self.delete_some(ino), Ok(Left::Nothing)) {
            self.queue(ino);
        }
    }

    fn delete_some(&self, ino: u64) -> Result<Left> {
        let file = self.inodes.get(ino);
        let _io = file.io_write();
        let logic = |txn: &mut Txn<'_>| {
            let Some(first) = cut(txn, ino)? else { return Ok((Left::Nothing, false)) };
            let mut inode = match txn.inode(ino) {
                Err(MetadataError::Error(Error::NotFound)) => {
                    forget_cut(txn, ino);
                    return Ok((Left::Nothing, false));
                }
                other => other?,
            };
            // The file is queued again when its last reference is dropped.
            if inode.links == 0 && self.inodes.is_referenced(ino) {
                return Ok((Left::Nothing, false));
            }
            if !txn.cut_from(ino, &mut inode, first)? {
                txn.put_inode(ino, &inode);
                return Ok((Left::More, false));
            }
            if inode.links > 0 {
                forget_cut(txn, ino);
                txn.put_inode(ino, &inode);
                return Ok((Left::Nothing, false));
            }
            if let Left::More = delete_small_items(txn, ino)? {
                txn.put_inode(ino, &inode);
                return Ok((Left::More, false));
            }
            forget_cut(txn, ino);
            txn.delete(Key::inode(ino));
            Ok((Left::Nothing, true))
        };
        let (left, is_deleted) = self.metadata.write_txn(logic, |_| {})?;
        if is_deleted {
            self.dirty.drop_file(&file);
        }
        Ok(left)
    }
}

/// Returns the first block to unmap of `ino`, if it has an orphan item.
fn cut(txn: &Txn<'_>, ino: u64) -> std::result::Result<Option<u32>, MetadataError> {
    let Some(value) = txn.get(&orphan_key(ino))? else { return Ok(None) };
    let wrong = Corruption::in_item(ino, CorruptionKind::Value);
    let bytes = value.try_into().map_err(|_| wrong)?;
    Ok(Some(u32::try_from(u64::from_le_bytes(bytes)).map_err(|_| wrong)?))
}

/// Returns the first block to unmap of `ino` if a truncation was not finished. The file has `end` blocks by its size.
pub(crate) fn unfinished_cut(
    txn: &Txn<'_>,
    ino: u64,
    end: u64,
) -> std::result::Result<Option<u32>, MetadataError> {
    let Some(first) = cut(txn, ino)? else { return Ok(None) };
    if txn.inode(ino)?.links > 0 {
        return Ok(Some(first));
    }
    // The orphan item of a file without a name covers the whole file; a truncation has no other record.
    let Ok(end) = u32::try_from(end) else { return Ok(None) };
    Ok(txn.is_mapped_from(ino, end)?.then_some(end))
}

fn next_orphan(txn: &Txn<'_>, from: &Key) -> std::result::Result<Option<u64>, MetadataError> {
    let found = txn.tree().first_from(from)?;
    let orphan = found.filter(|(key, _)| key.ino == 0 && key.kind == ItemKind::Orphan as u8);
    Ok(orphan.map(|(key, _)| key.offset))
}

/// Deletes a bounded number of extended attributes and inline items of `ino`. The step ends before an attribute, so
/// that every attribute left is whole.
fn delete_small_items(txn: &mut Txn<'_>, ino: u64) -> std::result::Result<Left, MetadataError> {
    let keys = Key::new(ino, ItemKind::Xattr, 0)..Key::new(ino, ItemKind::Mapping, 0);
    let mut count = 0;
    for item in txn.tree().range(keys) {
        let (key, _) = item?;
        // An attribute of more items is forged.
        if count >= ITEMS_MAX && (key.begins_xattr() || count >= 2 * ITEMS_MAX) {
            return Ok(Left::More);
        }
        txn.delete(key);
        count += 1;
    }
    delete_later_items(txn, ino, count)
}

/// Deletes items that a newer program has added to `ino`, after `count` others in this step.
fn delete_later_items(
    txn: &mut Txn<'_>,
    ino: u64,
    mut count: usize,
) -> std::result::Result<Left, MetadataError> {
    if txn.tolerance() == Tolerance::Exact {
        return Ok(Left::Nothing);
    }
    let first = Key { ino, kind: *Tolerance::LATER_KINDS.start(), offset: 0 };
    for item in txn.tree().range(first..=Key { ino, ..Key::MAX }) {
        let (key, _) = item?;
        if count >= ITEMS_MAX {
            return Ok(Left::More);
        }
        txn.delete(key);
        count += 1;
    }
    Ok(Left::Nothing)
}
