//! Operations on ranges of a file: fallocate(2), copy_file_range(2), and lseek(2) for data and holes.
//!
//! Before such a request the kernel writes its dirty pages in the range back, except for lseek(2) and for plain
//! preallocation. The kernel locks the inode during the request, so that no write(2) comes in between. Collapsing and
//! inserting a range never arrive: the kernel refuses both for every filesystem in user space.

use sfs_core::format::{FileKind, InodeFlags};
use sfs_core::request::{AllocateMode, Allocation, Seek, WriteMode};
use sfs_fuse::{CopyArgs, FuseRequest, Reply};

use super::fuse_shell::{FuseShell, caller};
use super::privileges;
use super::reply_result::{OperationResult, Refusal};
use crate::mount_options::SyncPolicy;

/// suid and sgid.
const PRIVILEGE_BITS: u32 = 0o6000;

impl FuseShell {
    /// Preallocates, punches or zeroes `len` bytes from `offset` on, by the `mode` of fallocate(2).
    pub(super) fn fallocate(
        &self,
        request: &FuseRequest<'_>,
        range: (u64, u64),
        mode: u32,
    ) -> OperationResult {
        let kill_privileges = match privileges::decided() {
            Some(keeps) => !keeps,
            None => self.must_kill_privileges(request.node, request.pid)?,
        };
        self.allocate(request, range, mode, kill_privileges)
    }

    /// Does the same, and clears suid, sgid and capabilities only with `kill_privileges`.
    pub(super) fn allocate(
        &self,
        request: &FuseRequest<'_>,
        range: (u64, u64),
        mode: u32,
        kill_privileges: bool,
    ) -> OperationResult {
        let mode = mode.cast_signed();
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let effect = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => AllocateMode::Reserve,
            libc::FALLOC_FL_PUNCH_HOLE => AllocateMode::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => AllocateMode::ZeroRange,
            _ => return Err(Refusal::Errno(libc::EOPNOTSUPP)),
        };
        let ino = request.node;
        let allocation =
            Allocation { mode: effect, keep_size, keep_times: self.writeback, kill_privileges };
        self.volume.allocate(ino, range, &allocation, &caller(request))?;
        self.range_changed(ino, kill_privileges)?;
        Ok(Reply::Done)
    }

    /// Copies a range from the file of the request to another file. The reply may be shorter than the request.
    pub(super) fn copy_file_range(
        &self,
        request: &FuseRequest<'_>,
        copy: &CopyArgs,
    ) -> OperationResult {
        if copy.flags != 0 {
            return Err(Refusal::Errno(libc::EINVAL));
        }
        let to = (copy.to_node, copy.to_offset);
        let kill_privileges = self.must_kill_privileges(to.0, request.pid)?;
        let mode = WriteMode { keep_times: self.writeback, kill_privileges };
        let from = (request.node, copy.offset);
        let copied = self.volume.copy_range(from, to, copy.len, mode, &caller(request))?;
        self.lost_writeback.written(to.0, to.1..to.1.saturating_add(copied));
        self.range_changed(to.0, kill_privileges && copied > 0)?;
        Ok(match copy.is_wide {
            true => Reply::Copied(copied),
            false => Reply::Written(u32::try_from(copied).unwrap_or(u32::MAX)),
        })
    }

    /// Returns whether a change of the content of `ino` by process `pid` clears its suid, sgid and capabilities. The kernel
    /// leaves this decision to the daemon, and requests for ranges do not say who may keep them (CAP_FSETID).
    pub(super) fn must_kill_privileges(&self, ino: u64, pid: u32) -> Result<bool, Refusal> {
        Ok(self.has_privileges(ino)? && !privileges::may_keep_setid(&self.monitor, pid))
    }

    /// Returns whether a change of the content of `ino` may clear its suid, sgid or capabilities.
    pub(super) fn has_privileges(&self, ino: u64) -> Result<bool, Refusal> {
        let inode = self.volume.attributes(ino)?;
        let is_armed = inode.mode & PRIVILEGE_BITS != 0 || inode.flags.contains(InodeFlags::XATTRS);
        Ok(inode.kind() == FileKind::Regular && is_armed)
    }

    /// Does what follows a change of a range of file `ino`, before its reply.
    fn range_changed(&self, ino: u64, has_new_mode: bool) -> Result<(), Refusal> {
        if has_new_mode {
            // The kernel does not ask for the mode again by itself.
            self.attributes_changed(ino);
        }
        self.waker.note();
        self.bdi.adjust(self.volume.certain_space().available_bytes());
        if self.sync == SyncPolicy::Everything {
            self.volume.sync_file(ino)?;
        }
        Ok(())
    }

    pub(super) fn seek(&self, ino: u64, offset: u64, whence: u32) -> OperationResult {
        let what = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Refusal::Errno(libc::EINVAL)),
        };
        if i64::try_from(offset).is_err() {
            return Err(Refusal::Errno(libc::ENXIO));
        }
        if !self.may_be_dirty_in_cache(ino) {
            return Ok(Reply::Offset(self.volume.seek(ino, offset, what)?));
        }
        if self.writeback {
            // Dirty data in the kernel's cache would look like a hole here, and only the kernel knows the size. Programs take
            // the error for a filesystem that finds no holes, and read the file. After ENOSYS the kernel would never
            // ask again, for no file.
            return Err(Refusal::Errno(libc::EINVAL));
        }
        // A mapping may have dirty data in the kernel's cache, so the whole of such a file counts as data.
        let size = self.volume.attributes(ino)?.size;
        match what {
            _ if offset >= size => Err(Refusal::Errno(libc::ENXIO)),
            Seek::Data => Ok(Reply::Offset(offset)),
            Seek::Hole => Ok(Reply::Offset(size)),
        }
    }

    /// Returns whether the kernel's cache may hold dirty data of file `ino`. When the last handle that may write is
    /// released, the kernel has written everything back, data of mappings included.
    fn may_be_dirty_in_cache(&self, ino: u64) -> bool {
        match self.writeback {
            true => self.handles.may_be_written(ino),
            false => self.handles.may_be_mapped_for_writing(ino),
        }
    }
}
