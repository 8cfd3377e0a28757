//! Attributes of files: reading them, changing them, and clearing privileges.
//!
//! The length and the times of a file with dirty data may wait in memory for their commit (*pending*). Readers see
//! the pending attributes on top of those in the tree. A change of mode, owner or times is one transaction; a change
//! of the length is done first, by `truncate`.

use std::ops::Deref;

use super::Volume;
use super::access_lists;
use super::file_flags::check_attributes;
use super::xattr;
use crate::files::InodeState;
use crate::format::{FileKind, Inode, InodeFlags};
use crate::metadata::MetadataError;
use crate::metadata::Txn;
use crate::mutant::{Mutant, mutated};
use crate::request::{AttributeChanges, Caller};
use crate::{Error, Result};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// Extended attribute that holds the capabilities of a program.
const CAPABILITY: &[u8] = b"security.capability";

/// Lays the pending attributes of a file over those in the tree; `find` returns its state, if it is in memory.
fn show_pending<H: Deref<Target = InodeState>>(
    inode: &mut Inode,
    find: impl FnOnce() -> Option<H>,
) {
    if inode.kind() == FileKind::Regular
        && let Some(handle) = find()
    {
        handle.data().overlay(inode);
    }
}

impl Volume {
    /// Returns the attributes of `ino`, including pending attributes.
    pub fn attributes(&self, ino: u64) -> Result<Inode> {
        self.metadata.read_txn(|txn| self.inode_of(txn, ino))
    }

    /// Returns the attributes of the file of `handle` as [`Volume::attributes`] does, without looking the handle up again.
    pub(super) fn attributes_of(&self, handle: &InodeState) -> Result<Inode> {
        self.metadata.read_txn(|txn| {
            let mut inode = txn.inode(handle.ino)?;
            show_pending(&mut inode, || Some(handle));
            Ok(inode)
        })
    }

    /// Returns the attributes of `ino` in the transaction, including pending attributes.
    pub(super) fn inode_of(
        &self,
        txn: &Txn<'_>,
        ino: u64,
    ) -> std::result::Result<Inode, MetadataError> {
        let mut inode = txn.inode(ino)?;
        show_pending(&mut inode, || self.inodes.find(ino));
        Ok(inode)
    }

    /// Changes attributes, and returns all attributes after the change.
    pub fn set_attributes(
        &self,
        ino: u64,
        changes: &AttributeChanges,
        caller: &Caller,
    ) -> Result<Inode> {
        let handle = self.inodes.get(ino);
        let admitted = changes.size.map(|size| self.admit_size(ino, size)).transpose()?;
        let io = handle.io_write();
        if let Some(size) = changes.size {
            check_attributes(&self.regular(ino)?, changes, caller)?;
            self.set_size(&handle, size)?;
        }
        drop(admitted);
        // The pending times are part of this transaction: a later commit of them would undo the change.
        let logic = |txn: &mut Txn<'_>| {
            let mut inode = txn.inode(ino)?;
            check_attributes(&inode, changes, caller)?;
            let (size, blocks) = (inode.size, inode.blocks);
            handle.data().overlay(&mut inode);
            let shown = (inode.size, inode.blocks);
            change(&mut inode, changes, caller)?;
            if changes.are_only_times() {
                txn.change_only_times();
            }
            let has_new_size = changes.size.is_some() && !changes.keep_capability;
            if changes.give_owner() || has_new_size || changes.kill_privileges {
                xattr::delete_if_any(txn, &self.hasher(), ino, &mut inode, CAPABILITY)?;
            }
            if changes.mode.is_some() && !mutated(Mutant::ListBehindMode) {
                access_lists::follow_mode(txn, &self.hasher(), ino, &mut inode)?;
            }
            // The tree keeps its length and block count: pending ones wait for their data (decision 5).
            (inode.size, inode.blocks) = (size, blocks);
            txn.put_inode(ino, &inode);
            (inode.size, inode.blocks) = shown;
            Ok(inode)
        };
        let changed = self.change_then(logic, |_| {
            if let Some(pending) = &mut handle.data().pending {
                pending.times = None;
            }
        });
        if changes.mode.is_some() && mutated(Mutant::ListBehindMode) {
            drop(io);
            self.follow_mode_later(ino)?;
        }
        changed
    }

    /// Changes the access list of `ino` in a transaction of its own, with a commit before it.
    fn follow_mode_later(&self, ino: u64) -> Result<()> {
        self.sync_all()?;
        self.change(|txn| {
            let mut inode = txn.inode(ino)?;
            access_lists::follow_mode(txn, &self.hasher(), ino, &mut inode)?;
            txn.put_inode(ino, &inode);
            Ok(())
        })
    }

    /// Clears suid, sgid and capabilities of a regular file before a write without privileges.
    pub(super) fn kill_privileges(&self, ino: u64) -> Result<()> {
        let armed = self.metadata.read_txn(|txn| {
            let inode = txn.inode(ino)?;
            let capable = || -> std::result::Result<bool, MetadataError> {
                Ok(inode.flags.contains(InodeFlags::XATTRS)
                    && xattr::read(txn, &self.hasher(), ino, CAPABILITY)?.is_some())
            };
            // A write to another kind of file is about to fail, and clears nothing.
            Ok(inode.kind() == FileKind::Regular
                && (inode.mode != without_privileges(inode.mode) || capable()?))
        })?;
        if !armed {
            return Ok(());
        }
        self.change(|txn| {
            let mut inode = txn.inode(ino)?;
            inode.mode = without_privileges(inode.mode);
            xattr::delete_if_any(txn, &self.hasher(), ino, &mut inode, CAPABILITY)?;
            txn.put_inode(ino, &inode);
            Ok(())
        })
    }
}

/// Returns `mode` without its privileges. sgid without group execution is no privilege, and stays.
fn without_privileges(mode: u32) -> u32 {
    let sgid = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | sgid)
}

/// Applies `changes` to `inode`, except the length. Fails with `Invalid` if a time has a billion
/// nanoseconds or more.
fn change(inode: &mut Inode, changes: &AttributeChanges, caller: &Caller) -> Result<()> {
    if let Some(mode) = changes.mode {
        inode.mode = inode.mode & !0o7777 | mode & 0o7777;
    }
    inode.uid = changes.uid.unwrap_or(inode.uid);
    inode.gid = changes.gid.unwrap_or(inode.gid);
    if (changes.give_owner() || changes.kill_privileges)
        && inode.kind() == FileKind::Regular
        && changes.mode.is_none()
    {
        inode.mode = without_privileges(inode.mode);
    }
    if !changes.keep_times || inode.kind() != FileKind::Regular {
        inode.ctime = caller.now;
        if changes.size.is_some() {
            inode.mtime = caller.now;
        }
    }
    inode.atime = changes.atime.unwrap_or(inode.atime);
    inode.mtime = changes.mtime.unwrap_or(inode.mtime);
    inode.ctime = changes.ctime.unwrap_or(inode.ctime);
    inode.btime = changes.btime.unwrap_or(inode.btime);
    let times = [inode.atime, inode.mtime, inode.ctime, inode.btime];
    if times.iter().any(|time| time.nanos >= 1_000_000_000) {
        return Err(Error::Invalid);
    }
    Ok(())
}
