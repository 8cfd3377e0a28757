//! The namespace: names, directories, links.
//!
//! Owns: the rules of lookup, creation, removal and renaming.
//! Promises: each operation is one transaction.
//! Never: checks permissions; the kernel has.

use super::directory::{self, Found};
use super::txn::Txn;
use super::{Volume, orphans};
use crate::format::{
    Corruption, CorruptionKind, FileKind, INLINE_LEN_MAX, Inode, InodeFlags, ItemKind, Key,
    SYMLINK_LEN_MAX,
};
use crate::meta::MetadataError;
use crate::request::{Caller, FileEntry, RenameMode};
use crate::{Error, Result};

/// As on other filesystems, so that counts fit everywhere.
const LINKS_MAX: u32 = 65_000;

const S_ISGID: u32 = 0o2000;

impl Volume {
    /// The file called `name` in `parent`. A reference to it is taken. "." finds every file that has a
    /// name, not only directories: so does who has kept its number (NFS, `open_by_handle_at`).
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<FileEntry> {
        self.consult(|txn| {
            let ino = match name {
                b"." if txn.inode(parent)?.links == 0 => return Err(Error::NotFound.into()),
                b"." => parent,
                b".." => directory_of(txn, parent)?.parent,
                _ => {
                    directory_of(txn, parent)?;
                    directory::find(txn, self.hasher(), parent, name)?.ok_or(Error::NotFound)?.ino
                }
            };
            let inode = self.inode_of(txn, ino)?;
            // Before anybody can take its last name away: it would be deleted.
            self.handles.refer(ino);
            Ok(FileEntry { ino, inode })
        })
    }

