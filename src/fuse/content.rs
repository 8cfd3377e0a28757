//! Operations on what is in a file, and on the volume as a whole.
//!
//! Owns: their arguments and answers.
//! Promises: with `-o sync` a write is durable when it is answered.
//! Never: keeps state of an open file (see `handles`).

use sfs_core::Error;
use sfs_core::format::NAME_LEN_MAX;
use sfs_core::request::{AttributeChanges, Seek, WriteMode};
use sfs_device::{BLOCK_SIZE, Block};
use sfs_fuse::{
    FuseRequest, OpenReply, OpenReplyFlags, ReadArgs, ReleaseArgs, Reply, Statfs, WriteArgs,
};

use super::fuse_shell::{FuseShell, caller};
use super::reply_result::{OperationResult, Refusal, ReplyBytes};
use crate::mount_options::SyncPolicy;

/// Inode numbers that are left, as far as statfs(2) can say.
const FILES_FREE: u64 = 1 << 32;

impl FuseShell {
    pub(super) fn open(
        &self,
        request: &FuseRequest<'_>,
        open_flags: u32,
        kill_privileges: bool,
    ) -> OperationResult {
        if open_flags.cast_signed() & libc::O_TRUNC != 0 {
            let changes = AttributeChanges {
                size: Some(0),
                kill_privileges,
                keep_times: self.writeback,
                ..AttributeChanges::default()
            };
            self.volume.set_attributes(request.node, &changes, &caller(request))?;
            self.lost_writeback.cut(request.node, 0);
            self.names_changed(request.node)?;
        }
        Ok(Reply::Opened(self.opened(request.node, open_flags, false)))
    }

    /// File `ino` is open from now on. Where room is short write(2) does not end in the kernel's cache.
    pub(super) fn opened(&self, ino: u64, open_flags: u32, is_new: bool) -> OpenReply {
        let mut flags = OpenReplyFlags::KEEP_CACHE;
        // The kernel changes no times of what is written past its cache, and takes none from us: only
        // what has just been made or emptied, and got its times so, can do without.
        let is_direct = self.answers_writes
            && may_write(open_flags)
            && (is_new || open_flags.cast_signed() & libc::O_TRUNC != 0)
            && self.room().is_short();
        flags.set(OpenReplyFlags::DIRECT_IO, is_direct);
        let damage_told = self.volume.losses_told(ino);
        OpenReply { handle: self.handles.opened(ino, open_flags, damage_told), flags }
    }

    pub(super) fn release(&self, ino: u64, release: &ReleaseArgs) -> Reply<ReplyBytes> {
        self.handles.released(ino, release.handle);
        Reply::Done
    }

    pub(super) fn read(&self, ino: u64, read: &ReadArgs, room: &mut [u8]) -> OperationResult {
        let (offset, len) = (read.offset, read.size as usize);
        match Block::room_for(offset, len, room) {
            Some(blocks) => Ok(Reply::InPlace(self.volume.read_into(ino, offset, len, blocks)?)),
            None => Ok(Reply::Data(ReplyBytes::Content(self.volume.read(ino, offset, len)?))),
        }
    }

    pub(super) fn write(
        &self,
        request: &FuseRequest<'_>,
        write: &WriteArgs<'_>,
    ) -> OperationResult {
        let ino = request.node;
        let mode = WriteMode {
            // With its cache writing back, the kernel keeps the times of all writes, those past the
            // cache too, and says them later. It says nothing when they are what it has said
            // before: another time that we made up would stay.
            keep_times: self.writeback,
            kill_privileges: write.kill_privileges,
        };
        match self.volume.write(ino, write.offset, write.data, mode, &caller(request)) {
            Err(Error::NoSpace) if write.from_cache => {
                self.write_what_fits(request, write, mode)?
            }
            // The kernel lets it go. It is lost, which fsync(2) says with this error.
            Err(Error::ReadOnly) if write.from_cache => return Err(Error::Stopped.into()),
            written => written?,
        }
        self.lost_writeback.written(ino, write.offset..write.offset + write.data.len() as u64);
        self.waker.note();
        if self.bdi.note_arrived(write.data.len() as u64) {
            self.bdi.adjust(self.volume.space().free_bytes());
        }
        if self.sync == SyncPolicy::Everything {
            self.volume.sync_file(ino)?;
        }
        Ok(Reply::Written(write.data.len() as u32))
    }

