//! Namespace operations: lookup, creation, links and removal. Renaming is in `rename`.
//!
//! Each operation changes the names and the inodes that it touches in one transaction (`txn`). `directory` encodes
//! and finds the entries, and `orphans` deletes files that have neither a name nor a reference. The kernel has
//! checked permissions before a request arrives.
//!
//! To add an operation:
//! 1. Arguments and results: plain types in `request.rs`, where the existing ones do not suffice.
//! 2. Rule: a method of [`Volume`] in a file of `volume/`, which changes metadata in one transaction.
//! 3. Request: a variant in `sfs-fuse/src/protocol/fuse_operation.rs`, decoded in `decode.rs` beside
//!    it.
//! 4. Call: an arm of the match in `src/fuse/dispatch.rs` with its method in `src/fuse/`, and the
//!    conversion in `src/transport/fuser_adapter.rs`.
//! 5. Proof: tests in `tests/model/` here, in `sfs-sim` and in `tests/mount_*`; a paragraph of `docs/SEMANTICS.md`.

use super::Volume;
use super::access_lists;
use super::directory::{self, FoundEntry};
use super::file_flags::{check_addition, check_file, check_removal, inherit};
use crate::files::orphans;
use crate::format::{
    Corruption, CorruptionKind, FileKind, INLINE_LEN_MAX, Inode, InodeFlags, ItemKind, Key,
    SYMLINK_LEN_MAX,
};
use crate::metadata::{MetadataError, Txn};
use crate::mutant::{Mutant, mutated};
use crate::request::{Caller, FileEntry};
use crate::{Error, Result};

/// Maximum number of names of a file that is not a directory: the limit of ext4, so that counts fit wherever
/// they are copied.
const LINKS_MAX: u32 = 65_000;

const S_ISGID: u32 = 0o2000;

