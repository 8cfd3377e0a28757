//! `/dev/fuse` through fuser 0.18: the reference.
//!
//! Owns: fuser's methods, each of which makes a request for the shell.
//! Promises: every request is answered; what fuser does not show of one is made up for here.
//! Never: calls the volume.

mod convert;
mod reply;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Config, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig,
    LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Session, SessionACL, TimeOrNow, WriteFlags,
};
use sfs_fuse::{Create, Extensions, Operation, Read, Release, Request, Setattr, Write};

use super::ATTRIBUTES_ONLY;
use crate::fuse::{BACKGROUND_MAX, Notices, Outcome, Shell, WRITE_MAX};

pub(crate) struct Serving(Session<Methods>, Arc<Notices>);

impl Serving {
    pub(super) fn open(door: File, mut shell: Shell, threads: usize) -> io::Result<Self> {
        // There is none before the session, which has the shell by then.
        let notifier = Arc::new(OnceLock::<Notifier>::new());
        let later = notifier.clone();
        shell.notify_by(Box::new(move |directory| match later.get() {
            Some(notifier) => notifier.inval_inode(INodeNo(directory), -1, 0),
            None => Ok(()),
        }));
        let mut config = Config::default();
        // The kernel lets in whom the mount lets in.
        config.acl = SessionACL::All;
        config.clone_fd = true;
        config.n_threads = Some(threads);
        let notices = shell.notices();
        let session = Session::from_fd(Methods(shell), door.into(), SessionACL::All, config)?;
        notifier.get_or_init(|| session.notifier());
        Ok(Self(session, notices))
    }

    pub(super) fn run(self) -> io::Result<()> {
        let Self(session, notices) = self;
        let notifier = session.notifier();
        let send = |ino| match notifier.inval_inode(INodeNo(ino), ATTRIBUTES_ONLY, 0) {
            // The kernel does not know it any more.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            sent => sent,
        };
        super::notifying(&notices, send, || session.run())
    }
}

/// The shell as fuser calls it.
struct Methods(Shell);

impl Methods {
    fn answer(&self, from: &fuser::Request, node: INodeNo, operation: Operation<'_>) -> Outcome {
        let request = Request {
            unique: from.unique().0,
            node: node.0,
            uid: from.uid(),
            gid: from.gid(),
            pid: from.pid(),
            extensions: Extensions::default(),
            operation,
        };
        self.0.answer(&request, &mut [])
    }
}

