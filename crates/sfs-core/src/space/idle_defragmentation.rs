//! Defragmentation while the volume is idle: of files that are read in order and no longer written, within a part of the
//! bytes that users write.
//!
//! Written bytes earn the right to move; moving, cleaning included, spends it. So a volume that nobody
//! writes is never written by it.

use std::sync::atomic::Ordering;

use super::control::SpaceControl;
use crate::clean::watermarks::{Urgency, urgency};
use crate::format::{DataLayout, FileKind};
use crate::request::Work;
use crate::{Error, Result};

/// Time in seconds since the last write after which a file counts as no longer written.
const WRITTEN_SECS: i64 = 60;

impl SpaceControl {
    /// Notes that a user has read `len` bytes of `ino` at `offset`.
    pub(crate) fn note_read(&self, ino: u64, offset: u64, len: u64) {
        self.idle_defragmentation.note_read(ino, offset, len);
    }

    /// Moves a window of a file that is read in order, at time `now` in seconds since 1970, unless the volume is in use or
    /// has no segments to spare. Returns when to go on; `None` if there is nothing to do.
    pub(crate) fn defragment_idle_step(&self, now: i64) -> Result<Option<Work>> {
        let idle = &self.idle_defragmentation;
        let written = self.counters.data_bytes.load(Ordering::Relaxed);
        if self.superblock.data_layout() != DataLayout::Log || !idle.can_move(written) {
            return Ok(None);
        }
        let next = idle.reading.lock().next();
        let Some((ino, from)) = next else { return Ok(None) };
        if urgency(&self.superblock.layout(), &self.metadata.read()) != Urgency::None {
            return Ok(None);
        }
        if self.pace.is_busy() {
            return Ok(Some(Work::Idle(idle.interrupted())));
        }
        let (mut device_bytes, mut is_interrupted) = (0, false);
        let mut goes_on = || {
            is_interrupted = self.pace.is_busy();
            !is_interrupted
        };
        let part = match self.is_at_rest(ino, now) {
            Ok(true) => self.defragment(ino, from, &mut goes_on, &mut device_bytes),
            Ok(false) => Err(Error::Invalid),
            Err(error) => Err(error),
        };
        idle.spent_bytes.fetch_add(device_bytes, Ordering::Relaxed);
        let next = match part {
            // A part that ends where it began, and not because of users, would never end.
            Ok(part) if part.next == Some(from) && !is_interrupted => None,
            Ok(part) => part.next,
            Err(error) if self.health.has_stopped() => return Err(error),
            // The file is gone, written, or damaged, or the volume is too full: another read may bring it back.
            Err(_) => None,
        };
        idle.reading.lock().current = next.map(|next| (ino, next));
        if next == Some(from) {
            return Ok(Some(Work::Idle(idle.interrupted())));
        }
        idle.went_on();
        Ok(Some(Work::More))
    }

    /// Returns whether `ino` is a regular file that is no longer written.
    fn is_at_rest(&self, ino: u64, now: i64) -> Result<bool> {
        let inode = self.metadata.read_txn(|txn| txn.inode(ino))?;
        let is_written = (0..WRITTEN_SECS).contains(&now.saturating_sub(inode.mtime.secs));
        Ok(inode.kind() == FileKind::Regular && !is_written && !self.dirty.contains(ino))
    }
}
