//! Operations on the data of files, and on the volume as a whole.
//!
//! With `-o sync` a write is durable before its reply. State of open files is in
//! [`open_handles`](super::open_handles).

use std::ops::Range;
use std::time::Instant;

use sfs_core::Error;
use sfs_core::format::NAME_LEN_MAX;
use sfs_core::request::{AttributeChanges, OpenMode, WriteMode};
use sfs_device::{BLOCK_SIZE, Block};
use sfs_fuse::{
    CreateArgs, FuseRequest, OpenReply, OpenReplyFlags, ReadArgs, ReleaseArgs, Reply, Statfs,
    Ticket, WriteArgs,
};

use super::error_to_errno;
use super::fuse_shell::{FuseShell, caller};
use super::read_ahead::AnswerAhead;
use super::reply_result::{OperationResult, Refusal, ReplyBytes};
use crate::mount_options::SyncPolicy;

/// Approximate number of small files that fit into a free block: the items of a small file take
/// about 250 bytes. Only free space limits the number of files.
const FILES_PER_BLOCK: u64 = 16;

/// O_LARGEFILE in requests of a 64-bit kernel; the constant of the C library is 0 there.
const O_LARGEFILE: u32 = 0o100_000;

impl FuseShell {
    /// Opens a directory: the kernel does it without asking, and caches the listing, unless that may be old.
    pub(super) fn open_directory(&self) -> OperationResult {
        match self.caching.is_short {
            true => Ok(Reply::Opened(OpenReply { handle: 0, flags: OpenReplyFlags::empty() })),
            false => Err(Refusal::Errno(libc::ENOSYS)),
        }
    }

    /// Creates a file. If the kernel may not know that the name is there, as the reply to the change that has made it never arrived, an
    /// error has the kernel look the path up anew, and open the file.
    pub(super) fn create_anew(
        &self,
        request: &FuseRequest<'_>,
        create: &CreateArgs<'_>,
    ) -> OperationResult {
        let is_exclusive = create.open_flags.cast_signed() & libc::O_EXCL != 0;
        self.create(request, create).map_err(|refusal| match refusal {
            Refusal::Failed(Error::Exists)
                if !is_exclusive && self.caching.has_old_names(Instant::now()) =>
            {
                Refusal::Errno(libc::ESTALE)
            }
            other => other,
        })
    }

    /// Returns whether the kernel may have opened inode `node` by a name that the inode has no more. An error has the kernel look the
    /// path up anew, and find the file that has the name now.
    fn is_opened_by_old_name(&self, node: u64) -> bool {
        let has_name = || self.volume.attributes(node).is_ok_and(|inode| inode.links > 0);
        self.caching.has_old_names(Instant::now()) && !has_name()
    }

    pub(super) fn open(
        &self,
        request: &FuseRequest<'_>,
        open_flags: u32,
        kill_privileges: bool,
    ) -> OperationResult {
        if self.is_opened_by_old_name(request.node) {
            return Err(Refusal::Errno(libc::ESTALE));
        }
        if let Some(mode) = open_mode(open_flags) {
            self.volume.check_open(request.node, mode)?;
        }
        if open_flags.cast_signed() & libc::O_TRUNC != 0 {
            let changes = AttributeChanges {
                size: Some(0),
                kill_privileges,
                keep_times: self.writeback,
                ..AttributeChanges::default()
            };
            self.volume.set_attributes(request.node, &changes, &caller(request))?;
            self.lost_writeback.truncated(request.node, 0);
            self.names_changed(request.node)?;
        }
        // The kernel opens files for itself without O_LARGEFILE. Where it has the content in its cache, no read
        // follows. A file that is opened for writing as well may never be read.
        let is_read = open_flags & O_LARGEFILE != 0 && !may_write(open_flags);
        if is_read && self.note_access(request.node, open_flags) {
            self.attributes_changed(request.node);
        }
        Ok(Reply::Opened(self.opened(request.node, open_flags, false)))
    }

