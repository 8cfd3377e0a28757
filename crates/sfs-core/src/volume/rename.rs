//! Renaming: an entry moves to another name, replaces another entry, or changes places with it.
//!
//! A rename is one transaction, like every operation of `namespace`. The data of a file whose new name replaces
//! another file goes with the next delta, so no crash leaves the name with neither content.

use super::Volume;
use super::directory::{self, FoundEntry};
use super::file_flags::{check_addition, check_file, check_removal};
use super::namespace::{
    add_link, live_directory, new_inode, orphan_directory, touch, uncount_entry, uncount_link,
    uncount_subdirectory,
};
use crate::format::{Corruption, CorruptionKind, FileKind, ItemKind, Key, ROOT_INO};
use crate::metadata::{MetadataError, Txn};
use crate::mutant::{Mutant, mutated};
use crate::request::{Caller, RenameMode};
use crate::{Error, Result};

impl Volume {
    /// Renames an entry as `mode` says. Returns the directories that were renamed: their change
    /// time is new, and their parent may be new.
    pub fn rename(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        mode: RenameMode,
        caller: &Caller,
    ) -> Result<[Option<u64>; 2]> {
        if mode.leaves_whiteout() {
            self.space.admit(0)?;
        }
        if !self.space.fits_one_batch() {
            self.write_named_ahead(parent, name)?;
            if mode == RenameMode::Exchange {
                self.write_named_ahead(new_parent, new_name)?;
            }
        }
        let logic = |txn: &mut Txn<'_>| {
            directory::check_name(new_name)?;
            let from = self.find(txn, parent, name)?;
            live_directory(txn, new_parent)?;
            let to = directory::find(txn, &self.hasher(), new_parent, new_name)?;
            let directory = |found: &FoundEntry| {
                let is_directory = found.kind == FileKind::Directory;
                is_directory.then_some(found.ino)
            };
            if from.kind == FileKind::Directory && is_within(txn, new_parent, from.ino)? {
                return Err(Error::Invalid.into());
            }
            match (to, mode) {
                (Some(_), mode) if mode.keeps_what_exists() => Err(Error::Exists.into()),
                (None, RenameMode::Exchange) => Err(Error::NotFound.into()),
                (Some(to), _) if to.ino == from.ino => Ok(([None, None], None, [None, None])),
                (Some(to), RenameMode::Exchange) => {
                    if to.kind == FileKind::Directory && is_within(txn, parent, to.ino)? {
                        return Err(Error::Invalid.into());
                    }
                    let (a, b) = ((parent, name, from), (new_parent, new_name, to));
                    exchange(txn, a, b, caller)?;
                    Ok(([Some(from.ino), Some(to.ino)], None, [directory(&from), directory(&to)]))
                }
                (to, _) => {
                    let gone = match to {
                        Some(to) => remove_target(txn, &from, &to, new_parent, caller)?,
                        None => None,
                    };
                    let moved = to.is_some().then_some(from.ino);
                    self.move_entry(txn, (parent, from), (new_parent, new_name), caller)?;
                    if mode.leaves_whiteout() {
                        let whiteout = new_inode(FileKind::CharDevice.mode_bits(), caller);
                        let directory = txn.inode(parent)?;
                        self.add(txn, (parent, directory), name, whiteout, caller)?;
                    }
                    Ok(([moved, None], gone, [directory(&from), None]))
                }
            }
        };
        // Runs under the transaction's lock: a commit between the transaction and this step would
        // write the new names without the data.
        let order = |(moved, ..): &([Option<u64>; 2], _, _)| {
            moved.iter().flatten().for_each(|ino| self.order_with_next_delta(*ino));
        };
        let (_, gone, directories) = self.change_then(logic, order)?;
        self.delete_if_unreferenced(gone);
        Ok(directories)
    }

    /// Writes back the dirty data of the file called `name`, before a rename makes that data part of the next
    /// batch.
    fn write_named_ahead(&self, parent: u64, name: &[u8]) -> Result<()> {
        // The rename itself reports an error of the lookup.
        let Ok(found) = self.metadata.read_txn(|txn| self.find(txn, parent, name)) else {
            return Ok(());
        };
        match self.inodes.find(found.ino) {
            Some(handle) if !handle.data().dirty.is_empty() => self.space.flush_before(found.ino),
            _ => Ok(()),
        }
    }

    /// Orders the data of `ino` into the next delta: its new name has replaced another file.
    fn order_with_next_delta(&self, ino: u64) {
        if mutated(Mutant::RenameUnordered) {
            return;
        }
        if let Some(file) = self.inodes.find(ino) {
            self.dirty.order(&file, self.metadata.next_sequence());
        }
    }

    /// Moves an entry to a name that no entry has.
    fn move_entry(
        &self,
        txn: &mut Txn<'_>,
        (parent, from): (u64, FoundEntry),
        (new_parent, new_name): (u64, &[u8]),
        caller: &Caller,
    ) -> std::result::Result<(), MetadataError> {
        txn.delete(Key::new(parent, ItemKind::Dirent, from.cookie));
        directory::insert(txn, &self.hasher(), new_parent, new_name, from.ino, from.kind)?;
        let mut old = txn.inode(parent)?;
        check_removal(&old)?;
        uncount_entry(&mut old, parent)?;
        touch(&mut old, caller);
        txn.put_inode(parent, &old);
        let mut new = txn.inode(new_parent)?;
        check_addition(&new)?;
        new.size += 1;
        touch(&mut new, caller);
        txn.put_inode(new_parent, &new);
        reparent(txn, &from, parent, new_parent, caller)
    }
}