    /// Makes a regular file, directory, device file, pipe or socket, by the type bits of `mode`.
    /// A reference to it is taken.
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
        self.make_referenced(make)
    }

    /// Makes a symbolic link to `target`. A reference to it is taken.
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

    /// Makes a regular file that has no name yet, as if it were made in directory `parent`. A
    /// reference to it is taken; [`Volume::link`] may give it a first name, and if none has when the
    /// last reference goes, so does the file.
    pub fn make_unnamed(&self, parent: u64, mode: u32, caller: &Caller) -> Result<FileEntry> {
        let made = self.make_referenced(|txn| {
            let directory = live_directory(txn, parent)?;
            let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
            let mut inode = Inode { links: 0, ..new_inode(mode, caller) };
            if directory.mode & S_ISGID != 0 {
                inode.gid = directory.gid;
            }
            let ino = txn.new_ino();
            txn.put_inode(ino, &inode);
            orphans::remember(txn, ino);
            Ok(FileEntry { ino, inode })
        })?;
        self.handles.set_linkable(made.ino, true);
        Ok(made)
    }

    fn make_referenced(
        &self,
        make: impl Fn(&mut Txn<'_>) -> std::result::Result<FileEntry, MetadataError>,
    ) -> Result<FileEntry> {
        self.admit(0)?;
        self.transact_then(make, |entry| self.handles.refer(entry.ino))
    }

    /// A new file in `parent`.
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
        if directory::find(txn, self.hasher(), parent, name)?.is_some() {
            return Err(Error::Exists.into());
        }
        self.add(txn, (parent, directory), name, inode, caller)
    }

    /// A new file in `parent`, which has none of that name.
    fn add(
        &self,
        txn: &mut Txn<'_>,
        (parent, mut directory): (u64, Inode),
        name: &[u8],
        mut inode: Inode,
        caller: &Caller,
    ) -> std::result::Result<FileEntry, MetadataError> {
        let ino = txn.new_ino();
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
        directory.size += 1;
        touch(&mut directory, caller);
        directory::insert(txn, self.hasher(), parent, name, ino, inode.kind())?;
        txn.put_inode(ino, &inode);
        txn.put_inode(parent, &directory);
        Ok(FileEntry { ino, inode })
    }

    /// Another name for `ino`, or the first after [`Volume::make_unnamed`]. A reference to it is
    /// taken.
    pub fn link(&self, ino: u64, parent: u64, name: &[u8], caller: &Caller) -> Result<FileEntry> {
        self.admit(0)?;
        // A truncation under way says nothing of what it leaves of a file without a name.
        let unnamed = self.handles.is_linkable(ino).then(|| self.handles.get(ino));
        let _io = unnamed.as_ref().map(|handle| handle.io.write());
        if unnamed.is_some() {
            self.finish_cut(ino, self.attributes(ino)?.size)?;
        }
        let make = |txn: &mut Txn<'_>| {
            directory::check_name(name)?;
            let mut inode = txn.inode(ino)?;
            if inode.kind() == FileKind::Directory {
                return Err(Error::NotPermitted.into());
            }
            if inode.links == 0 {
                if unnamed.is_none() || !self.handles.is_linkable(ino) {
                    return Err(Error::NotFound.into());
                }
                orphans::forget_cut(txn, ino);
            }
            let mut directory = live_directory(txn, parent)?;
            if directory::find(txn, self.hasher(), parent, name)?.is_some() {
                return Err(Error::Exists.into());
            }
            add_link(&mut inode)?;
            inode.ctime = caller.now;
            directory.size += 1;
            touch(&mut directory, caller);
            directory::insert(txn, self.hasher(), parent, name, ino, inode.kind())?;
            txn.put_inode(ino, &inode);
            txn.put_inode(parent, &directory);
            Ok(FileEntry { ino, inode: self.inode_of(txn, ino)? })
        };
        self.transact_then(make, |_| {
            self.handles.refer(ino);
            self.handles.set_linkable(ino, false);
        })
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        let gone = self.transact(|txn| {
            let found = self.find(txn, parent, name)?;
            if found.kind == FileKind::Directory {
                return Err(Error::IsDirectory.into());
            }
            let mut directory = txn.inode(parent)?;
            drop_entry(&mut directory, parent)?;
            touch(&mut directory, caller);
            txn.delete(Key::new(parent, ItemKind::Dirent, found.cookie));
            txn.put_inode(parent, &directory);
            drop_link(txn, found.ino, caller)
        })?;
        self.reclaim_if_gone(gone);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, parent: u64, name: &[u8], caller: &Caller) -> Result<()> {
        if name == b"." {
            return Err(Error::Invalid);
        }
        if name == b".." {
            return Err(Error::NotEmpty);
        }
        let gone = self.transact(|txn| {
            let found = self.find(txn, parent, name)?;
            if found.kind != FileKind::Directory {
                return Err(Error::NotDirectory.into());
            }
            let mut directory = txn.inode(parent)?;
            drop_entry(&mut directory, parent)?;
            drop_subdirectory(&mut directory, parent)?;
            touch(&mut directory, caller);
            txn.delete(Key::new(parent, ItemKind::Dirent, found.cookie));
            txn.put_inode(parent, &directory);
            drop_directory(txn, found.ino, caller)
        })?;
        self.reclaim_if_gone(gone);
        Ok(())
    }

    fn find(
        &self,
        txn: &Txn<'_>,
        parent: u64,
        name: &[u8],
    ) -> std::result::Result<Found, MetadataError> {
        directory_of(txn, parent)?;
        Ok(directory::find(txn, self.hasher(), parent, name)?.ok_or(Error::NotFound)?)
    }

    /// Renames; see [`RenameMode`]. Gives the directories that have another name now, whose attributes have
    /// changed with that.
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
            self.admit(0)?;
        }
        if self.is_batch_short() {
            self.write_named_ahead(parent, name)?;
            if mode == RenameMode::Exchange {
                self.write_named_ahead(new_parent, new_name)?;
            }
        }
        let logic = |txn: &mut Txn<'_>| {
            directory::check_name(new_name)?;
            let from = self.find(txn, parent, name)?;
            live_directory(txn, new_parent)?;
            let to = directory::find(txn, self.hasher(), new_parent, new_name)?;
            let directory = |found: &Found| {
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
                        Some(to) => replace(txn, &from, &to, new_parent, caller)?,
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
        // No commit may come between the two: it would say the names without the data.
        let order = |(moved, ..): &([Option<u64>; 2], _, _)| {
            moved.iter().flatten().for_each(|ino| self.order(*ino));
        };
        let (_, gone, directories) = self.transact_then(logic, order)?;
        self.reclaim_if_gone(gone);
        Ok(directories)
    }

    /// Writes out the data of a file that is about to be renamed.
    fn write_named_ahead(&self, parent: u64, name: &[u8]) -> Result<()> {
        // What is wrong with the name, renaming will say.
        let Ok(found) = self.consult(|txn| self.find(txn, parent, name)) else { return Ok(()) };
        match self.handles.find(found.ino) {
            Some(handle) if !handle.data().dirty.is_empty() => self.write_ahead(found.ino),
            _ => Ok(()),
        }
    }

    /// Moves an entry to a name that is free.
    fn move_entry(
        &self,
        txn: &mut Txn<'_>,
        (parent, from): (u64, Found),
        (new_parent, new_name): (u64, &[u8]),
        caller: &Caller,
    ) -> std::result::Result<(), MetadataError> {
        txn.delete(Key::new(parent, ItemKind::Dirent, from.cookie));
        directory::insert(txn, self.hasher(), new_parent, new_name, from.ino, from.kind)?;
        let mut old = txn.inode(parent)?;
        drop_entry(&mut old, parent)?;
        touch(&mut old, caller);
        txn.put_inode(parent, &old);
        let mut new = txn.inode(new_parent)?;
        new.size += 1;
        touch(&mut new, caller);
        txn.put_inode(new_parent, &new);
        reparent(txn, &from, parent, new_parent, caller)
    }
}