impl Filesystem for Methods {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Who truncates is told by the user alone, which the kernel then says no more.
        let mut wished = self.0.wished() - sfs_fuse::InitFlags::ALLOW_IDMAP;
        let is_asked = self.0.async_dio.is_asked_of(config.kernel_abi().1);
        wished.set(sfs_fuse::InitFlags::ASYNC_DIO, is_asked);
        let wished = InitFlags::from_bits_truncate(wished.bits());
        let unknown = config.add_capabilities(wished).err().unwrap_or(InitFlags::empty());
        let agreed = wished & !unknown;
        let _ = config.add_capabilities(agreed);
        self.0.agree(sfs_fuse::InitFlags::from_bits_truncate(agreed.bits()));
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX / 4 * 3);
        Ok(())
    }

    fn lookup(&self, from: &fuser::Request, parent: INodeNo, name: &OsStr, to: ReplyEntry) {
        let operation = Operation::Lookup { name: name.as_bytes() };
        reply::entry(self.answer(from, parent, operation), to);
    }

    fn forget(&self, from: &fuser::Request, ino: INodeNo, count: u64) {
        let _no_answer = self.answer(from, ino, Operation::Forget { count });
    }

    fn getattr(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: Option<FileHandle>,
        to: ReplyAttr,
    ) {
        let operation = Operation::Getattr { handle: handle.map(|handle| handle.0) };
        reply::attributes(self.answer(from, ino, operation), to);
    }

    fn setattr(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        to: ReplyAttr,
    ) {
        // The kernel's flag for it is not shown.
        let kill_privileges = size.is_some() && from.uid() != 0;
        let changes = Setattr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: ctime.map(convert::time),
            handle: handle.map(|handle| handle.0),
            kill_privileges,
        };
        reply::attributes(self.answer(from, ino, Operation::Setattr(changes)), to);
    }

    fn readlink(&self, from: &fuser::Request, ino: INodeNo, to: ReplyData) {
        reply::data(self.answer(from, ino, Operation::Readlink), to);
    }

    fn mknod(
        &self,
        from: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        to: ReplyEntry,
    ) {
        let operation = Operation::Mknod { name: name.as_bytes(), mode, rdev, umask };
        reply::entry(self.answer(from, parent, operation), to);
    }

    fn mkdir(
        &self,
        from: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        to: ReplyEntry,
    ) {
        let operation = Operation::Mkdir { name: name.as_bytes(), mode, umask };
        reply::entry(self.answer(from, parent, operation), to);
    }

    fn unlink(&self, from: &fuser::Request, parent: INodeNo, name: &OsStr, to: ReplyEmpty) {
        let operation = Operation::Unlink { name: name.as_bytes() };
        reply::done(self.answer(from, parent, operation), to);
    }

    fn rmdir(&self, from: &fuser::Request, parent: INodeNo, name: &OsStr, to: ReplyEmpty) {
        let operation = Operation::Rmdir { name: name.as_bytes() };
        reply::done(self.answer(from, parent, operation), to);
    }

    fn symlink(
        &self,
        from: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        to: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let operation = Operation::Symlink { name: name.as_bytes(), target };
        reply::entry(self.answer(from, parent, operation), to);
    }

    fn rename(
        &self,
        from: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        to: ReplyEmpty,
    ) {
        let operation = Operation::Rename {
            name: name.as_bytes(),
            new_parent: new_parent.0,
            new_name: new_name.as_bytes(),
            flags: flags.bits(),
        };
        reply::done(self.answer(from, parent, operation), to);
    }

    fn link(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        to: ReplyEntry,
    ) {
        let operation = Operation::Link { target: ino.0, name: name.as_bytes() };
        reply::entry(self.answer(from, parent, operation), to);
    }

    fn open(&self, from: &fuser::Request, ino: INodeNo, flags: OpenFlags, to: ReplyOpen) {
        // As for truncate(2).
        let kill_privileges = from.uid() != 0;
        let operation = Operation::Open { open_flags: flags.0.cast_unsigned(), kill_privileges };
        reply::opened(self.answer(from, ino, operation), to);
    }

    fn create(
        &self,
        from: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        to: ReplyCreate,
    ) {
        let operation = Operation::Create(Create {
            name: name.as_bytes(),
            mode,
            umask,
            open_flags: flags.cast_unsigned(),
            kill_privileges: false,
        });
        reply::created(self.answer(from, parent, operation), to);
    }

    fn read(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        to: ReplyData,
    ) {
        let open_flags = flags.0.cast_unsigned();
        let operation = Operation::Read(Read { handle: handle.0, offset, size, open_flags });
        reply::data(self.answer(from, ino, operation), to);
    }

    fn write(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        to: ReplyWrite,
    ) {
        let operation = Operation::Write(Write {
            handle: handle.0,
            offset,
            data,
            open_flags: flags.0.cast_unsigned(),
            from_cache: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        });
        reply::written(self.answer(from, ino, operation), to);
    }

    fn release(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        to: ReplyEmpty,
    ) {
        let operation = Operation::Release(Release {
            handle: handle.0,
            open_flags: flags.0.cast_unsigned(),
            lock_owner: lock_owner.map_or(0, |owner| owner.0),
            unlock_flock: false,
        });
        reply::done(self.answer(from, ino, operation), to);
    }

    fn flush(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        to: ReplyEmpty,
    ) {
        let operation = Operation::Flush { handle: handle.0, lock_owner: owner.0 };
        reply::done(self.answer(from, ino, operation), to);
    }

    fn fsync(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        to: ReplyEmpty,
    ) {
        let operation = Operation::Fsync { handle: handle.0, data_only };
        reply::done(self.answer(from, ino, operation), to);
    }

    fn fsyncdir(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        to: ReplyEmpty,
    ) {
        let operation = Operation::Fsyncdir { handle: handle.0, data_only };
        reply::done(self.answer(from, ino, operation), to);
    }

    fn opendir(&self, from: &fuser::Request, ino: INodeNo, flags: OpenFlags, to: ReplyOpen) {
        let operation = Operation::Opendir { open_flags: flags.0.cast_unsigned() };
        reply::opened(self.answer(from, ino, operation), to);
    }

    // How many bytes the kernel takes is not shown: the shell is asked for one entry after another.
    fn readdir(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut to: ReplyDirectory,
    ) {
        let listed = self.0.list(ino.0, offset, false, &mut |entry, _| {
            let kind = convert::file_type(entry.mode);
            !to.add(INodeNo(entry.ino), entry.cookie, kind, OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => to.ok(),
            Err(errno) => to.error(convert::errno(errno)),
        }
    }

    fn readdirplus(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut to: ReplyDirectoryPlus,
    ) {
        let listed = self
            .0
            .list(ino.0, offset, true, &mut |entry, file| reply::add_with(&mut to, entry, file));
        match listed {
            Ok(()) => to.ok(),
            Err(errno) => to.error(convert::errno(errno)),
        }
    }

    fn statfs(&self, from: &fuser::Request, ino: INodeNo, to: ReplyStatfs) {
        reply::statfs(self.answer(from, ino, Operation::Statfs), to);
    }

    fn setxattr(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        to: ReplyEmpty,
    ) {
        let (name, flags) = (name.as_bytes(), flags.cast_unsigned());
        reply::done(self.answer(from, ino, Operation::Setxattr { name, value, flags }), to);
    }

    fn getxattr(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        to: ReplyXattr,
    ) {
        let operation = Operation::Getxattr { name: name.as_bytes(), size };
        reply::value(self.answer(from, ino, operation), to);
    }

    fn listxattr(&self, from: &fuser::Request, ino: INodeNo, size: u32, to: ReplyXattr) {
        reply::value(self.answer(from, ino, Operation::Listxattr { size }), to);
    }

    fn removexattr(&self, from: &fuser::Request, ino: INodeNo, name: &OsStr, to: ReplyEmpty) {
        let operation = Operation::Removexattr { name: name.as_bytes() };
        reply::done(self.answer(from, ino, operation), to);
    }

    fn access(&self, from: &fuser::Request, ino: INodeNo, mask: AccessFlags, to: ReplyEmpty) {
        let operation = Operation::Access { mask: mask.bits().cast_unsigned() };
        reply::done(self.answer(from, ino, operation), to);
    }

    fn fallocate(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        to: ReplyEmpty,
    ) {
        let mode = mode.cast_unsigned();
        let operation = Operation::Fallocate { handle: handle.0, offset, len, mode };
        reply::done(self.answer(from, ino, operation), to);
    }

    fn lseek(
        &self,
        from: &fuser::Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        to: ReplyLseek,
    ) {
        let (offset, whence) = (offset.cast_unsigned(), whence.cast_unsigned());
        let operation = Operation::Lseek { handle: handle.0, offset, whence };
        reply::offset(self.answer(from, ino, operation), to);
    }
}
