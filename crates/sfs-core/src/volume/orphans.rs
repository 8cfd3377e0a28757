//! Orphans: work that a crash must not forget, and doing it in bounded steps.
//!
//! Owns: the orphan items, and the queue of files to reclaim.
//! Promises: a file without a name or reference gives all its blocks back; an unfinished
//! truncation is finished.
//! Never: takes longer than a bounded number of blocks and items at a time.

use std::sync::atomic::Ordering;

use super::Volume;
use super::txn::Txn;
use super::xattr;
use crate::format::{Corruption, CorruptionKind, ItemKind, Key, Tolerance};
use crate::meta::MetadataError;
use crate::mutant::{Mutant, mutated};
use crate::{Error, Result};

/// Items of one file that a step deletes, about.
const ITEMS_MAX: usize = 1024;

fn orphan_key(ino: u64) -> Key {
    Key::new(0, ItemKind::Orphan, ino)
}

/// The last name of `ino` is gone: remembers that it is to be deleted.
pub(super) fn remember(txn: &mut Txn<'_>, ino: u64) -> u64 {
    if !mutated(Mutant::OrphanForgotten) {
        remember_cut(txn, ino, 0);
    }
    ino
}

/// The blocks of `ino` from `first` on are to be unmapped.
pub(super) fn remember_cut(txn: &mut Txn<'_>, ino: u64, first: u32) {
    txn.put(orphan_key(ino), u64::from(first).to_le_bytes().to_vec());
}

/// The blocks of `ino` have been unmapped.
pub(super) fn forget_cut(txn: &mut Txn<'_>, ino: u64) {
    txn.delete(orphan_key(ino));
}

/// What is left to do for a file.
enum Step {
    More,
    Done,
}

impl Volume {
    /// Deletes a file that lost its last name, unless somebody refers to it.
    pub(super) fn reclaim_if_gone(&self, gone: Option<u64>) {
        if let Some(ino) = gone
            && !self.handles.is_referenced(ino)
        {
            self.begin_reclaim(ino);
        }
    }

    /// One step now: whoever deletes faster than background work comes round must not fill the
    /// volume with what he deleted. The rest, and what fails, is left to it.
    fn begin_reclaim(&self, ino: u64) {
        if !matches!(self.reclaim_file(ino), Ok(Step::Done)) {
            self.reclaim.lock().push(ino);
        }
    }

    /// A caller forgets `count` of the references to `ino` that it got.
    pub fn forget(&self, ino: u64, count: u64) {
        if self.is_forgotten(ino, count) {
            self.begin_reclaim(ino);
        }
    }

    /// As [`Volume::forget`], and writes nothing: what is to be deleted waits for [`Volume::work`].
    pub fn forget_at_rest(&self, ino: u64, count: u64) {
        if self.is_forgotten(ino, count) {
            self.reclaim.lock().push(ino);
        }
    }

    /// Nobody refers to `ino` any more, which has lost its last name.
    fn is_forgotten(&self, ino: u64, count: u64) -> bool {
        let next_sequence = self.next_sequence.load(Ordering::Relaxed);
        self.handles.forget(ino, count, next_sequence)
            && !self.options.read_only
            && matches!(self.consult(|txn| Ok(txn.get(&orphan_key(ino))?.is_some())), Ok(true))
    }

    /// Finds what an earlier mount left to do.
    pub(super) fn find_orphans(&self) -> Result<()> {
        let mut from = orphan_key(0);
        while let Some(ino) = self.consult(|txn| next_orphan(txn, &from))? {
            self.reclaim.lock().push(ino);
            from = orphan_key(ino).next();
        }
        Ok(())
    }

    /// Does one step for one file; says whether there was one. A file that is damaged, or cannot be read,
    /// waits for the next mount.
    pub(super) fn reclaim_step(&self) -> Result<bool> {
        let Some(ino) = self.reclaim.lock().pop() else { return Ok(false) };
        if let Step::More = self.reclaim_file(ino)? {
            self.reclaim.lock().push(ino);
        }
        Ok(true)
    }