impl Volume {
    /// Returns the file called `name` in `parent`, and takes a reference to the file. "." finds every file that
    /// has a name, not only directories: NFS and `open_by_handle_at` look files up by number that way.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<FileEntry> {
        self.metadata.read_txn(|txn| {
            let ino = match name {
                b"." if txn.inode(parent)?.links == 0 => return Err(Error::NotFound.into()),
                b"." => parent,
                b".." => directory_of(txn, parent)?.parent,
                _ => {
                    directory_of(txn, parent)?;
                    directory::find(txn, &self.hasher(), parent, name)?.ok_or(Error::NotFound)?.ino
                }
            };
            let inode = self.inode_of(txn, ino)?;
            // The metadata's lock is held: no thread can remove the last name, and delete the file,
            // before the reference is taken.
            self.inodes.refer(ino);
            Ok(FileEntry { ino, inode })
        })
    }

    /// Creates a regular file, directory, device file, pipe or socket, by the type bits of `mode`, and takes a
    /// reference to it.
    pub fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
        caller: &Caller,
    ) -> Result<FileEntry> {
        let kind = FileKind::from_mode(mode).ok_or(Error::Invalid)?;
        if kind == FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let make = |txn: &mut Txn<'_>| {
            let mut inode = new_inode(kind.mode_bits() | mode & 0o7777, caller);
            if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
                inode.rdev = rdev;
            }
            self.make(txn, parent, name, inode, caller)
        };
        let made = self.make_referenced(make)?;
        if mutated(Mutant::ListInheritedLate) {
            self.inherit_late(parent, made, caller)
        } else {
            Ok(made)
        }
    }

    /// Creates a symbolic link to `target`, and takes a reference to it.
    pub fn symlink(
        &self,
        parent: u64,
        name: &[u8],
        target: &[u8],
        caller: &Caller,
    ) -> Result<FileEntry> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > SYMLINK_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        let make = |txn: &mut Txn<'_>| {
            let mut inode = new_inode(FileKind::Symlink.mode_bits() | 0o777, caller);
            inode.size = target.len() as u64;
            inode.flags = InodeFlags::INLINE;
            let entry = self.make(txn, parent, name, inode, caller)?;
            for (part, bytes) in (0..).zip(target.chunks(INLINE_LEN_MAX)) {
                txn.put(Key::new(entry.ino, ItemKind::Inline, part), bytes.to_vec());
            }
            Ok(entry)
        };
        self.make_referenced(make)
    }

    /// Creates a regular file without a name, with the attributes of a file created in directory
    /// `parent`, and takes a reference to it. [`Volume::link`] may give the file its first name. A
    /// file that still has no name when its last reference is dropped is deleted.
    pub fn make_unnamed(&self, parent: u64, mode: u32, caller: &Caller) -> Result<FileEntry> {
        let made = self.make_referenced(|txn| {
            let directory = live_directory(txn, parent)?;
            check_addition(&directory)?;
            let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
            let mut inode = Inode { links: 0, ..new_inode(mode, caller) };
            if directory.mode & S_ISGID != 0 {
                inode.gid = directory.gid;
            }
            inherit(&mut inode, &directory);
            let ino = txn.new_ino();
            let at = (parent, &directory);
            let lists = access_lists::inherit(txn, &self.hasher(), at, &mut inode, caller)?;
            lists.add_to(txn, &self.hasher(), ino, &mut inode)?;
            txn.put_inode(ino, &inode);
            orphans::remember(txn, ino);
            Ok(FileEntry { ino, inode })
        })?;
        self.inodes.set_linkable(made.ino, true);
        Ok(made)
    }

    /// Runs `make` as a transaction, and takes a reference to the new file.
    fn make_referenced(
        &self,
        make: impl Fn(&mut Txn<'_>) -> std::result::Result<FileEntry, MetadataError>,
    ) -> Result<FileEntry> {
        self.space.admit(0)?;
        self.change_then(make, |entry| self.inodes.refer(entry.ino))
    }

    /// Creates a file in `parent`. Fails with `Exists` if the name is taken.
    fn make(
        &self,
        txn: &mut Txn<'_>,
        parent: u64,
        name: &[u8],
        inode: Inode,
        caller: &Caller,
    ) -> std::result::Result<FileEntry, MetadataError> {
        directory::check_name(name)?;
        let directory = live_directory(txn, parent)?;
        if directory::find(txn, &self.hasher(), parent, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        self.add(txn, (parent, directory), name, inode, caller)
    }

    /// Creates a file in `parent`, which must not have an entry of that name.
    pub(super) fn add(
        &self,
        txn: &mut Txn<'_>,
        (parent, mut directory): (u64, Inode),
        name: &[u8],
        mut inode: Inode,
        caller: &Caller,
    ) -> std::result::Result<FileEntry, MetadataError> {
        check_addition(&directory)?;
        let ino = txn.new_ino();
        let at = (parent, &directory);
        let lists = access_lists::inherit(txn, &self.hasher(), at, &mut inode, caller)?;
        lists.add_to(txn, &self.hasher(), ino, &mut inode)?;
        let is_directory = inode.kind() == FileKind::Directory;
        if directory.mode & S_ISGID != 0 {
            inode.gid = directory.gid;
            if is_directory {
                inode.mode |= S_ISGID;
            }
        }
        if is_directory {
            inode.links = 2;
            inode.parent = parent;
            add_link(&mut directory)?;
        }
        inherit(&mut inode, &directory);
        directory.size += 1;
        touch(&mut directory, caller);
        directory::insert(txn, &self.hasher(), parent, name, ino, inode.kind())?;
        txn.put_inode(ino, &inode);
        txn.put_inode(parent, &directory);
        Ok(FileEntry { ino, inode })
    }

    /// Adds a name for `ino`, or its first name after [`Volume::make_unnamed`], and takes a
    /// reference to the file.
    pub fn link(&self, ino: u64, parent: u64, name: &[u8], caller: &Caller) -> Result<FileEntry> {
        self.space.admit(0)?;
        // The orphan item of a file without a name does not record the extent of a truncation, and
        // the item is deleted below: the truncation is finished first.
        let unnamed = self.inodes.is_linkable(ino).then(|| self.inodes.get(ino));
        let _io = unnamed.as_ref().map(|handle| handle.io_write());
        if unnamed.is_some() {
            self.finish_truncation(ino, self.attributes(ino)?.size)?;
        }
        let make = |txn: &mut Txn<'_>| {
            directory::check_name(name)?;
            let mut inode = txn.inode(ino)?;
            if inode.kind() == FileKind::Directory {
                return Err(Error::NotPermitted.into());
            }
            if inode.links == 0 {
                if unnamed.is_none() || !self.inodes.is_linkable(ino) {
                    return Err(Error::NotFound.into());
                }
                orphans::forget_cut(txn, ino);
            }
            let mut directory = live_directory(txn, parent)?;
            if directory::find(txn, &self.hasher(), parent, name)?.is_some() {
                return Err(Error::Exists.into());
            }
            check_addition(&directory)?;
            check_file(&inode)?;
            add_link(&mut inode)?;
            inode.ctime = caller.now;
            directory.size += 1;
            touch(&mut directory, caller);
            directory::insert(txn, &self.hasher(), parent, name, ino, inode.kind())?;
            txn.put_inode(ino, &inode);
            txn.put_inode(parent, &directory);
            Ok(FileEntry { ino, inode: self.inode_of(txn, ino)? })
        };
        self.change_then(make, |_| {
            self.inodes.refer(ino);
            self.inodes.set_linkable(ino, false);
        })
    }

    /// Removes a name of a file. Fails with `IsDirectory` if the name is that of a directory.
    pub fn unlink(&self, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        let gone = self.change(|txn| {
            let found = self.find(txn, parent, name)?;
            if found.kind == FileKind::Directory {
                return Err(Error::IsDirectory.into());
            }
            let mut directory = txn.inode(parent)?;
            check_removal(&directory)?;
            uncount_entry(&mut directory, parent)?;
            touch(&mut directory, caller);
            txn.delete(Key::new(parent, ItemKind::Dirent, found.cookie));
            txn.put_inode(parent, &directory);
            uncount_link(txn, found.ino, caller)
        })?;
        self.delete_if_unreferenced(gone);
        Ok(())
    }

    /// Removes an empty directory. Fails with `NotEmpty` if the directory has entries.
    pub fn remove_directory(&self, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        if name == b"." {
            return Err(Error::Invalid);
        }
        if name == b".." {
            return Err(Error::NotEmpty);
        }
        let gone = self.change(|txn| {
            let found = self.find(txn, parent, name)?;
            if found.kind != FileKind::Directory {
                return Err(Error::NotDirectory.into());
            }
            let mut directory = txn.inode(parent)?;
            check_removal(&directory)?;
            uncount_entry(&mut directory, parent)?;
            uncount_subdirectory(&mut directory, parent)?;
            touch(&mut directory, caller);
            txn.delete(Key::new(parent, ItemKind::Dirent, found.cookie));
            txn.put_inode(parent, &directory);
            orphan_directory(txn, found.ino, caller)
        })?;
        self.delete_if_unreferenced(gone);
        Ok(())
    }

    /// Returns the entry called `name` in `parent`. Fails with `NotFound` if there is no such
    /// entry.
    pub(super) fn find(
        &self,
        txn: &Txn<'_>,
        parent: u64,
        name: &[u8],
    ) -> std::result::Result<FoundEntry, MetadataError> {
        directory_of(txn, parent)?;
        Ok(directory::find(txn, &self.hasher(), parent, name)?.ok_or(Error::NotFound)?)
    }
}