    /// Opens file `ino`. If free space is short, writes to a new or emptied file bypass the kernel's cache.
    pub(super) fn opened(&self, ino: u64, open_flags: u32, is_new: bool) -> OpenReply {
        let mut flags = OpenReplyFlags::KEEP_CACHE;
        // For writes past its cache the kernel neither updates times nor asks SFS for them. A file
        // that was just made or emptied has just got its times, so only such a file may bypass the
        // cache.
        let is_direct = self.can_bypass_cache
            && may_write(open_flags)
            && (is_new || open_flags.cast_signed() & libc::O_TRUNC != 0)
            && self.free_space().is_short();
        flags.set(OpenReplyFlags::DIRECT_IO, is_direct);
        let damage_reported = self.volume.losses_told(ino);
        OpenReply { handle: self.handles.opened(ino, open_flags, damage_reported), flags }
    }

    pub(super) fn release(&self, ino: u64, release: &ReleaseArgs) -> Reply<ReplyBytes> {
        self.handles.released(ino, release.handle);
        self.read_ahead.released(ino, release.handle);
        Reply::Done
    }

    pub(super) fn read(&self, ino: u64, read: &ReadArgs, room: &mut [u8]) -> OperationResult {
        let (offset, len) = (read.offset, read.size as usize);
        // The kernel itself asks for the time of access again after a read.
        let answer = match self.read_ahead.answer(ino, read, room) {
            Some(AnswerAhead::Window(ahead, range)) => Reply::Data(ReplyBytes::Ahead(ahead, range)),
            Some(AnswerAhead::InPlace(len)) => Reply::InPlace(len),
            None => match Block::room_for(offset, len, room) {
                Some(blocks) => {
                    let accessed = self.access_time(read.open_flags);
                    let read = self.volume.read_into(ino, offset, len, blocks, accessed);
                    return Ok(Reply::InPlace(read?));
                }
                None => Reply::Data(ReplyBytes::Content(self.volume.read(ino, offset, len)?)),
            },
        };
        self.note_access(ino, read.open_flags);
        Ok(answer)
    }

    pub(super) fn write(
        &self,
        request: &FuseRequest<'_>,
        write: &WriteArgs<'_>,
    ) -> OperationResult {
        let ino = request.node;
        let end = write.offset.saturating_add(write.data.len() as u64);
        let mode = WriteMode {
            // With write-back caching the kernel maintains the times of all writes, also of those past its
            // cache, and sends them later. The kernel sends no time that equals the last one that it sent, so
            // a time that we set here would stay.
            keep_times: self.writeback,
            kill_privileges: write.kill_privileges,
        };
        match self.volume.write(ino, write.offset, write.data, mode, &caller(request)) {
            Err(Error::NoSpace) if write.from_cache => {
                self.write_what_fits(request, write, mode)?
            }
            Err(error) if write.from_cache => {
                return Err(self.lose(ino, write.offset..end, error).into());
            }
            written => written?,
        }
        self.lost_writeback.written(ino, write.offset..end);
        self.waker.note();
        if self.bdi.count_written(write.data.len() as u64) {
            self.bdi.adjust(self.volume.certain_space().available_bytes());
        }
        let written = Reply::Written(write.data.len() as u32);
        // No fsync of the kernel follows a write that bypasses its cache.
        let is_synced = !write.from_cache && write.open_flags.cast_signed() & libc::O_DSYNC != 0;
        if is_synced || self.sync == SyncPolicy::Everything {
            self.sync_written(ino, written)
        } else {
            Ok(written)
        }
    }

    /// Writes block by block. Overwriting works on a full volume, also when the kernel writes back new data in the
    /// same request.
    fn write_what_fits(
        &self,
        request: &FuseRequest<'_>,
        write: &WriteArgs<'_>,
        mode: WriteMode,
    ) -> Result<(), Refusal> {
        let ino = request.node;
        let mut outcome = Ok(());
        let mut at = write.offset;
        // The first piece ends at a block boundary.
        let head = (BLOCK_SIZE - write.offset as usize % BLOCK_SIZE).min(write.data.len());
        let (first, rest) = write.data.split_at(head);
        for piece in [first].into_iter().chain(rest.chunks(BLOCK_SIZE)) {
            let end = at + piece.len() as u64;
            match self.volume.write(ino, at, piece, mode, &caller(request)) {
                Ok(()) => self.lost_writeback.written(ino, at..end),
                Err(Error::NoSpace) => {
                    self.record_loss(ino, at..end, &Error::NoSpace);
                    outcome = Err(Error::NoSpace.into());
                }
                Err(error) => {
                    let rest = at..write.offset + write.data.len() as u64;
                    return Err(self.lose(ino, rest, error).into());
                }
            }
            at = end;
        }
        self.waker.note();
        if outcome.is_err() {
            self.report_loss_to_writers(ino, error_to_errno::of(&Error::NoSpace));
        }
        outcome
    }