/// Exchanges what two entries refer to.
fn exchange(
    txn: &mut Txn<'_>,
    (a_parent, a_name, a): (u64, &[u8], Found),
    (b_parent, b_name, b): (u64, &[u8], Found),
    caller: &Caller,
) -> std::result::Result<(), MetadataError> {
    directory::replace(txn, a_parent, a_name, a.cookie, b.ino, b.kind);
    directory::replace(txn, b_parent, b_name, b.cookie, a.ino, a.kind);
    for parent in [a_parent, b_parent] {
        let mut directory = txn.inode(parent)?;
        touch(&mut directory, caller);
        txn.put_inode(parent, &directory);
    }
    reparent(txn, &a, a_parent, b_parent, caller)?;
    reparent(txn, &b, b_parent, a_parent, caller)
}

/// `moved` is in `new_parent` now and was in `parent`.
fn reparent(
    txn: &mut Txn<'_>,
    moved: &Found,
    parent: u64,
    new_parent: u64,
    caller: &Caller,
) -> std::result::Result<(), MetadataError> {
    let mut inode = txn.inode(moved.ino)?;
    inode.ctime = caller.now;
    if moved.kind == FileKind::Directory && parent != new_parent {
        inode.parent = new_parent;
        let mut old = txn.inode(parent)?;
        drop_subdirectory(&mut old, parent)?;
        txn.put_inode(parent, &old);
        let mut new = txn.inode(new_parent)?;
        add_link(&mut new)?;
        txn.put_inode(new_parent, &new);
    }
    txn.put_inode(moved.ino, &inode);
    Ok(())
}

/// Removes the entry `to`, which `from` takes the place of.
fn replace(
    txn: &mut Txn<'_>,
    from: &Found,
    to: &Found,
    new_parent: u64,
    caller: &Caller,
) -> std::result::Result<Option<u64>, MetadataError> {
    match (from.kind == FileKind::Directory, to.kind == FileKind::Directory) {
        (true, false) => return Err(Error::NotDirectory.into()),
        (false, true) => return Err(Error::IsDirectory.into()),
        _ => {}
    }
    let mut directory = txn.inode(new_parent)?;
    drop_entry(&mut directory, new_parent)?;
    txn.delete(Key::new(new_parent, ItemKind::Dirent, to.cookie));
    if to.kind == FileKind::Directory {
        drop_subdirectory(&mut directory, new_parent)?;
        txn.put_inode(new_parent, &directory);
        return drop_directory(txn, to.ino, caller);
    }
    txn.put_inode(new_parent, &directory);
    drop_link(txn, to.ino, caller)
}

