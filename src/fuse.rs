//! The FUSE methods: decode, one call, reply.
//!
//! Owns: the translation between fuser's requests and the volume's operations.
//! Promises: every request is answered; a failure of the device or the image is logged once.
//! Never: decides anything.

mod shell;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use sfs_core::Error;
use sfs_core::format::{FileKind, NAME_LEN_MAX};
use sfs_core::request::{AttributeChanges, RenameMode, Seek, WriteMode, XattrMode};
use sfs_device::BLOCK_SIZE;

use crate::attributes;
use crate::options::Sync;
pub(crate) use shell::Shell;
use shell::{GENERATION, HANDLE, TTL, caller, or_error, reply_value};

/// Bytes in a write request.
const WRITE_MAX: u32 = 1 << 20;

/// Requests that the kernel sends without waiting for the answers.
const BACKGROUND_MAX: u16 = 64;

/// Inode numbers that are left, as far as statfs(2) can say.
const FILES_FREE: u64 = 1 << 32;

impl Filesystem for Shell {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut flags = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_CACHE_SYMLINKS;
        flags.set(InitFlags::FUSE_WRITEBACK_CACHE, self.writeback);
        // An older kernel goes without what it does not know.
        if let Err(unknown) = config.add_capabilities(flags) {
            let _ = config.add_capabilities(flags & !unknown);
            self.writeback &= !unknown.contains(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX / 4 * 3);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.volume.lookup(parent.0, name.as_bytes()) {
            Ok(entry) => {
                reply.entry(&TTL, &attributes::of(entry.ino, &entry.inode), GENERATION);
            }
            Err(Error::NotFound) => reply.entry(&TTL, &attributes::absent(), GENERATION),
            Err(error) => reply.error(self.errno(parent, &error)),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.volume.forget(ino.0, count);
        self.alarm.note_idle();
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let inode = or_error!(self, ino, reply, self.volume.attributes(ino.0));
        reply.attr(&TTL, &attributes::of(ino.0, &inode));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = caller(request);
        let nothing_given = (mode, uid, gid, size) == (None, None, None, None)
            && (atime, mtime, ctime) == (None, None, None);
        let changes = AttributeChanges {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(|time| attributes::requested_or(time, caller.now)),
            mtime: mtime.map(|time| attributes::requested_or(time, caller.now)),
            ctime: ctime.map(attributes::requested),
            btime: None,
            // fuser 0.18 does not show the kernel's flag for it; a request for nothing else is one
            // before somebody writes, or by chown(2) with neither owner nor group.
            kill_privileges: nothing_given || size.is_some() && caller.uid != 0,
            // The kernel says a time only if it is another one than before.
            keep_times: self.writeback,
        };
        let inode =
            or_error!(self, ino, reply, self.volume.set_attributes(ino.0, &changes, &caller));
        or_error!(self, ino, reply, self.names_changed(ino.0));
        reply.attr(&TTL, &attributes::of(ino.0, &inode));
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        let target = or_error!(self, ino, reply, self.volume.read_link(ino.0));
        reply.data(&target);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, mode) = (name.as_bytes(), mode & !umask);
        let entry = self.volume.make_node(parent.0, name, mode, rdev, &caller(request));
        self.reply_new(parent, entry, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = FileKind::Directory.mode_bits() | mode & !umask & 0o7777;
        let entry = self.volume.make_node(parent.0, name.as_bytes(), mode, 0, &caller(request));
        self.reply_new(parent, entry, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.volume.unlink(parent.0, name.as_bytes(), &caller(request));
        self.reply_done(parent, outcome, reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.volume.remove_directory(parent.0, name.as_bytes(), &caller(request));
        self.reply_done(parent, outcome, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let entry = self.volume.symlink(parent.0, name.as_bytes(), target, &caller(request));
        self.reply_new(parent, entry, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags.bits() {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let caller = caller(request);
        let outcome = self.volume.rename(parent.0, name, new_parent.0, new_name, mode, &caller);
        self.reply_done(new_parent, outcome, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let entry = self.volume.link(ino.0, parent.0, name.as_bytes(), &caller(request));
        self.reply_new(parent, entry, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        or_error!(self, ino, reply, self.truncate_on_open(request, ino.0, flags.0));
        reply.opened(HANDLE, FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mode = FileKind::Regular.mode_bits() | mode & !umask & 0o7777;
        let (name, caller) = (name.as_bytes(), caller(request));
        let entry = self.volume.make_node(parent.0, name, mode, 0, &caller);
        self.reply_open(parent, entry, reply);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let buffer = or_error!(self, ino, reply, self.volume.read(ino.0, offset, size as usize));
        reply.data(buffer.as_bytes());
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mode = WriteMode {
            // With its cache writing back, the kernel keeps the times of all writes, those past the
            // cache too, and says them later. It says nothing when they are what it has said
            // before: another time that we made up would stay.
            keep_times: self.writeback,
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let written = self.volume.write(ino.0, offset, data, mode, &caller(request));
        or_error!(self, ino, reply, written);
        self.alarm.note();
        if self.sync == Sync::Everything {
            or_error!(self, ino, reply, self.volume.sync_file(ino.0));
        }
        reply.written(data.len() as u32);
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // There is nothing to do at close(2); the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.sync_file(ino, reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.sync_file(ino, reply);
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(HANDLE, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let read = self.volume.read_directory(ino.0, offset, false, &mut |entry| {
            let kind = attributes::file_type(entry.kind);
            !reply.add(INodeNo(entry.ino), entry.cookie, kind, OsStr::from_bytes(entry.name))
        });
        or_error!(self, ino, reply, read);
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let read = self.volume.read_directory(ino.0, offset, true, &mut |entry| {
            let attributes = match &entry.inode {
                Some(inode) => attributes::of(entry.ino, inode),
                None => attributes::bare(entry.ino, entry.kind),
            };
            let (ino, name) = (INodeNo(entry.ino), OsStr::from_bytes(entry.name));
            !reply.add(ino, entry.cookie, name, &TTL, &attributes, GENERATION)
        });
        or_error!(self, ino, reply, read);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let space = self.volume.space();
        let (total, free) = (space.total_blocks, space.free_blocks);
        let (files, block) = (space.files + FILES_FREE, BLOCK_SIZE as u32);
        reply.statfs(total, free, free, files, FILES_FREE, block, NAME_LEN_MAX as u32, block);
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        // Without FUSE_POSIX_ACL the kernel passes access control lists through and obeys none.
        if name.as_bytes().starts_with(b"system.") {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        let caller = caller(request);
        let outcome = self.volume.set_xattr(ino.0, name.as_bytes(), value, mode, &caller);
        self.reply_done(ino, outcome, reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let value = or_error!(self, ino, reply, self.volume.xattr(ino.0, name.as_bytes()));
        reply_value(&value, size, reply);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = or_error!(self, ino, reply, self.volume.xattr_names(ino.0));
        reply_value(&names, size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.volume.remove_xattr(ino.0, name.as_bytes(), &caller(request));
        self.reply_done(ino, outcome, reply);
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions; it does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        // A log has no places to reserve; the C library writes zeros instead.
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel asks without writing back what it holds of the file, which looks like a hole
        // from here. It does not ask again, and takes every file for data without holes.
        if self.writeback {
            return reply.error(Errno::ENOSYS);
        }
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let found = or_error!(self, ino, reply, self.volume.seek(ino.0, offset, what));
        reply.offset(i64::try_from(found).unwrap_or(i64::MAX));
    }
}