    /// Records that `bytes` of file `ino` are lost: the kernel drops data whose write-back fails, whatever the error is.
    /// Returns the error with which fsync(2) reports the loss.
    pub(super) fn lose(&self, ino: u64, bytes: Range<u64>, error: Error) -> Error {
        let error = if matches!(error, Error::ReadOnly) { Error::Stopped } else { error };
        self.record_loss(ino, bytes, &error);
        self.report_loss_to_writers(ino, error_to_errno::of(&error));
        error
    }

    /// Syncs a file for fsync(2) through a handle, or for fdatasync(2) with `data_only`, and reports each loss by damage
    /// to that handle once. `ticket` is that of the announcement, if the sync has waited.
    pub(super) fn sync_opened(
        &self,
        ino: u64,
        handle: u64,
        data_only: bool,
        ticket: Option<u64>,
    ) -> OperationResult {
        // The kernel itself reports failed write-back to fsync(2), and has not sent this request otherwise.
        if self.handles.reported_by_fsync(ino, handle) {
            self.lost_writeback.reported(ino);
        }
        let Some(mut reported) = self.handles.damage_reported(ino, handle) else {
            return self.sync_file(ino);
        };
        let outcome = match (ticket, data_only) {
            (Some(ticket), _) => {
                self.volume.sync_announced_after(ino, (ticket, data_only), &mut reported)
            }
            (None, true) => self.volume.sync_data_after(ino, &mut reported),
            (None, false) => self.volume.sync_file_after(ino, &mut reported),
        };
        self.handles.note_damage_reported(ino, handle, reported);
        outcome?;
        Ok(Reply::Done)
    }

    pub(super) fn sync_file(&self, ino: u64) -> OperationResult {
        self.volume.sync_file(ino)?;
        Ok(Reply::Done)
    }

    pub(super) fn sync_all(&self) -> OperationResult {
        self.volume.sync_all()?;
        Ok(Reply::Done)
    }

    /// Makes everything durable for a sync that was announced with `ticket`.
    pub(super) fn sync_all_announced(&self, ticket: Ticket) -> OperationResult {
        self.volume.sync_all_announced(ticket.into())?;
        Ok(Reply::Done)
    }

    /// Makes everything durable, before umount(8) returns. An error here recurs in the last checkpoint, which
    /// reports it.
    pub(super) fn destroy(&self) -> OperationResult {
        if !self.volume.is_read_only() {
            self.volume.sync_all()?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn statfs(&self) -> Statfs {
        let space = self.volume.space();
        let files_free = space.free_blocks.saturating_mul(FILES_PER_BLOCK);
        Statfs {
            blocks: space.total_blocks,
            blocks_free: space.free_blocks,
            blocks_available: space.available_blocks,
            files: space.files.saturating_add(files_free),
            files_free,
            block_size: BLOCK_SIZE as u32,
            name_len_max: NAME_LEN_MAX as u32,
            fragment_size: BLOCK_SIZE as u32,
        }
    }
}

/// Returns how a file that is opened with `open_flags` may be written to; `None` if it is opened for reading.
fn open_mode(open_flags: u32) -> Option<OpenMode> {
    let appends = open_flags.cast_signed() & libc::O_APPEND != 0;
    may_write(open_flags).then_some(if appends { OpenMode::Append } else { OpenMode::Write })
}

/// Returns whether a file that was opened with `open_flags` can be written to.
fn may_write(open_flags: u32) -> bool {
    open_flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY
}
