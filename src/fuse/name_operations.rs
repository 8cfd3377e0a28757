//! Operations on names and attributes. Changes are synced where `-o sync` or `-o dirsync` asks for it; the kernel
//! has checked permissions.

use std::time::Instant;

use sfs_core::format::{AccessListKind, FileKind};
use sfs_core::request::{AttributeChanges, Caller, FileEntry, RenameMode, XattrMode};
use sfs_core::{Error, Result as CoreResult};
use sfs_fuse::{
    CreateArgs, DirectoryListing, Errno, FuseRequest, ListingEntry, ReadArgs, Reply, SetattrArgs,
};

use super::fuse_shell::{FuseShell, caller};
use super::latencies::OperationKind;
use super::reply_result::{OperationResult, Refusal, ReplyBytes};
use super::{inode_attributes, privileges};

/// Prefixes of the extended attributes that files can have.
const NAMESPACES: [&[u8]; 3] = [b"user.", TRUSTED, b"security."];

/// Prefix of the extended attributes that only an administrator sees.
const TRUSTED: &[u8] = b"trusted.";

impl FuseShell {
    pub(super) fn lookup(&self, parent: u64, name: &[u8]) -> OperationResult {
        match self.volume.lookup(parent, name) {
            Ok(found) => Ok(Reply::Entry(self.entry(&found))),
            Err(Error::NotFound) => Ok(Reply::Entry(self.caching.absent())),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn forget(
        &self,
        references: impl IntoIterator<Item = (u64, u64)>,
    ) -> Reply<ReplyBytes> {
        for (ino, count) in references {
            if self.waker.is_resting() {
                self.volume.forget_at_rest(ino, count);
            } else {
                self.volume.forget(ino, count);
            }
            self.lost_writeback.forget(&self.volume, ino);
        }
        self.waker.note_idle();
        Reply::Done
    }

    pub(super) fn setattr(
        &self,
        request: &FuseRequest<'_>,
        asked: &SetattrArgs,
    ) -> OperationResult {
        let may_write = |handle| self.handles.may_write(request.node, handle);
        let through_open = asked.handle.is_some_and(may_write);
        self.setattr_through(request, asked, (through_open, kills_privileges(asked)))
    }

    /// Does the same, through a descriptor that is open for writing if `through_open` is set. Clears privileges with `kills`.
    pub(super) fn setattr_through(
        &self,
        request: &FuseRequest<'_>,
        asked: &SetattrArgs,
        (through_open, kills): (bool, bool),
    ) -> OperationResult {
        let (ino, caller) = (request.node, caller(request));
        let changes = AttributeChanges {
            mode: asked.mode,
            uid: asked.uid,
            gid: asked.gid,
            size: asked.size,
            atime: asked.atime.map(|time| inode_attributes::requested_or(time, caller.now)),
            mtime: asked.mtime.map(|time| inode_attributes::requested_or(time, caller.now)),
            ctime: asked.ctime.map(inode_attributes::requested),
            btime: None,
            kill_privileges: kills,
            // The kernel sends a time only if it differs from the last one.
            keep_times: self.writeback,
            through_open,
            keep_capability: false,
        };
        let changed = self.volume.set_attributes(ino, &changes, &caller);
        let inode = changed.map_err(|error| match error {
            // Times of cached writes fail like the data that the kernel writes back.
            Error::ReadOnly if may_be_write_back(asked) => Error::Stopped,
            error => error,
        })?;
        if let Some(size) = asked.size {
            self.lost_writeback.truncated(ino, size);
        }
        self.names_changed(ino)?;
        self.attributes_shown(ino);
        Ok(Reply::Attributes(inode_attributes::of(ino, &inode), self.caching.ttl()))
    }

    pub(super) fn make(
        &self,
        request: &FuseRequest<'_>,
        name: &[u8],
        mode: (u32, u32),
        rdev: u32,
    ) -> OperationResult {
        let (mode, caller) = self.maker(request, mode);
        let made = self.volume.make_node(request.node, name, mode, rdev, &caller);
        self.named(request.node, made)
    }

    pub(super) fn mkdir(
        &self,
        request: &FuseRequest<'_>,
        name: &[u8],
        (mode, umask): (u32, u32),
    ) -> OperationResult {
        let mode = FileKind::Directory.mode_bits() | mode & 0o7777;
        self.make(request, name, (mode, umask), 0)
    }

    /// Returns the mode of a new file before its directory's default access list or the umask restricts it, and the
    /// caller. Where the kernel enforces no lists, the umask is applied here.
    fn maker(&self, request: &FuseRequest<'_>, (mode, umask): (u32, u32)) -> (u32, Caller) {
        let caller = caller(request);
        match self.enforces_lists() {
            true => (mode, Caller { umask: Some(umask), ..caller }),
            false => (mode & !umask, caller),
        }
    }

    pub(super) fn symlink(
        &self,
        request: &FuseRequest<'_>,
        name: &[u8],
        target: &[u8],
    ) -> OperationResult {
        let made = self.volume.symlink(request.node, name, target, &caller(request));
        self.named(request.node, made)
    }

    pub(super) fn link(
        &self,
        request: &FuseRequest<'_>,
        target: u64,
        name: &[u8],
    ) -> OperationResult {
        let linked = self.volume.link(target, request.node, name, &caller(request));
        self.named(request.node, linked)
    }

    pub(super) fn create(
        &self,
        request: &FuseRequest<'_>,
        create: &CreateArgs<'_>,
    ) -> OperationResult {
        let parent = request.node;
        let (mode, caller) = self.maker(request, regular_mode(create));
        let made = self.volume.make_node(parent, create.name, mode, 0, &caller)?;
        self.name_made(parent, made.ino)?;
        Ok(self.created(&made, create))
    }

    pub(super) fn make_unnamed(
        &self,
        request: &FuseRequest<'_>,
        create: &CreateArgs<'_>,
    ) -> OperationResult {
        let (mode, caller) = self.maker(request, regular_mode(create));
        let made = self.volume.make_unnamed(request.node, mode, &caller)?;
        self.waker.note();
        Ok(self.created(&made, create))
    }

    /// Makes the reply for a file that was just made and is open.
    fn created(&self, made: &FileEntry, create: &CreateArgs<'_>) -> Reply<ReplyBytes> {
        Reply::Created(self.entry(made), self.opened(made.ino, create.open_flags, true))
    }

    /// Makes the reply for a file that has just got a name in `parent`.
    fn named(&self, parent: u64, made: CoreResult<FileEntry>) -> OperationResult {
        let made = made?;
        self.name_made(parent, made.ino)?;
        Ok(Reply::Entry(self.entry(&made)))
    }

    /// Notifies the kernel and syncs after a name for `ino` was made in `parent`. After an error,
    /// the kernel gets no reference.
    fn name_made(&self, parent: u64, ino: u64) -> CoreResult<()> {
        self.attributes_changed(parent);
        self.names_changed(parent).inspect_err(|_| self.volume.forget(ino, 1))
    }

    pub(super) fn unlink(&self, request: &FuseRequest<'_>, name: &[u8]) -> OperationResult {
        self.volume.unlink(request.node, name, &caller(request))?;
        self.attributes_changed(request.node);
        self.changed(request.node)
    }

    pub(super) fn rmdir(&self, request: &FuseRequest<'_>, name: &[u8]) -> OperationResult {
        self.volume.remove_directory(request.node, name, &caller(request))?;
        self.attributes_changed(request.node);
        self.changed(request.node)
    }

    pub(super) fn rename(
        &self,
        request: &FuseRequest<'_>,
        name: &[u8],
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
    ) -> OperationResult {
        const WHITEOUT_NOREPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            libc::RENAME_WHITEOUT => RenameMode::Whiteout,
            WHITEOUT_NOREPLACE => RenameMode::WhiteoutNoReplace,
            _ => return Err(Refusal::Errno(libc::EINVAL)),
        };
        let caller = caller(request);
        let (parent, volume) = (request.node, &self.volume);
        let moved = volume.rename(parent, name, new_parent, new_name, mode, &caller)?;
        let other = (new_parent != parent).then_some(new_parent);
        for directory in [Some(parent), other].into_iter().chain(moved).flatten() {
            self.attributes_changed(directory);
        }
        self.changed(new_parent)
    }

    pub(super) fn setxattr(
        &self,
        request: &FuseRequest<'_>,
        name: &[u8],
        value: &[u8],
        flags: u32,
        clear_sgid: bool,
    ) -> OperationResult {
        const NEITHER: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        self.check_namespace(name)?;
        if let Some(kind) = AccessListKind::of_name(name) {
            let caller = caller(request);
            self.volume.set_access_list(request.node, kind, value, clear_sgid, &caller)?;
            self.attributes_changed(request.node);
            return self.changed(request.node);
        }
        let mode = match flags.cast_signed() {
            NEITHER => {
                self.volume.xattr(request.node, name)?;
                return Err(Refusal::Errno(libc::EEXIST));
            }
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        self.volume.set_xattr(request.node, name, value, mode, &caller(request))?;
        self.values_changed(request.node)
    }

    pub(super) fn getxattr(&self, ino: u64, name: &[u8], size: u32) -> OperationResult {
        self.check_namespace(name)?;
        value(self.volume.xattr(ino, name)?, size)
    }

    /// Lists the names of extended attributes, those of `trusted.` only to an administrator (xattr(7)), and those of
    /// access lists only if they are enforced.
    pub(super) fn listxattr(&self, request: &FuseRequest<'_>, size: u32) -> OperationResult {
        let mut names = self.volume.xattr_names(request.node)?;
        let is_trusted = |name: &[u8]| name.starts_with(TRUSTED);
        let hides_trusted =
            each_name(&names).any(is_trusted) && !privileges::is_admin(&self.monitor, request.pid);
        let is_hidden = |name: &[u8]| {
            let is_list = AccessListKind::of_name(&name[..name.len() - 1]).is_some();
            hides_trusted && is_trusted(name) || is_list && !self.enforces_lists()
        };
        if each_name(&names).any(is_hidden) {
            names = each_name(&names).filter(|name| !is_hidden(name)).flatten().copied().collect();
        }
        value(names, size)
    }

    pub(super) fn removexattr(&self, request: &FuseRequest<'_>, name: &[u8]) -> OperationResult {
        self.check_namespace(name)?;
        match self.volume.remove_xattr(request.node, name, &caller(request)) {
            // Other filesystems remove an access list that a file does not have.
            Err(Error::NoAttribute) if AccessListKind::of_name(name).is_some() => {
                return Ok(Reply::Done);
            }
            removed => removed?,
        }
        self.values_changed(request.node)
    }

    /// Checks that `name` is the name of an attribute that files can have. The kernel passes on every name; where it
    /// enforces no access lists, also their names.
    fn check_namespace(&self, name: &[u8]) -> Result<(), Refusal> {
        if self.enforces_lists() && AccessListKind::of_name(name).is_some() {
            return Ok(());
        }
        match NAMESPACES.iter().find_map(|namespace| name.strip_prefix(*namespace)) {
            None => Err(Refusal::Errno(libc::EOPNOTSUPP)),
            Some(b"") => Err(Refusal::Errno(libc::EINVAL)),
            Some(_) => Ok(()),
        }
    }

    /// Notifies the kernel and syncs after a change of an extended attribute of `ino`, and makes
    /// the reply.
    fn values_changed(&self, ino: u64) -> OperationResult {
        if self.volume.attributes(ino)?.kind() == FileKind::Directory {
            self.attributes_changed(ino);
        }
        self.changed(ino)
    }

    /// Syncs after a change of `ino` if the mount options ask for it, and makes the reply.
    fn changed(&self, ino: u64) -> OperationResult {
        self.names_changed(ino)?;
        Ok(Reply::Done)
    }

    pub(super) fn readdir(
        &self,
        ino: u64,
        read: &ReadArgs,
        with_attributes: bool,
    ) -> OperationResult {
        let mut directory = DirectoryListing::new(read.size);
        let mut add = |entry: &ListingEntry<'_>, file: Option<&sfs_fuse::NodeEntry>| {
            if with_attributes { directory.add_with(entry, file) } else { directory.add(entry) }
        };
        self.read_entries(ino, read.offset, with_attributes, &mut add)?;
        Ok(Reply::Directory(directory))
    }

    /// Lists the entries of a directory, for a transport that does not state how many bytes it takes: `add` returns
    /// whether it took an entry. With attributes, every entry that it took is a reference, except for "." and "..".
    pub(crate) fn list(
        &self,
        ino: u64,
        offset: u64,
        with_attributes: bool,
        add: &mut dyn FnMut(&ListingEntry<'_>, Option<&sfs_fuse::NodeEntry>) -> bool,
    ) -> Result<(), Errno> {
        let begun = Instant::now();
        let read = self.read_entries(ino, offset, with_attributes, add);
        self.latencies.note_kind(OperationKind::Readdir, begun.elapsed());
        read.map_err(|error| self.errno(ino, &error))
    }

    fn read_entries(
        &self,
        ino: u64,
        offset: u64,
        with_attributes: bool,
        add: &mut dyn FnMut(&ListingEntry<'_>, Option<&sfs_fuse::NodeEntry>) -> bool,
    ) -> CoreResult<()> {
        self.volume.read_directory(ino, offset, with_attributes, &mut |found| {
            let shown = ListingEntry {
                ino: found.ino,
                cookie: found.cookie,
                mode: found.kind.mode_bits(),
                name: found.name,
            };
            let file = found.inode.map(|inode| self.entry(&FileEntry { ino: found.ino, inode }));
            add(&shown, file.as_ref())
        })
    }
}

/// Returns whether a request sets only the time of change. The kernel sends such a request before a
/// write to a file with privileges, and for a chown(2) with neither owner nor group. Both requests
/// clear the privileges, and no flag states that.
fn sets_only_ctime(asked: &SetattrArgs) -> bool {
    (asked.mode, asked.uid, asked.gid, asked.size) == (None, None, None, None)
        && (asked.atime, asked.mtime) == (None, None)
}

/// Returns whether a request clears suid, sgid and capabilities.
pub(super) fn kills_privileges(asked: &SetattrArgs) -> bool {
    asked.kill_privileges || sets_only_ctime(asked)
}

/// Returns whether a request may carry the times of cached writes, which the kernel sends before it
/// syncs a file. `touch -m` causes the same request.
fn may_be_write_back(asked: &SetattrArgs) -> bool {
    (asked.mode, asked.uid, asked.gid, asked.size) == (None, None, None, None)
        && asked.atime.is_none()
        && asked.mtime.is_some()
}

/// Returns the mode and the umask of a new regular file.
fn regular_mode(create: &CreateArgs<'_>) -> (u32, u32) {
    (FileKind::Regular.mode_bits() | create.mode & 0o7777, create.umask)
}

/// Returns the names in a list, each with its NUL.
fn each_name(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split_inclusive(|byte| *byte == 0)
}

/// Makes the reply with a value, or with its length if `size` is 0.
fn value(value: Vec<u8>, size: u32) -> OperationResult {
    match size {
        0 => Ok(Reply::Length(value.len() as u32)),
        size if value.len() > size as usize => Err(Refusal::Errno(libc::ERANGE)),
        _ => Ok(Reply::Data(ReplyBytes::Value(value))),
    }
}
