//! `/dev/fuse` through fuser 0.18, for comparison with `sfs-fuse`, by conversion between the types of fuser and of
//! `sfs-fuse`.
//!
//! Each method that fuser calls makes a [`FuseRequest`] of its arguments, has the shell answer it,
//! and gives the reply to fuser ([`send_reply`]). fuser hides parts of some requests and does not
//! deliver others; docs/SEMANTICS.md has the table of the limits of this transport.

mod convert;
mod send_reply;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, Config, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo,
    InitFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Session, SessionACL, TimeOrNow, WriteFlags,
};
use send_reply::SendReply;
use sfs_fuse::{
    CopyArgs, CreateArgs, FuseOperation, FuseRequest, ReadArgs, ReleaseArgs, RequestExtensions,
    SetattrArgs, WriteArgs,
};

use super::notify_thread::{ATTRIBUTES_ONLY, serve_with_notifications};
use crate::fuse::{
    AttributeInvalidations, FuseShell, ReplyResult, WRITE_MAX, congestion_threshold,
};
use crate::mount_options::AccessLists;

/// Session of fuser that calls the shell.
pub(super) struct FuserSession(Session<Adapter>, Arc<AttributeInvalidations>);

impl FuserSession {
    /// Agrees with the kernel on the protocol.
    pub(super) fn open(channel: File, mut shell: FuseShell, threads: usize) -> io::Result<Self> {
        // The notifier comes from the session, and the session owns the shell.
        let notifier = Arc::new(OnceLock::<Notifier>::new());
        let later = notifier.clone();
        shell.notify_by(Arc::new(move |directory| match later.get() {
            Some(notifier) => notifier.inval_inode(INodeNo(directory), ATTRIBUTES_ONLY, 0),
            None => Ok(()),
        }));
        let mut config = Config::default();
        // The mount's own option `allow_other` decides which users may enter; the kernel applies it.
        config.acl = SessionACL::All;
        config.clone_fd = true;
        config.n_threads = Some(threads);
        let invalidations = shell.invalidations();
        let adapter = Adapter { shell, threads };
        let session = Session::from_fd(adapter, channel.into(), SessionACL::All, config)?;
        notifier.get_or_init(|| session.notifier());
        Ok(Self(session, invalidations))
    }

    pub(super) fn run(self) -> io::Result<()> {
        let Self(session, invalidations) = self;
        let notifier = session.notifier();
        let send = |ino| match notifier.inval_inode(INodeNo(ino), ATTRIBUTES_ONLY, 0) {
            // The kernel has forgotten this inode.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            sent => sent,
        };
        // fuser cannot ask the kernel to forget files.
        serve_with_notifications(&invalidations, send, || (), || session.run())
    }
}

/// The shell, with the methods that fuser calls.
struct Adapter {
    shell: FuseShell,
    /// Number of threads that serve requests.
    threads: usize,
}

impl Adapter {
    fn answer(
        &self,
        from: &fuser::Request,
        node: INodeNo,
        operation: FuseOperation<'_>,
    ) -> ReplyResult {
        let request = FuseRequest {
            unique: from.unique().0,
            node: node.0,
            uid: from.uid(),
            gid: from.gid(),
            pid: from.pid(),
            extensions: RequestExtensions::default(),
            operation,
            message: &[],
        };
        // fuser sends a reply from the thread that serves the request.
        self.shell.wait_in_place(&request);
        self.shell.reply_to(&request, &mut [])
    }
}