    /// Overwriting works on a full volume, also where the kernel writes it back together with what
    /// is new.
    fn write_what_fits(
        &self,
        request: &FuseRequest<'_>,
        write: &WriteArgs<'_>,
        mode: WriteMode,
    ) -> Result<(), Refusal> {
        let ino = request.node;
        let mut outcome = Ok(());
        let mut at = write.offset;
        // The first piece ends where a block does.
        let head = (BLOCK_SIZE - write.offset as usize % BLOCK_SIZE).min(write.data.len());
        let (first, rest) = write.data.split_at(head);
        for piece in [first].into_iter().chain(rest.chunks(BLOCK_SIZE)) {
            let end = at + piece.len() as u64;
            match self.volume.write(ino, at, piece, mode, &caller(request)) {
                Ok(()) => self.lost_writeback.written(ino, at..end),
                Err(Error::NoSpace) => {
                    self.miss(ino, at..end);
                    outcome = Err(Error::NoSpace.into());
                }
                Err(error) => return Err(error.into()),
            }
            at = end;
        }
        self.waker.note();
        if outcome.is_err() {
            self.tell_writers(ino);
        }
        outcome
    }

    /// fsync(2) through a handle, which is told of each loss of its file once.
    pub(super) fn sync_opened(&self, ino: u64, handle: u64) -> OperationResult {
        // The kernel has told the handle of what it could not write back, and would not ask otherwise.
        if self.handles.synced(ino, handle) {
            self.lost_writeback.reported(ino);
        }
        let Some(mut told) = self.handles.damage_told(ino, handle) else {
            return self.sync_file(ino);
        };
        let outcome = self.volume.sync_file_after(ino, &mut told);
        self.handles.tell_damage(ino, handle, told);
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

    /// The mount is being taken away, and waits: everything is durable when umount(8) returns. What
    /// goes wrong here goes wrong with the last checkpoint, too, which says so.
    pub(super) fn destroy(&self) -> OperationResult {
        if !self.read_only {
            self.volume.sync_all()?;
        }
        Ok(Reply::Done)
    }

    pub(super) fn seek(&self, ino: u64, offset: u64, whence: u32) -> OperationResult {
        // The kernel asks without writing back what it holds of the file, which looks like a hole
        // from here. It does not ask again, and takes every file for data without holes.
        if self.writeback {
            return Err(Refusal::Errno(libc::ENOSYS));
        }
        let what = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Refusal::Errno(libc::EINVAL)),
        };
        if i64::try_from(offset).is_err() {
            return Err(Refusal::Errno(libc::ENXIO));
        }
        if !self.handles.may_be_mapped_for_writing(ino) {
            return Ok(Reply::Offset(self.volume.seek(ino, offset, what)?));
        }
        // Likewise, but of this file only: all of it is data.
        let size = self.volume.attributes(ino)?.size;
        match what {
            _ if offset >= size => Err(Refusal::Errno(libc::ENXIO)),
            Seek::Data => Ok(Reply::Offset(offset)),
            Seek::Hole => Ok(Reply::Offset(size)),
        }
    }

    pub(super) fn statfs(&self) -> Statfs {
        let space = self.volume.space();
        Statfs {
            blocks: space.total_blocks,
            blocks_free: space.free_blocks,
            blocks_available: space.free_blocks,
            files: space.files + FILES_FREE,
            files_free: FILES_FREE,
            block_size: BLOCK_SIZE as u32,
            name_len_max: NAME_LEN_MAX as u32,
            fragment_size: BLOCK_SIZE as u32,
        }
    }
}

/// Whether what was opened with `open_flags` may be written to.
fn may_write(open_flags: u32) -> bool {
    open_flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY
}
