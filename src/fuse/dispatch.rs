//! The table from the operations of the protocol to the methods of the shell, and the features that the shell
//! wants.
//!
//! [`FuseShell::reply_to`] serves every operation. The kernel itself does the operations that are
//! refused with ENOSYS, or does not request them again.

use std::io;
use std::time::Instant;

use sfs_fuse::{Errno, FuseOperation, FuseRequest, InitFlags, Queue, Reply, Ticket};

use super::free_space;
use super::fuse_shell::FuseShell;
use super::inode_attributes;
use super::ioctl;
use super::recorded_requests;
use super::reply_result::{OperationResult, Refusal, ReplyBytes, ReplyResult};
use crate::kernel_release;
use crate::mount_options::AccessLists;

/// Refusal of a mount with the option `acl`.
const NO_LISTS: &str = "mount option 'acl': the kernel does not enforce access lists for FUSE \
                        filesystems, which needs Linux 5.13; leave it out";

/// Largest write request, in bytes.
pub(crate) const WRITE_MAX: u32 = 1 << 20;

/// Largest number of background requests with synchronous reads, where requests can be parked.
const BACKGROUND_PARKED_MAX: usize = 64;

/// Divisor of the write buffer: parked requests take one such part.
const PARKED_PARTS: usize = 4;

/// Returns the largest number of background requests that the kernel sends before replies, for a
/// number of serving threads. `parked_max` is the number of writes that can be parked.
///
/// With asynchronous reads, two requests for each thread keep all threads busy. More requests
/// would only wait in the daemon's queue, before the reads of other programs. With synchronous reads only writes are background
/// requests. As many as can be parked are sent, so that the write of a small file passes those of a large one; otherwise a thread is
/// left for other requests.
fn background_max(threads: usize, reads_asynchronously: bool, parked_max: usize) -> u16 {
    let requests = match reads_asynchronously {
        true => 2 * threads,
        false => parked_max.max(threads.saturating_sub(1)).max(1),
    };
    u16::try_from(requests).unwrap_or(u16::MAX)
}

/// Returns the number of background requests from which the kernel considers a mount congested that allows `background_max`.
pub(crate) fn congestion_threshold(background_max: u16) -> u16 {
    (background_max - background_max / 4).max(1)
}

/// Returns whether an operation changes the volume, so that it waits while the mount is frozen. Forgetting a file and
/// syncing change nothing while nothing else does.
pub(super) fn is_change(operation: &FuseOperation<'_>) -> bool {
    match operation {
        FuseOperation::Open { open_flags, .. } => open_flags.cast_signed() & libc::O_TRUNC != 0,
        FuseOperation::Ioctl(ioctl) => ioctl::is_change(ioctl.command),
        FuseOperation::Setattr(_)
        | FuseOperation::Symlink { .. }
        | FuseOperation::Mknod { .. }
        | FuseOperation::Mkdir { .. }
        | FuseOperation::Unlink { .. }
        | FuseOperation::Rmdir { .. }
        | FuseOperation::Rename { .. }
        | FuseOperation::Link { .. }
        | FuseOperation::Create(_)
        | FuseOperation::Tmpfile(_)
        | FuseOperation::Write(_)
        | FuseOperation::Setxattr { .. }
        | FuseOperation::Removexattr { .. }
        | FuseOperation::Fallocate { .. }
        | FuseOperation::CopyFileRange(_) => true,
        FuseOperation::Lookup { .. }
        | FuseOperation::Forget { .. }
        | FuseOperation::BatchForget(_)
        | FuseOperation::Getattr { .. }
        | FuseOperation::Statx { .. }
        | FuseOperation::Readlink
        | FuseOperation::Read(_)
        | FuseOperation::Statfs
        | FuseOperation::Release(_)
        | FuseOperation::Fsync { .. }
        | FuseOperation::Getxattr { .. }
        | FuseOperation::Listxattr { .. }
        | FuseOperation::Flush { .. }
        | FuseOperation::Opendir { .. }
        | FuseOperation::Readdir(_)
        | FuseOperation::Readdirplus(_)
        | FuseOperation::Releasedir(_)
        | FuseOperation::Fsyncdir { .. }
        | FuseOperation::Getlk(_)
        | FuseOperation::Setlk(_)
        | FuseOperation::Setlkw(_)
        | FuseOperation::Access { .. }
        | FuseOperation::Interrupt { .. }
        | FuseOperation::Bmap { .. }
        | FuseOperation::Destroy
        | FuseOperation::Poll { .. }
        | FuseOperation::Lseek { .. }
        | FuseOperation::Syncfs => false,
    }
}