/// One name of `ino` is gone; gives `ino` if it was the last.
fn drop_link(
    txn: &mut Txn<'_>,
    ino: u64,
    caller: &Caller,
) -> std::result::Result<Option<u64>, MetadataError> {
    let mut inode = txn.inode(ino)?;
    inode.links = inode.links.saturating_sub(1);
    inode.ctime = caller.now;
    txn.put_inode(ino, &inode);
    Ok((inode.links == 0).then(|| orphans::remember(txn, ino)))
}

/// The directory `ino` loses its name.
fn drop_directory(
    txn: &mut Txn<'_>,
    ino: u64,
    caller: &Caller,
) -> std::result::Result<Option<u64>, MetadataError> {
    let mut inode = txn.inode(ino)?;
    if inode.size != 0 {
        return Err(Error::NotEmpty.into());
    }
    inode.links = 0;
    inode.ctime = caller.now;
    txn.put_inode(ino, &inode);
    Ok(Some(orphans::remember(txn, ino)))
}

/// Whether `ino` is `ancestor` or somewhere below it.
fn is_within(
    txn: &Txn<'_>,
    mut ino: u64,
    ancestor: u64,
) -> std::result::Result<bool, MetadataError> {
    // A cycle can only come from a corrupt image; no path is deeper than the kernel lets it be.
    for _ in 0..100_000 {
        if ino == ancestor {
            return Ok(true);
        }
        let parent = txn.inode(ino)?.parent;
        if parent == ino || parent == 0 {
            return Ok(false);
        }
        ino = parent;
    }
    Err(Error::Invalid.into())
}

/// The attributes of `ino`, which must be a directory.
fn directory_of(txn: &Txn<'_>, ino: u64) -> std::result::Result<Inode, MetadataError> {
    let inode = txn.inode(ino)?;
    if inode.kind() == FileKind::Directory { Ok(inode) } else { Err(Error::NotDirectory.into()) }
}

/// As [`directory_of`], and it has not been removed.
fn live_directory(txn: &Txn<'_>, ino: u64) -> std::result::Result<Inode, MetadataError> {
    let inode = directory_of(txn, ino)?;
    if inode.links == 0 { Err(Error::NotFound.into()) } else { Ok(inode) }
}

fn add_link(inode: &mut Inode) -> Result<()> {
    if inode.links >= LINKS_MAX && inode.kind() != FileKind::Directory {
        return Err(Error::TooManyLinks);
    }
    inode.links = inode.links.checked_add(1).ok_or(Error::TooManyLinks)?;
    Ok(())
}

/// The directory `ino` has one entry less. A forged one may have had none.
fn drop_entry(directory: &mut Inode, ino: u64) -> std::result::Result<(), Corruption> {
    let wrong = Corruption::in_item(ino, CorruptionKind::Count);
    directory.size = directory.size.checked_sub(1).ok_or(wrong)?;
    Ok(())
}

/// The directory `ino` holds one directory less, and still has its own two links.
fn drop_subdirectory(directory: &mut Inode, ino: u64) -> std::result::Result<(), Corruption> {
    let wrong = Corruption::in_item(ino, CorruptionKind::Count);
    directory.links = directory.links.checked_sub(1).filter(|links| *links >= 2).ok_or(wrong)?;
    Ok(())
}

/// The content of a directory changed.
fn touch(directory: &mut Inode, caller: &Caller) {
    directory.mtime = caller.now;
    directory.ctime = caller.now;
}

fn new_inode(mode: u32, caller: &Caller) -> Inode {
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
