//! POSIX access control lists: setting them, keeping them in step with the mode, and inheriting them.
//!
//! A list is an extended attribute, and the permission bits of the mode repeat three of its entries. Whatever changes
//! one of them changes the other in the same transaction. A new file gets the mode and the lists that its directory's
//! default list gives it in the transaction that makes it. The kernel decides about access. The rules are
//! those of ext4.

use super::Volume;
use super::directory::NameHasher;
use super::file_flags::check_file;
use super::xattr;
use crate::format::{
    ACCESS_LIST_LEN_MAX, AccessList, AccessListKind, Corruption, CorruptionKind, Features,
    FileKind, Inode, InodeFlags,
};
use crate::metadata::{MetadataError, Txn};
use crate::mutant::{Mutant, mutated};
use crate::request::{Caller, FileEntry, XattrMode};
use crate::{Error, Result};

const S_ISGID: u32 = 0o2000;

/// Bits of a mode that an access list repeats.
const PERMISSION_BITS: u32 = 0o777;

type TxnResult<T> = std::result::Result<T, MetadataError>;

impl Volume {
    /// Sets an access list, whose `value` has the form of the kernel's extended attribute, and for the list that decides
    /// about access the permission bits of the file. A list that says no more than these bits is not stored. With
    /// `clear_sgid`, that list clears sgid.
    ///
    /// # Errors
    ///
    /// `ValueTooLong` or `Invalid` if the value is no sound list, `NotSupported` if the file cannot have it: symbolic
    /// links have no list, and only directories have a default list. Otherwise as [`Volume::set_xattr`].
    pub fn set_access_list(
        &self,
        ino: u64,
        kind: AccessListKind,
        value: &[u8],
        clear_sgid: bool,
        caller: &Caller,
    ) -> Result<()> {
        self.put_access_list(ino, kind, value, XattrMode::Any, clear_sgid, caller)
    }

    /// Sets an access list as [`Volume::set_access_list`] does, if `mode` allows it.
    pub(super) fn put_access_list(
        &self,
        ino: u64,
        kind: AccessListKind,
        value: &[u8],
        mode: XattrMode,
        clear_sgid: bool,
        caller: &Caller,
    ) -> Result<()> {
        if value.len() > ACCESS_LIST_LEN_MAX {
            return Err(Error::ValueTooLong);
        }
        let list = AccessList::decode(value).ok_or(Error::Invalid)?;
        let is_stored = kind == AccessListKind::Default || !list.is_mode();
        self.space.admit(0)?;
        // An older program must not write to the volume once a list is on it.
        if is_stored && !mutated(Mutant::ListUndeclared) {
            self.superblocks.require_to_write(Features::ACCESS_LISTS)?;
        }
        let file = self.inodes.get(ino);
        let _io = file.io_write();
        if is_stored {
            self.check_room_for_name(ino, kind.name())?;
        }
        self.change(|txn| {
            let mut inode = txn.inode(ino)?;
            check_file(&inode)?;
            check_kind(kind, &inode)?;
            let (hasher, name) = (&self.hasher(), kind.name());
            xattr::delete_for(txn, hasher, ino, &mut inode, name, mode)?;
            if is_stored {
                xattr::insert(txn, hasher, ino, &mut inode, name, value)?;
            }
            if kind == AccessListKind::Access {
                inode.mode = with_permissions(inode.mode, &list);
                inode.mode &= if clear_sgid { !S_ISGID } else { u32::MAX };
            }
            inode.ctime = caller.now;
            txn.put_inode(ino, &inode);
            Ok(())
        })?;
        if is_stored && mutated(Mutant::ListUndeclared) {
            self.sync_all()?;
            self.superblocks.require_to_write(Features::ACCESS_LISTS)?;
        }
        Ok(())
    }

    /// Gives a new file the mode and the lists that it inherits in a transaction of its own, with a commit before it.
    pub(super) fn inherit_late(
        &self,
        parent: u64,
        FileEntry { ino, .. }: FileEntry,
        caller: &Caller,
    ) -> Result<FileEntry> {
        self.sync_all()?;
        self.change(|txn| {
            let (directory, mut inode) = (txn.inode(parent)?, txn.inode(ino)?);
            let at = (parent, &directory);
            let umask = caller.umask.unwrap_or(0);
            let lists = inherit_by(txn, &self.hasher(), at, &mut inode, umask)?;
            lists.add_to(txn, &self.hasher(), ino, &mut inode)?;
            txn.put_inode(ino, &inode);
            Ok(FileEntry { ino, inode })
        })
    }
}

