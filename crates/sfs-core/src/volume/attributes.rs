//! Attributes of files, and changing them.
//!
//! Owns: what `stat` shows, `chmod`, `chown`, `utimens`, and the clearing of privileges.
//! Promises: attributes that wait for data are shown as if they did not wait.
//! Never: changes a length (see `truncate`).

use super::Volume;
use super::xattr;
use crate::format::{FileKind, Inode, InodeFlags};
use crate::metadata::MetadataError;
use crate::metadata::Txn;
use crate::request::{AttributeChanges, Caller};
use crate::{Error, Result};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// The attribute that holds a program's capabilities.
const CAPABILITY: &[u8] = b"security.capability";

impl Volume {
    /// The attributes of `ino`.
    pub fn attributes(&self, ino: u64) -> Result<Inode> {
        self.metadata.read_txn(|txn| self.inode_of(txn, ino))
    }

    /// The attributes of `ino` as callers see them.
    pub(super) fn inode_of(
        &self,
        txn: &Txn<'_>,
        ino: u64,
    ) -> std::result::Result<Inode, MetadataError> {
        let mut inode = txn.inode(ino)?;
        if inode.kind() == FileKind::Regular
            && let Some(handle) = self.inodes.find(ino)
        {
            handle.data().overlay(&mut inode);
        }
        Ok(inode)
    }

    /// Changes attributes, and gives them as they are then.
    pub fn set_attributes(
        &self,
        ino: u64,
        changes: &AttributeChanges,
        caller: &Caller,
    ) -> Result<Inode> {
        let handle = self.inodes.get(ino);
        let admitted = changes.size.map(|size| self.admit_size(ino, size)).transpose()?;
        let _io = handle.io_write();
        if let Some(size) = changes.size {
            self.set_size(&handle, size)?;
        }
        drop(admitted);
        // What waits goes ahead together with the change, or a later commit would undo it.
        let logic = |txn: &mut Txn<'_>| {
            let mut inode = txn.inode(ino)?;
            let (size, blocks) = (inode.size, inode.blocks);
            handle.data().overlay(&mut inode);
            let shown = (inode.size, inode.blocks);
            change(&mut inode, changes, caller)?;
            if changes.give_owner() || changes.size.is_some() || changes.kill_privileges {
                xattr::delete_if_any(txn, &self.hasher(), ino, &mut inode, CAPABILITY)?;
            }
            // The length and the blocks wait for their data; everything else may go ahead.
            (inode.size, inode.blocks) = (size, blocks);
            txn.put_inode(ino, &inode);
            (inode.size, inode.blocks) = shown;
            Ok(inode)
        };
        self.change_then(logic, |_| {
            if let Some(pending) = &mut handle.data().pending {
                pending.times = None;
            }
        })
    }

    /// Clears suid, sgid and capabilities of a file that was written by someone else than root.
    pub(super) fn kill_privileges(&self, ino: u64) -> Result<()> {
        let armed = self.metadata.read_txn(|txn| {
            let inode = txn.inode(ino)?;
            let capable = || -> std::result::Result<bool, MetadataError> {
                Ok(inode.flags.contains(InodeFlags::XATTRS)
                    && xattr::read(txn, &self.hasher(), ino, CAPABILITY)?.is_some())
            };
            // Anything else cannot be written: the write is about to be refused.
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

/// The mode after a write by someone else than root: sgid without group execution is no privilege.
fn without_privileges(mode: u32) -> u32 {
    let sgid = if mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    mode & !(S_ISUID | sgid)
}

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