/// Returns whether an operation only reads: it may fail while an object store does not answer, and be repeated.
fn is_read(operation: &FuseOperation<'_>) -> bool {
    match operation {
        FuseOperation::Open { .. } => !is_change(operation),
        FuseOperation::Lookup { .. }
        | FuseOperation::Getattr { .. }
        | FuseOperation::Statx { .. }
        | FuseOperation::Readlink
        | FuseOperation::Read(_)
        | FuseOperation::Getxattr { .. }
        | FuseOperation::Listxattr { .. }
        | FuseOperation::Opendir { .. }
        | FuseOperation::Readdir(_)
        | FuseOperation::Readdirplus(_)
        | FuseOperation::Access { .. }
        | FuseOperation::Lseek { .. } => true,
        _ => false,
    }
}

/// Returns whether an operation may leave work to the log's thread: a change, or the end of a file without a name.
fn may_leave_log_work(operation: &FuseOperation<'_>) -> bool {
    let forgets = matches!(operation, FuseOperation::Forget { .. } | FuseOperation::BatchForget(_));
    forgets || is_change(operation)
}

impl FuseShell {
    /// Returns the largest number of background requests at a time, with `threads` serving threads and a transport that can
    /// park requests or not.
    pub(crate) fn background_max(&self, threads: usize, can_park: bool) -> u16 {
        let parked = self.parked_bytes_max() / WRITE_MAX as usize;
        let parked_max = if can_park { parked.min(BACKGROUND_PARKED_MAX) } else { 0 };
        background_max(threads, self.bdi.reads_asynchronously, parked_max)
    }

    /// Returns the largest number of bytes that parked requests take.
    pub(crate) fn parked_bytes_max(&self) -> usize {
        (self.write_buffer / PARKED_PARTS).max(WRITE_MAX as usize)
    }

    /// Returns the features of the protocol that the shell wants.
    pub(crate) fn features_wanted(&self) -> InitFlags {
        let mut flags = InitFlags::BIG_WRITES
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::ATOMIC_O_TRUNC
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::ALLOW_IDMAP
            | InitFlags::EXPORT_SUPPORT
            | InitFlags::ABORT_ERROR;
        flags.set(InitFlags::ASYNC_READ, self.bdi.reads_asynchronously);
        flags.set(InitFlags::WRITEBACK_CACHE, self.writeback);
        flags.set(InitFlags::DIRECT_IO_ALLOW_MMAP, self.writeback);
        flags.set(AccessLists::FEATURES, self.enforces_lists());
        flags
    }