/// Decrements the link count of `ino`, if its flags allow that. Returns `ino` if that was the last name: the file is then an
/// orphan.
pub(super) fn uncount_link(
    txn: &mut Txn<'_>,
    ino: u64,
    caller: &Caller,
) -> std::result::Result<Option<u64>, MetadataError> {
    let mut inode = txn.inode(ino)?;
    check_file(&inode)?;
    inode.links = inode.links.saturating_sub(1);
    inode.ctime = caller.now;
    txn.put_inode(ino, &inode);
    Ok((inode.links == 0).then(|| orphans::remember(txn, ino)))
}

/// Makes the directory `ino` an orphan, if its flags allow that, and returns `ino`. Fails with `NotEmpty` if the
/// directory has entries.
pub(super) fn orphan_directory(
    txn: &mut Txn<'_>,
    ino: u64,
    caller: &Caller,
) -> std::result::Result<Option<u64>, MetadataError> {
    let mut inode = txn.inode(ino)?;
    check_file(&inode)?;
    if inode.size != 0 {
        return Err(Error::NotEmpty.into());
    }
    inode.links = 0;
    inode.ctime = caller.now;
    txn.put_inode(ino, &inode);
    Ok(Some(orphans::remember(txn, ino)))
}

/// Returns the attributes of `ino`. Fails with `NotDirectory` if `ino` is another kind of file.
fn directory_of(txn: &Txn<'_>, ino: u64) -> std::result::Result<Inode, MetadataError> {
    let inode = txn.inode(ino)?;
    if inode.kind() == FileKind::Directory { Ok(inode) } else { Err(Error::NotDirectory.into()) }
}