    fn reclaim_file(&self, ino: u64) -> Result<Step> {
        let handle = self.handles.get(ino);
        let _io = handle.io.write();
        let outcome = self.transact(|txn| {
            let Some(first) = cut(txn, ino)? else { return Ok((Step::Done, false)) };
            let mut inode = match txn.inode(ino) {
                Err(MetadataError::Error(Error::NotFound)) => {
                    forget_cut(txn, ino);
                    return Ok((Step::Done, false));
                }
                other => other?,
            };
            // Who lets go of it will queue it again.
            if inode.links == 0 && self.handles.is_referenced(ino) {
                return Ok((Step::Done, false));
            }
            let (count, done) = txn.unmap_from(ino, first)?;
            inode.blocks = inode.blocks.saturating_sub(count);
            if !done {
                txn.put_inode(ino, &inode);
                return Ok((Step::More, false));
            }
            if inode.links > 0 {
                forget_cut(txn, ino);
                txn.put_inode(ino, &inode);
                return Ok((Step::Done, false));
            }
            if let Step::More = delete_small_items(txn, ino)? {
                txn.put_inode(ino, &inode);
                return Ok((Step::More, false));
            }
            forget_cut(txn, ino);
            txn.delete(Key::inode(ino));
            Ok((Step::Done, true))
        });
        let (step, deleted) = outcome?;
        if deleted {
            self.drop_dirty(&handle);
        }
        Ok(step)
    }

    /// Reclaims everything that waits. What is damaged is left to the next mount, and told afterwards.
    pub(super) fn reclaim_all(&self) -> Result<()> {
        let mut outcome = Ok(());
        loop {
            match self.reclaim_step() {
                Ok(true) => {}
                Ok(false) => return outcome,
                Err(error @ (Error::Corrupt(_) | Error::Incompatible(_))) => outcome = Err(error),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The first block to unmap of `ino`, if it has an orphan item.
fn cut(txn: &Txn<'_>, ino: u64) -> std::result::Result<Option<u32>, MetadataError> {
    let Some(value) = txn.get(&orphan_key(ino))? else { return Ok(None) };
    let wrong = Corruption::in_item(ino, CorruptionKind::Value);
    let bytes = value.try_into().map_err(|_| wrong)?;
    Ok(Some(u32::try_from(u64::from_le_bytes(bytes)).map_err(|_| wrong)?))
}

/// The first block to unmap of `ino`, of whose blocks `end` are left, if a truncation was not
/// finished.
pub(super) fn unfinished_cut(
    txn: &Txn<'_>,
    ino: u64,
    end: u64,
) -> std::result::Result<Option<u32>, MetadataError> {
    let Some(first) = cut(txn, ino)? else { return Ok(None) };
    if txn.inode(ino)?.links > 0 {
        return Ok(Some(first));
    }
    // The item says that all of the file is to go, and of a truncation there is no other.
    let Ok(end) = u32::try_from(end) else { return Ok(None) };
    Ok(txn.is_mapped_from(ino, end)?.then_some(end))
}

fn next_orphan(txn: &Txn<'_>, from: &Key) -> std::result::Result<Option<u64>, MetadataError> {
    let found = txn.tree().first_from(from)?;
    let orphan = found.filter(|(key, _)| key.ino == 0 && key.kind == ItemKind::Orphan as u8);
    Ok(orphan.map(|(key, _)| key.offset))
}

/// Deletes the extended attributes and inline content of `ino`, a bounded number of items. It stops
/// before an attribute: what is left is whole, and the inode still says that it has some.
fn delete_small_items(txn: &mut Txn<'_>, ino: u64) -> std::result::Result<Step, MetadataError> {
    let keys = Key::new(ino, ItemKind::Xattr, 0)..Key::new(ino, ItemKind::Mapping, 0);
    let mut count = 0;
    for item in txn.tree().range(keys) {
        let (key, _) = item?;
        // One that goes on for longer was not made by us.
        if count >= ITEMS_MAX && (xattr::is_beginning(&key) || count >= 2 * ITEMS_MAX) {
            return Ok(Step::More);
        }
        txn.delete(key);
        count += 1;
    }
    delete_later_items(txn, ino, count)
}

/// Deletes what a later program has added to `ino`, unless `count` items are too many already.
fn delete_later_items(
    txn: &mut Txn<'_>,
    ino: u64,
    mut count: usize,
) -> std::result::Result<Step, MetadataError> {
    if txn.tolerance() == Tolerance::Exact {
        return Ok(Step::Done);
    }
    let first = Key { ino, kind: *Tolerance::LATER_KINDS.start(), offset: 0 };
    for item in txn.tree().range(first..=Key { ino, ..Key::MAX }) {
        let (key, _) = item?;
        if count >= ITEMS_MAX {
            return Ok(Step::More);
        }
        txn.delete(key);
        count += 1;
    }
    Ok(Step::Done)
}