/// Exchanges the files of two entries.
fn exchange(
    txn: &mut Txn<'_>,
    (a_parent, a_name, a): (u64, &[u8], FoundEntry),
    (b_parent, b_name, b): (u64, &[u8], FoundEntry),
    caller: &Caller,
) -> std::result::Result<(), MetadataError> {
    directory::replace(txn, a_parent, a_name, a.cookie, b.ino, b.kind);
    directory::replace(txn, b_parent, b_name, b.cookie, a.ino, a.kind);
    for parent in [a_parent, b_parent] {
        let mut directory = txn.inode(parent)?;
        check_removal(&directory)?;
        touch(&mut directory, caller);
        txn.put_inode(parent, &directory);
    }
    reparent(txn, &a, a_parent, b_parent, caller)?;
    reparent(txn, &b, b_parent, a_parent, caller)
}

/// Updates the inodes after `moved` went from `parent` to `new_parent`: its change time, and for a directory its
/// parent and the parents' links.
fn reparent(
    txn: &mut Txn<'_>,
    moved: &FoundEntry,
    parent: u64,
    new_parent: u64,
    caller: &Caller,
) -> std::result::Result<(), MetadataError> {
    let mut inode = txn.inode(moved.ino)?;
    check_file(&inode)?;
    inode.ctime = caller.now;
    if moved.kind == FileKind::Directory && parent != new_parent {
        inode.parent = new_parent;
        let mut old = txn.inode(parent)?;
        uncount_subdirectory(&mut old, parent)?;
        txn.put_inode(parent, &old);
        let mut new = txn.inode(new_parent)?;
        add_link(&mut new)?;
        txn.put_inode(new_parent, &new);
    }
    txn.put_inode(moved.ino, &inode);
    Ok(())
}

/// Removes the entry `to`, whose name `from` gets. Returns the inode number of the file of `to` if
/// that was its last name.
fn remove_target(
    txn: &mut Txn<'_>,
    from: &FoundEntry,
    to: &FoundEntry,
    new_parent: u64,
    caller: &Caller,
) -> std::result::Result<Option<u64>, MetadataError> {
    match (from.kind == FileKind::Directory, to.kind == FileKind::Directory) {
        (true, false) => return Err(Error::NotDirectory.into()),
        (false, true) => return Err(Error::IsDirectory.into()),
        _ => {}
    }
    let mut directory = txn.inode(new_parent)?;
    check_removal(&directory)?;
    uncount_entry(&mut directory, new_parent)?;
    txn.delete(Key::new(new_parent, ItemKind::Dirent, to.cookie));
    if to.kind == FileKind::Directory {
        uncount_subdirectory(&mut directory, new_parent)?;
        txn.put_inode(new_parent, &directory);
        return orphan_directory(txn, to.ino, caller);
    }
    txn.put_inode(new_parent, &directory);
    uncount_link(txn, to.ino, caller)
}

/// Returns whether `ino` is `ancestor` or below it. Fails with `Corrupt` if the parents form a
/// cycle without `ancestor`, or one of them does not exist.
fn is_within(
    txn: &Txn<'_>,
    mut ino: u64,
    ancestor: u64,
) -> std::result::Result<bool, MetadataError> {
    // Brent's algorithm: a cycle meets the mark again. A fixed limit of depth would report a sound image as
    // corrupt, as the kernel limits the length of a path and not the depth of a tree.
    let (mut mark, mut steps_to_mark, mut distance) = (ino, 1_u64, 1_u64);
    let mut child = ino;
    while ino != ancestor {
        if ino == ROOT_INO {
            return Ok(false);
        }
        let damage = |ino| Corruption::in_item(ino, CorruptionKind::Value).into();
        let parent = match txn.inode(ino) {
            Err(MetadataError::Error(Error::NotFound)) if ino != child => {
                return Err(damage(child));
            }
            inode => inode?.parent,
        };
        if parent == mark {
            return Err(damage(parent));
        }
        (child, ino) = (ino, parent);
        steps_to_mark -= 1;
        if steps_to_mark == 0 {
            distance *= 2;
            (mark, steps_to_mark) = (ino, distance);
        }
    }
    Ok(true)
}