/// Defines methods of [`Filesystem`]. Each definition names the arguments, the inode of the request, and the operation;
/// the reply has the form of fuser's type after the arrow.
macro_rules! methods {
    ($(fn $name:ident($from:ident, $($arg:ident: $kind:ty),*) -> $reply:ty = $node:expr, $operation:expr;)*) => { $(
        fn $name(&self, $from: &fuser::Request, $($arg: $kind,)* reply: $reply) {
            reply.send(self.answer($from, $node, $operation));
        }
    )* };
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // fuser does not show the kernel's flag for clearing privileges. The caller's user number stands in for it,
        // which an idmapped mount would hide. fuser does not decode the long SETXATTR, which access lists need.
        let mut wanted =
            self.shell.features_wanted() - sfs_fuse::InitFlags::ALLOW_IDMAP - AccessLists::FEATURES;
        let is_asked = self.shell.async_dio.is_asked_of(config.kernel_abi().1);
        wanted.set(sfs_fuse::InitFlags::ASYNC_DIO, is_asked);
        let wanted = InitFlags::from_bits_truncate(wanted.bits());
        let unknown = config.add_capabilities(wanted).err().unwrap_or(InitFlags::empty());
        let agreed = wanted & !unknown;
        let _ = config.add_capabilities(agreed);
        self.shell.agree(sfs_fuse::InitFlags::from_bits_truncate(agreed.bits()))?;
        let _ = config.set_max_write(WRITE_MAX);
        let background_max = self.shell.background_max(self.threads, false);
        let _ = config.set_max_background(background_max);
        let _ = config.set_congestion_threshold(congestion_threshold(background_max));
        Ok(())
    }

    fn forget(&self, from: &fuser::Request, ino: INodeNo, count: u64) {
        let _no_reply = self.answer(from, ino, FuseOperation::Forget { count });
    }

    methods! {
        fn lookup(from, parent: INodeNo, name: &OsStr) -> ReplyEntry =
            parent, FuseOperation::Lookup { name: name.as_bytes() };

        fn getattr(from, ino: INodeNo, handle: Option<FileHandle>) -> ReplyAttr =
            ino, FuseOperation::Getattr { handle: handle.map(|handle| handle.0) };

        fn setattr(
            from, ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>,
            handle: Option<FileHandle>, _crtime: Option<SystemTime>, _chgtime: Option<SystemTime>,
            _bkuptime: Option<SystemTime>, _flags: Option<BsdFileFlags>
        ) -> ReplyAttr = ino, FuseOperation::Setattr(SetattrArgs {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            ctime: ctime.map(convert::time),
            handle: handle.map(|handle| handle.0),
            // See `init`.
            kill_privileges: size.is_some() && from.uid() != 0,
        });

        fn readlink(from, ino: INodeNo) -> ReplyData = ino, FuseOperation::Readlink;

        fn mknod(from, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32) -> ReplyEntry =
            parent, FuseOperation::Mknod { name: name.as_bytes(), mode, rdev, umask };

        fn mkdir(from, parent: INodeNo, name: &OsStr, mode: u32, umask: u32) -> ReplyEntry =
            parent, FuseOperation::Mkdir { name: name.as_bytes(), mode, umask };

        fn unlink(from, parent: INodeNo, name: &OsStr) -> ReplyEmpty =
            parent, FuseOperation::Unlink { name: name.as_bytes() };

        fn rmdir(from, parent: INodeNo, name: &OsStr) -> ReplyEmpty =
            parent, FuseOperation::Rmdir { name: name.as_bytes() };

        fn symlink(from, parent: INodeNo, name: &OsStr, target: &Path) -> ReplyEntry =
            parent, FuseOperation::Symlink {
                name: name.as_bytes(),
                target: target.as_os_str().as_bytes(),
            };

        fn rename(
            from, parent: INodeNo, name: &OsStr, new_parent: INodeNo, new_name: &OsStr, flags: RenameFlags
        ) -> ReplyEmpty = parent, FuseOperation::Rename {
            name: name.as_bytes(),
            new_parent: new_parent.0,
            new_name: new_name.as_bytes(),
            flags: flags.bits(),
        };

        fn link(from, ino: INodeNo, parent: INodeNo, name: &OsStr) -> ReplyEntry =
            parent, FuseOperation::Link { target: ino.0, name: name.as_bytes() };

        fn open(from, ino: INodeNo, flags: OpenFlags) -> ReplyOpen = ino, FuseOperation::Open {
            open_flags: flags.0.cast_unsigned(),
            // See `init`.
            kill_privileges: from.uid() != 0,
        };

        fn create(
            from, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32
        ) -> ReplyCreate = parent, FuseOperation::Create(CreateArgs {
            name: name.as_bytes(),
            mode,
            umask,
            open_flags: flags.cast_unsigned(),
            kill_privileges: false,
        });

        fn read(
            from, ino: INodeNo, handle: FileHandle, offset: u64, size: u32, flags: OpenFlags,
            _owner: Option<LockOwner>
        ) -> ReplyData = ino, FuseOperation::Read(ReadArgs {
            handle: handle.0,
            offset,
            size,
            open_flags: flags.0.cast_unsigned(),
        });

        fn write(
            from, ino: INodeNo, handle: FileHandle, offset: u64, data: &[u8], write_flags: WriteFlags,
            flags: OpenFlags, _owner: Option<LockOwner>
        ) -> ReplyWrite = ino, FuseOperation::Write(WriteArgs {
            handle: handle.0,
            offset,
            data,
            open_flags: flags.0.cast_unsigned(),
            from_cache: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        });

        fn release(
            from, ino: INodeNo, handle: FileHandle, flags: OpenFlags, owner: Option<LockOwner>,
            _flush: bool
        ) -> ReplyEmpty = ino, FuseOperation::Release(ReleaseArgs {
            handle: handle.0,
            open_flags: flags.0.cast_unsigned(),
            lock_owner: owner.map_or(0, |owner| owner.0),
            unlock_flock: false,
        });

        fn flush(from, ino: INodeNo, handle: FileHandle, owner: LockOwner) -> ReplyEmpty =
            ino, FuseOperation::Flush { handle: handle.0, lock_owner: owner.0 };

        fn fsync(from, ino: INodeNo, handle: FileHandle, data_only: bool) -> ReplyEmpty =
            ino, FuseOperation::Fsync { handle: handle.0, data_only };

        fn fsyncdir(from, ino: INodeNo, handle: FileHandle, data_only: bool) -> ReplyEmpty =
            ino, FuseOperation::Fsyncdir { handle: handle.0, data_only };

        fn opendir(from, ino: INodeNo, flags: OpenFlags) -> ReplyOpen =
            ino, FuseOperation::Opendir { open_flags: flags.0.cast_unsigned() };

        fn statfs(from, ino: INodeNo) -> ReplyStatfs = ino, FuseOperation::Statfs;

        fn setxattr(
            from, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _position: u32
        ) -> ReplyEmpty = ino, FuseOperation::Setxattr {
            name: name.as_bytes(),
            value,
            flags: flags.cast_unsigned(),
            clear_sgid: false,
        };

        fn getxattr(from, ino: INodeNo, name: &OsStr, size: u32) -> ReplyXattr =
            ino, FuseOperation::Getxattr { name: name.as_bytes(), size };

        fn listxattr(from, ino: INodeNo, size: u32) -> ReplyXattr =
            ino, FuseOperation::Listxattr { size };

        fn removexattr(from, ino: INodeNo, name: &OsStr) -> ReplyEmpty =
            ino, FuseOperation::Removexattr { name: name.as_bytes() };

        fn access(from, ino: INodeNo, mask: AccessFlags) -> ReplyEmpty =
            ino, FuseOperation::Access { mask: mask.bits().cast_unsigned() };

        fn fallocate(
            from, ino: INodeNo, handle: FileHandle, offset: u64, len: u64, mode: i32
        ) -> ReplyEmpty = ino, FuseOperation::Fallocate {
            handle: handle.0,
            offset,
            len,
            mode: mode.cast_unsigned(),
        };

        fn copy_file_range(
            from, ino: INodeNo, handle: FileHandle, offset: u64, to: INodeNo, to_handle: FileHandle,
            to_offset: u64, len: u64, flags: CopyFileRangeFlags
        ) -> ReplyWrite = ino, FuseOperation::CopyFileRange(CopyArgs {
            handle: handle.0,
            offset,
            to_node: to.0,
            to_handle: to_handle.0,
            to_offset,
            len,
            flags: flags.bits(),
            is_wide: false,
        });

        fn lseek(from, ino: INodeNo, handle: FileHandle, offset: i64, whence: i32) -> ReplyLseek =
            ino, FuseOperation::Lseek {
                handle: handle.0,
                offset: offset.cast_unsigned(),
                whence: whence.cast_unsigned(),
            };
    }

    // fuser hides the size of the kernel's buffer: the shell lists entries until fuser refuses one.
    fn readdir(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.shell.list(ino.0, offset, false, &mut |entry, _| {
            let kind = convert::file_type(entry.mode);
            !reply.add(INodeNo(entry.ino), entry.cookie, kind, OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    fn readdirplus(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.shell.list(ino.0, offset, true, &mut |entry, file| {
            send_reply::add_with_attributes(&mut reply, entry, file)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }
}
