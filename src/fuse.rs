//! What the kernel asks of the volume: decoded request, one call, answer.
//!
//! Owns: the one translation between requests and the volume's operations, whatever transport they
//! come through.
//! Promises: every operation has its line here; a failure of the device or the image is logged once.
//! Never: decides anything, or knows how a request came.

mod content;
mod handles;
mod names;
mod notices;
mod overflow;
mod paths;
mod room;
mod shell;
mod shutdown;

use sfs_core::Error;
use sfs_core::request::ReadBuffer;
use sfs_fuse::{Answer, Errno, InitFlags, Operation, Request};

use crate::attributes;
pub(crate) use notices::Notices;
pub(crate) use overflow::{Missing, Overflow};
pub(crate) use shell::Shell;
use shell::TTL;

/// Bytes in a write request.
pub(crate) const WRITE_MAX: u32 = 1 << 20;

/// Requests that the kernel sends without waiting for the answers.
pub(crate) const BACKGROUND_MAX: u16 = 64;

/// The answer to a request, or what the kernel is told instead.
pub(crate) type Outcome = Result<Answer<Bytes>, Errno>;

/// What became of an operation.
type Served = Result<Answer<Bytes>, Refusal>;

/// Memory that an answer is read from.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Of a file.
    Content(ReadBuffer),
    /// Of something smaller.
    Value(Vec<u8>),
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Content(buffer) => buffer.as_bytes(),
            Self::Value(value) => value,
        }
    }
}

impl Shell {
    /// The features of the protocol that are wished for.
    pub(crate) fn wished(&self) -> InitFlags {
        let mut flags = InitFlags::ASYNC_READ
            | InitFlags::BIG_WRITES
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::ATOMIC_O_TRUNC
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::ALLOW_IDMAP
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::ABORT_ERROR;
        flags.set(InitFlags::WRITEBACK_CACHE, self.writeback);
        flags.set(InitFlags::DIRECT_IO_ALLOW_MMAP, self.writeback);
        flags
    }

    /// The features that the kernel has, too. An older one goes without what it does not know.
    pub(crate) fn agree(&mut self, flags: InitFlags) {
        self.writeback &= flags.contains(InitFlags::WRITEBACK_CACHE);
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        self.answers_writes = self.writeback
            && flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP)
            && room::is_coherent(&release);
    }

    /// The answer to `request`; what is read may be put into `room`, if there is any.
    pub(crate) fn answer(&self, request: &Request<'_>, room: &mut [u8]) -> Outcome {
        let node = request.node;
        match self.serve(request, room) {
            Ok(answer) => Ok(answer),
            Err(Refusal::Failed(error)) => Err(self.errno(node, &error)),
            Err(Refusal::Errno(code)) => Err(Errno::new(code)),
        }
    }

    fn serve(&self, request: &Request<'_>, room: &mut [u8]) -> Served {
        let node = request.node;
        match &request.operation {
            Operation::Lookup { name } => self.lookup(node, name),
            Operation::Forget { count } => Ok(self.forget([(node, *count)])),
            Operation::BatchForget(forgets) => Ok(self.forget(forgets.iter())),
            Operation::Getattr { handle } => self.getattr(node, *handle),
            Operation::Statx { .. } => self.statx(node),
            Operation::Setattr(changes) => self.setattr(request, changes),
            Operation::Readlink => self.readlink(node),
            Operation::Symlink { name, target } => self.symlink(request, name, target),
            Operation::Mknod { name, mode, rdev, umask } => {
                self.make(request, name, mode & !umask, *rdev)
            }
            Operation::Mkdir { name, mode, umask } => self.mkdir(request, name, mode & !umask),
            Operation::Unlink { name } => self.unlink(request, name),
            Operation::Rmdir { name } => self.rmdir(request, name),
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(request, name, (*new_parent, new_name), *flags)
            }
            Operation::Link { target, name } => self.link(request, *target, name),
            Operation::Create(create) => self.create(request, create),
            Operation::Tmpfile(create) => self.make_unnamed(request, create),
            Operation::Open { open_flags, kill_privileges } => {
                self.open(request, *open_flags, *kill_privileges)
            }
            Operation::Release(release) => Ok(self.release(node, release)),
            Operation::Releasedir(_) => Ok(Answer::Done),
            Operation::Read(read) => self.read(node, read, room),
            Operation::Write(write) => self.write(request, write),
            Operation::Fsync { handle, .. } => self.sync_opened(node, *handle),
            Operation::Fsyncdir { .. } => self.sync_file(node),
            Operation::Syncfs => self.sync_all(),
            Operation::Destroy => self.destroy(),
            Operation::Readdir(read) => self.readdir(node, read, false),
            Operation::Readdirplus(read) => self.readdir(node, read, true),
            Operation::Statfs => Ok(Answer::Statfs(self.statfs())),
            Operation::Setxattr { name, value, flags } => {
                self.setxattr(request, name, value, *flags)
            }
            Operation::Getxattr { name, size } => self.getxattr(node, name, *size),
            Operation::Listxattr { size } => self.listxattr(node, *size),
            Operation::Removexattr { name } => self.removexattr(request, name),
            Operation::Ioctl(ioctl) => self.ioctl(request, ioctl),
            Operation::Lseek { offset, whence, .. } => self.seek(node, *offset, *whence),
            // The kernel does not ask again. There is nothing to do when a directory is opened, or at
            // close(2); the kernel checks permissions and keeps locks; a log has no places to reserve, for
            // which the C library writes zeros instead; what is copied the kernel takes from its cache,
            // not from flash.
            Operation::Opendir { .. }
            | Operation::Flush { .. }
            | Operation::Access { .. }
            | Operation::Getlk(_)
            | Operation::Setlk(_)
            | Operation::Setlkw(_)
            | Operation::Interrupt { .. }
            | Operation::Bmap { .. }
            | Operation::Poll { .. }
            | Operation::Fallocate { .. }
            | Operation::CopyFileRange(_) => Err(Refusal::Errno(libc::ENOSYS)),
        }
    }

    /// With a handle, the kernel asks for a write(2) that is about to put data into its cache.
    fn getattr(&self, ino: u64, handle: Option<u64>) -> Served {
        if handle.is_some_and(|handle| self.is_refused(ino, handle)) {
            return Err(Refusal::Errno(libc::ENOSPC));
        }
        let inode = self.volume.attributes(ino)?;
        self.shown(ino);
        Ok(Answer::Attributes(attributes::of(ino, &inode), TTL))
    }

    fn statx(&self, ino: u64) -> Served {
        let inode = self.volume.attributes(ino)?;
        let btime = attributes::time(inode.btime);
        self.shown(ino);
        Ok(Answer::Statx(attributes::of(ino, &inode), Some(btime), TTL))
    }

    fn readlink(&self, ino: u64) -> Served {
        Ok(Answer::Data(Bytes::Value(self.volume.read_link(ino)?)))
    }
}

/// Why an operation was not done.
enum Refusal {
    /// The volume has said so.
    Failed(Error),
    /// It never reached the volume.
    Errno(i32),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