/// Fails with `NotSupported` if the file cannot have a list of this kind.
fn check_kind(kind: AccessListKind, inode: &Inode) -> Result<()> {
    match (kind, inode.kind()) {
        (AccessListKind::Access, FileKind::Symlink) => Err(Error::NotSupported),
        (AccessListKind::Default, other) if other != FileKind::Directory => {
            Err(Error::NotSupported)
        }
        _ => Ok(()),
    }
}

/// Returns the list of `ino`, if it has one.
fn read(
    txn: &Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    inode: &Inode,
    kind: AccessListKind,
) -> TxnResult<Option<AccessList>> {
    if !inode.flags.contains(InodeFlags::XATTRS) {
        return Ok(None);
    }
    let Some(value) = xattr::read(txn, hasher, ino, kind.name())? else { return Ok(None) };
    let wrong = Corruption::in_item(ino, CorruptionKind::Value);
    Ok(Some(AccessList::decode(&value).ok_or(wrong)?))
}

/// Changes the access list of `ino`, if it has one, to agree with the new mode in `inode`.
pub(super) fn follow_mode(
    txn: &mut Txn<'_>,
    hasher: &NameHasher,
    ino: u64,
    inode: &mut Inode,
) -> TxnResult<()> {
    let kind = AccessListKind::Access;
    let Some(mut list) = read(txn, hasher, ino, inode, kind)? else { return Ok(()) };
    if list.shown() == inode.mode & PERMISSION_BITS {
        return Ok(());
    }
    list.show(inode.mode);
    xattr::delete(txn, hasher, ino, inode, kind.name())?;
    xattr::insert(txn, hasher, ino, inode, kind.name(), &list.encode())
}

/// Lists that a new file inherits.
pub(super) struct Inherited(Vec<(AccessListKind, Vec<u8>)>);

/// Restricts the mode of a new file, whose `inode` has the mode that the caller asked for: by the default list
/// of its directory, or where that has none by the caller's umask. Returns the lists that the file gets.
pub(super) fn inherit(
    txn: &Txn<'_>,
    hasher: &NameHasher,
    directory: (u64, &Inode),
    inode: &mut Inode,
    caller: &Caller,
) -> TxnResult<Inherited> {
    match caller.umask {
        Some(umask) if inode.kind() != FileKind::Symlink && !mutated(Mutant::ListInheritedLate) => {
            inherit_by(txn, hasher, directory, inode, umask)
        }
        _ => Ok(Inherited(Vec::new())),
    }
}

fn inherit_by(
    txn: &Txn<'_>,
    hasher: &NameHasher,
    (parent, directory): (u64, &Inode),
    inode: &mut Inode,
    umask: u32,
) -> TxnResult<Inherited> {
    let Some(default) = read(txn, hasher, parent, directory, AccessListKind::Default)? else {
        inode.mode &= !(umask & PERMISSION_BITS);
        return Ok(Inherited(Vec::new()));
    };
    let mut access = default.clone();
    access.restrict(inode.mode);
    inode.mode = with_permissions(inode.mode, &access);
    let mut lists = Vec::new();
    if !access.is_mode() {
        lists.push((AccessListKind::Access, access.encode()));
    }
    if inode.kind() == FileKind::Directory {
        lists.push((AccessListKind::Default, default.encode()));
    }
    Ok(Inherited(lists))
}

impl Inherited {
    /// Adds the lists to the new file `ino`.
    pub(super) fn add_to(
        &self,
        txn: &mut Txn<'_>,
        hasher: &NameHasher,
        ino: u64,
        inode: &mut Inode,
    ) -> TxnResult<()> {
        for (kind, value) in &self.0 {
            xattr::insert(txn, hasher, ino, inode, kind.name(), value)?;
        }
        Ok(())
    }
}

/// Returns `mode` with the permission bits that show `list`.
fn with_permissions(mode: u32, list: &AccessList) -> u32 {
    mode & !PERMISSION_BITS | list.shown()
}
