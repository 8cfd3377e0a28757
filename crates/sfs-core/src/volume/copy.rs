//! Copying a range from one file to another, or within a file (`copy_file_range`).
//!
//! The content goes through the write buffer in pieces, as if a program had read and written it: the copy has blocks and a
//! history of its own. Holes stay holes. A copy is short rather than long, because the kernel locks the target meanwhile.

use std::time::Duration;

use super::Volume;
use super::file_flags::check_content;
use crate::request::{AllocateMode, Allocation, Caller, OpenMode, Seek, WriteMode};
use crate::{Error, Result};

/// Maximum number of bytes that one call copies.
const COPY_LEN_MAX: u64 = 16 << 20;

/// Maximum number of bytes that are read and written at once.
pub const COPY_PIECE_LEN_MAX: u64 = 1 << 20;

/// A place in a file: inode number and offset in bytes.
type Place = (u64, u64);

impl Volume {
    /// Copies up to `len` bytes, and returns the number of copied bytes: fewer than `len` at the end of the source, after
    /// 16 MiB, where an error occurred after the first byte, or where the next piece has to wait for the thread for the log.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if source and target overlap or are no regular files, [`Error::NotPermitted`] if the target is
    /// immutable, and the errors of reading and writing.
    pub fn copy_range(
        &self,
        from: Place,
        to: Place,
        len: u64,
        mode: WriteMode,
        caller: &Caller,
    ) -> Result<u64> {
        self.health.check_writable()?;
        let size = self.regular(from.0)?.size;
        check_content(&self.regular(to.0)?, OpenMode::Append)?;
        let len = len.min(size.saturating_sub(from.1)).min(COPY_LEN_MAX);
        if len == 0 {
            return Ok(0);
        }
        if from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1 + len {
            return Err(Error::Invalid);
        }
        to.1.checked_add(len).ok_or(Error::FileTooLarge)?;
        let mut done = 0;
        while done < len {
            if done > 0 && self.must_copy_wait(to.0, len - done) {
                break;
            }
            let source = (from.0, from.1 + done);
            // The privileges are gone after the first piece.
            let kill_privileges = mode.kill_privileges && done == 0;
            let mode = WriteMode { kill_privileges, ..mode };
            match self.copy_piece(source, (to.0, to.1 + done), len - done, mode, caller) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Returns whether the next piece of a copy to file `ino`, of which `len` bytes are left, waits for the thread for the log.
    fn must_copy_wait(&self, ino: u64, len: u64) -> bool {
        let piece = len.min(COPY_PIECE_LEN_MAX) as usize;
        self.options.has_log_thread && !self.has_write_room(ino, piece, Duration::ZERO)
    }

    /// Copies data or a hole of up to `len` bytes, and returns the number of copied bytes.
    fn copy_piece(
        &self,
        from: Place,
        to: Place,
        len: u64,
        mode: WriteMode,
        caller: &Caller,
    ) -> Result<u64> {
        let data = match self.seek(from.0, from.1, Seek::Data) {
            Ok(data) => data,
            Err(Error::OutOfRange) => from.1 + len,
            Err(error) => return Err(error),
        };
        if data > from.1 {
            let len = len.min(data - from.1);
            self.copy_hole(to, len, mode, caller)?;
            return Ok(len);
        }
        let hole = match self.seek(from.0, from.1, Seek::Hole) {
            Err(Error::OutOfRange) => return Ok(0),
            hole => hole?,
        };
        // Pieces end where blocks of the target end.
        let piece = COPY_PIECE_LEN_MAX - to.1 % 4096;
        let len = len.min(hole - from.1).min(piece);
        let bytes = self.read(from.0, from.1, len as usize)?;
        self.write(to.0, to.1, bytes.as_bytes(), mode, caller)?;
        Ok(bytes.as_bytes().len() as u64)
    }

    /// Makes `len` bytes of the target read as zeros. Data is unmapped, reservations stay.
    fn copy_hole(&self, to: Place, len: u64, mode: WriteMode, caller: &Caller) -> Result<()> {
        let (ino, offset) = to;
        let allocation = Allocation {
            mode: AllocateMode::PunchHole,
            keep_size: false,
            keep_times: mode.keep_times,
            kill_privileges: mode.kill_privileges,
        };
        self.clear(ino, (offset, len), &allocation, caller)?;
        let handle = self.inodes.get(ino);
        let admitted = self.admit_size(ino, offset + len)?;
        let _io = handle.io_write();
        let size = self.regular(ino)?.size;
        if offset + len > size {
            self.set_size(&handle, offset + len)?;
        }
        drop(admitted);
        Ok(())
    }
}