    /// Notes the features that both sides have agreed on; an older kernel lacks some.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the mount requires a feature that is missing.
    pub(crate) fn agree(&mut self, flags: InitFlags) -> io::Result<()> {
        self.writeback &= flags.contains(InitFlags::WRITEBACK_CACHE);
        if !flags.contains(AccessLists::FEATURES) {
            if self.access_lists == AccessLists::Required {
                return Err(io::Error::new(io::ErrorKind::Unsupported, NO_LISTS));
            }
            self.access_lists = AccessLists::Off;
        }
        let release = kernel_release::running();
        self.can_bypass_cache = self.writeback
            && flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP)
            && free_space::is_coherent(&release);
        Ok(())
    }

    /// Returns whether the kernel enforces access lists.
    pub(crate) fn enforces_lists(&self) -> bool {
        self.access_lists != AccessLists::Off
    }

    /// Serves `request`, once a change may pass. The data of a read may be put into `room`, if `room` is not empty.
    pub(crate) fn reply_to(&self, request: &FuseRequest<'_>, room: &mut [u8]) -> ReplyResult {
        let change = is_change(&request.operation).then(|| self.freezer.gate().enter());
        let result = self.reply_beyond_gate(request, None, room);
        drop(change);
        match result {
            Ok(Reply::Parked(queue)) => self.reply_beyond_gate(request, Some(queue), room),
            result => result,
        }
    }

    /// Serves `request`, which has waited in `queue`, if in any. The caller has let a change pass the gate.
    pub(super) fn reply_beyond_gate(
        &self,
        request: &FuseRequest<'_>,
        queue: Option<Queue>,
        room: &mut [u8],
    ) -> ReplyResult {
        match &self.journal {
            None => self.serve_passed(request, queue, room),
            Some(journal) => {
                let pass = || self.serve_passed(request, queue, room);
                self.serve_journaled(journal, request, queue, pass)
            }
        }
    }

    /// Serves `request`, and records it if a recording is on.
    fn serve_passed(
        &self,
        request: &FuseRequest<'_>,
        queue: Option<Queue>,
        room: &mut [u8],
    ) -> ReplyResult {
        match self.recorder.is_on() {
            false => self.pass(request, queue, room),
            true => self.answer_recorded(request, queue, room),
        }
    }

    /// Serves `request` as [`FuseShell::reply_to`] does, and records it.
    #[cold]
    fn answer_recorded(
        &self,
        request: &FuseRequest<'_>,
        queue: Option<Queue>,
        room: &mut [u8],
    ) -> ReplyResult {
        let before = self.files_before(request);
        let begun = Instant::now();
        let result = self.pass(request, queue, room);
        // A request that waits once more is recorded with its reply.
        if !matches!(result, Ok(Reply::Parked(_))) {
            self.recorder.record(begun, recorded_requests::of(request, before, &result));
        }
        result
    }

    pub(super) fn pass(
        &self,
        request: &FuseRequest<'_>,
        queue: Option<Queue>,
        room: &mut [u8],
    ) -> ReplyResult {
        let node = request.node;
        let begun = Instant::now();
        let outcome = match queue {
            Some(Queue::Syncs(ticket)) => self.serve_announced(request, ticket, room),
            Some(Queue::WholeSyncs(ticket)) => self.sync_all_announced(ticket),
            Some(Queue::Changes) | None if is_read(&request.operation) => {
                sfs_object::with_reads_that_fail(|| self.serve(request, room))
            }
            Some(Queue::Changes) | None => self.serve(request, room),
        };
        if may_leave_log_work(&request.operation) {
            self.log_work.note(&self.volume);
        }
        // The latency of a request that waits once more is that of its last part.
        if !matches!(outcome, Ok(Reply::Parked(_))) {
            self.latencies.note(&request.operation, begun.elapsed());
        }
        match outcome {
            Ok(answer) => Ok(answer),
            Err(Refusal::Failed(error)) => Err(self.errno(node, &error)),
            Err(Refusal::Errno(code)) => Err(Errno::new(code)),
        }
    }

    /// Serves a sync of a file that was announced with `ticket`.
    fn serve_announced(
        &self,
        request: &FuseRequest<'_>,
        [generation, losses]: Ticket,
        room: &mut [u8],
    ) -> OperationResult {
        match &request.operation {
            FuseOperation::Fsync { handle, data_only } => {
                self.sync_opened(request.node, *handle, *data_only, Some(generation))
            }
            // Its data was written before it was parked here.
            FuseOperation::Write(write) => {
                let mut reported = losses;
                let ticket = (generation, false);
                self.volume.sync_announced_after(request.node, ticket, &mut reported)?;
                Ok(Reply::Written(write.data.len() as u32))
            }
            // A directory has no losses of its own to report.
            FuseOperation::Fsyncdir { .. } => {
                self.volume.sync_announced_after(request.node, (generation, false), &mut 0)?;
                Ok(Reply::Done)
            }
            _ => self.serve(request, room),
        }
    }

    fn serve(&self, request: &FuseRequest<'_>, room: &mut [u8]) -> OperationResult {
        let node = request.node;
        match &request.operation {
            FuseOperation::Lookup { name } => self.lookup(node, name),
            FuseOperation::Forget { count } => Ok(self.forget([(node, *count)])),
            FuseOperation::BatchForget(forgets) => Ok(self.forget(forgets.iter())),
            FuseOperation::Getattr { handle } => self.getattr(node, *handle),
            FuseOperation::Statx { .. } => self.statx(node),
            FuseOperation::Setattr(changes) => self.setattr(request, changes),
            FuseOperation::Readlink => self.readlink(node),
            FuseOperation::Symlink { name, target } => self.symlink(request, name, target),
            FuseOperation::Mknod { name, mode, rdev, umask } => {
                self.make(request, name, (*mode, *umask), *rdev)
            }
            FuseOperation::Mkdir { name, mode, umask } => {
                self.mkdir(request, name, (*mode, *umask))
            }
            FuseOperation::Unlink { name } => self.unlink(request, name),
            FuseOperation::Rmdir { name } => self.rmdir(request, name),
            FuseOperation::Rename { name, new_parent, new_name, flags } => {
                self.rename(request, name, (*new_parent, new_name), *flags)
            }
            FuseOperation::Link { target, name } => self.link(request, *target, name),
            FuseOperation::Create(create) => self.create_anew(request, create),
            FuseOperation::Tmpfile(create) => self.make_unnamed(request, create),
            FuseOperation::Open { open_flags, kill_privileges } => {
                self.open(request, *open_flags, *kill_privileges)
            }
            FuseOperation::Release(release) => Ok(self.release(node, release)),
            FuseOperation::Releasedir(_) => Ok(Reply::Done),
            FuseOperation::Read(read) => self.read(node, read, room),
            FuseOperation::Write(write) => self.write(request, write),
            FuseOperation::Fsync { handle, data_only } => {
                self.sync_opened(node, *handle, *data_only, None)
            }
            FuseOperation::Fsyncdir { .. } => self.sync_file(node),
            FuseOperation::Syncfs => self.sync_all(),
            FuseOperation::Destroy => self.destroy(),
            FuseOperation::Readdir(read) => self.readdir(node, read, false),
            FuseOperation::Readdirplus(read) => self.readdir(node, read, true),
            FuseOperation::Statfs => Ok(Reply::Statfs(self.statfs())),
            FuseOperation::Setxattr { name, value, flags, clear_sgid } => {
                self.setxattr(request, name, value, *flags, *clear_sgid)
            }
            FuseOperation::Getxattr { name, size } => self.getxattr(node, name, *size),
            FuseOperation::Listxattr { size } => self.listxattr(request, *size),
            FuseOperation::Removexattr { name } => self.removexattr(request, name),
            FuseOperation::Ioctl(ioctl) => self.ioctl(request, ioctl),
            FuseOperation::Lseek { offset, whence, .. } => self.seek(node, *offset, *whence),
            FuseOperation::Bmap { .. } => {
                self.refuse_block_address();
                Err(Refusal::Errno(libc::ENOSYS))
            }
            FuseOperation::Fallocate { offset, len, mode, .. } => {
                self.fallocate(request, (*offset, *len), *mode)
            }
            FuseOperation::CopyFileRange(copy) => self.copy_file_range(request, copy),
            FuseOperation::Opendir { .. } => self.open_directory(),
            // ENOSYS, after which the kernel does not ask again. close(2) needs no work, and the kernel checks permissions and
            // implements locks.
            FuseOperation::Flush { .. }
            | FuseOperation::Access { .. }
            | FuseOperation::Getlk(_)
            | FuseOperation::Setlk(_)
            | FuseOperation::Setlkw(_)
            | FuseOperation::Interrupt { .. }
            | FuseOperation::Poll { .. } => Err(Refusal::Errno(libc::ENOSYS)),
        }
    }

    /// Reads attributes. The kernel passes a handle before a write(2) that is about to put data into its cache.
    fn getattr(&self, ino: u64, handle: Option<u64>) -> OperationResult {
        if let Some(errno) = handle.and_then(|handle| self.write_refusal(ino, handle)) {
            return Err(Refusal::Errno(errno.code()));
        }
        let inode = self.volume.attributes(ino)?;
        self.attributes_shown(ino);
        Ok(Reply::Attributes(inode_attributes::of(ino, &inode), self.caching.ttl()))
    }

    fn statx(&self, ino: u64) -> OperationResult {
        let inode = self.volume.attributes(ino)?;
        let btime = inode_attributes::time(inode.btime);
        self.attributes_shown(ino);
        Ok(Reply::Statx(inode_attributes::of(ino, &inode), Some(btime), self.caching.ttl()))
    }

    fn readlink(&self, ino: u64) -> OperationResult {
        Ok(Reply::Data(ReplyBytes::Value(self.volume.read_link(ino)?)))
    }
}