/// Returns the attributes of the directory `ino`. Fails with `NotFound` if the directory was
/// removed.
pub(super) fn live_directory(txn: &Txn<'_>, ino: u64) -> std::result::Result<Inode, MetadataError> {
    let inode = directory_of(txn, ino)?;
    if inode.links == 0 { Err(Error::NotFound.into()) } else { Ok(inode) }
}

/// Increments the link count. Fails with `TooManyLinks` at [`LINKS_MAX`], which directories may
/// exceed.
pub(super) fn add_link(inode: &mut Inode) -> Result<()> {
    if inode.links >= LINKS_MAX && inode.kind() != FileKind::Directory {
        return Err(Error::TooManyLinks);
    }
    inode.links = inode.links.checked_add(1).ok_or(Error::TooManyLinks)?;
    Ok(())
}

/// Decrements the entry count of directory `ino`. Fails with `Corrupt` if the count is zero, as it
/// may be in a forged inode.
pub(super) fn uncount_entry(
    directory: &mut Inode,
    ino: u64,
) -> std::result::Result<(), Corruption> {
    let wrong = Corruption::in_item(ino, CorruptionKind::Count);
    directory.size = directory.size.checked_sub(1).ok_or(wrong)?;
    Ok(())
}

/// Subtracts the link of one subdirectory from `ino`. Fails with `Corrupt` if that removes one of
/// the directory's own two links.
pub(super) fn uncount_subdirectory(
    directory: &mut Inode,
    ino: u64,
) -> std::result::Result<(), Corruption> {
    let wrong = Corruption::in_item(ino, CorruptionKind::Count);
    directory.links = directory.links.checked_sub(1).filter(|links| *links >= 2).ok_or(wrong)?;
    Ok(())
}

/// Sets the times of a directory whose entries have changed.
pub(super) fn touch(directory: &mut Inode, caller: &Caller) {
    directory.mtime = caller.now;
    directory.ctime = caller.now;
}

/// Returns the attributes of a new, empty file of `caller`.
pub(super) fn new_inode(mode: u32, caller: &Caller) -> Inode {
    Inode {
        mode,
        links: 1,
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        flags: InodeFlags::NONE,
        size: 0,
        blocks: 0,
        parent: 0,
        atime: caller.now,
        mtime: caller.now,
        ctime: caller.now,
        btime: caller.now,
        write_count: 0,
        modified: 0,
    }
}
