//! Defragmentation while the volume is idle: of files that are read in order and no longer written, within a part of the
//! bytes that users write.
//!
//! What users write earns the right to move; what moving writes, cleaning included, spends it. So a volume that nobody
//! writes is never written by it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::background_steps::YIELD;
use super::control::SpaceControl;
use crate::clean::watermarks::{Urgency, urgency};
use crate::format::{DataLayout, FileKind};
use crate::request::Work;
use crate::{Error, Result};

/// Largest number of bytes that one step moves.
const WINDOW_BYTES: u64 = 4 << 20;

/// Number of bytes read in order, in one stream, that make a file a candidate: one window.
const READ_IN_ORDER_BYTES: u64 = WINDOW_BYTES;

/// Number of streams that are told apart.
const STREAMS: usize = 16;

/// Largest number of files that wait.
const CANDIDATES_MAX: usize = 64;

/// Time in seconds since the last write after which a file counts as no longer written.
const WRITTEN_SECS: i64 = 60;

/// Largest distance in bytes between the end of a read and the next read of the same stream: reads of a kernel's
/// read-ahead arrive in any order.
const STREAM_GAP_BYTES: u64 = 1 << 20;

/// A file that is being read, from one place on.
#[derive(Clone, Copy, Debug)]
struct Stream {
    ino: u64,
    /// End of the farthest read.
    end: u64,
    /// Number of bytes read in order.
    bytes: u64,
}

#[derive(Debug, Default)]
struct Reading {
    /// The stream that was read last comes last.
    streams: VecDeque<Stream>,
    candidates: VecDeque<u64>,
    /// File that is being put in order, and the next block.
    current: Option<(u64, u32)>,
}

/// Files that are read in order, and the bytes that putting them in order may write.
#[derive(Debug)]
pub(super) struct IdleDefragmentation {
    /// Percentage of the bytes written by users that may be written; 0 for none.
    percent: u8,
    /// Bytes written for it since the mount.
    spent_bytes: AtomicU64,
    reading: Mutex<Reading>,
}

impl Reading {
    fn note(&mut self, ino: u64, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let is_next =
            |stream: &Stream| stream.ino == ino && stream.end.abs_diff(offset) <= STREAM_GAP_BYTES;
        let known = self.streams.iter().position(is_next);
        let known = known.and_then(|place| self.streams.remove(place));
        let mut stream = known.unwrap_or(Stream { ino, end: offset, bytes: 0 });
        stream.bytes += end.saturating_sub(stream.end);
        stream.end = stream.end.max(end);
        if stream.bytes >= READ_IN_ORDER_BYTES {
            stream.bytes = 0;
            self.add_candidate(ino);
        }
        if self.streams.len() >= STREAMS {
            self.streams.pop_front();
        }
        self.streams.push_back(stream);
    }

    fn add_candidate(&mut self, ino: u64) {
        let is_known =
            self.candidates.contains(&ino) || self.current.is_some_and(|(at, _)| at == ino);
        if !is_known && self.candidates.len() < CANDIDATES_MAX {
            self.candidates.push_back(ino);
        }
    }

    /// Returns the file to put in order next, and its next block.
    fn next(&mut self) -> Option<(u64, u32)> {
        if self.current.is_none() {
            self.current = self.candidates.pop_front().map(|ino| (ino, 0));
        }
        self.current
    }
}

impl IdleDefragmentation {
    /// Returns the state at a mount; `percent` of the bytes that users write may be written.
    pub(super) fn new(percent: u8) -> Self {
        Self { percent, spent_bytes: AtomicU64::new(0), reading: Mutex::default() }
    }

    fn note_read(&self, ino: u64, offset: u64, len: u64) {
        if self.percent > 0
            && let Some(mut reading) = self.reading.try_lock()
        {
            reading.note(ino, offset, len);
        }
    }

    /// Returns whether `written_bytes` that users have written allow a window to be moved.
    fn can_move(&self, written_bytes: u64) -> bool {
        let earned = written_bytes / 100 * u64::from(self.percent);
        earned >= self.spent_bytes.load(Ordering::Relaxed) + WINDOW_BYTES
    }
}

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
            return Ok(Some(Work::Idle(YIELD)));
        }
        let part = match self.is_at_rest(ino, now) {
            Ok(true) => self.defragment(ino, from, &mut || !self.pace.is_busy()),
            Ok(false) => Err(Error::Invalid),
            Err(error) => Err(error),
        };
        let next = match part {
            Ok(part) => {
                idle.spent_bytes.fetch_add(part.device_bytes, Ordering::Relaxed);
                part.next
            }
            Err(error) if self.health.has_stopped() => return Err(error),
            // The file is gone, written, or damaged, or the volume is too full: another read may bring it back.
            Err(_) => None,
        };
        idle.reading.lock().current = next.map(|next| (ino, next));
        Ok(Some(if next == Some(from) { Work::Idle(YIELD) } else { Work::More }))
    }

    /// Returns whether `ino` is a regular file that is no longer written.
    fn is_at_rest(&self, ino: u64, now: i64) -> Result<bool> {
        let inode = self.metadata.read_txn(|txn| txn.inode(ino))?;
        let is_written = (0..WRITTEN_SECS).contains(&now.saturating_sub(inode.mtime.secs));
        Ok(inode.kind() == FileKind::Regular && !is_written && !self.dirty.contains(ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_read_in_order_are_candidates() {
        let mut reading = Reading::default();
        for part in 0..31 {
            reading.note(7, part << 17, 1 << 17);
            reading.note(8, part * 997 % 31 << 21, 1 << 17);
        }
        assert_eq!(reading.candidates, [], "less than a window");
        // The kernel's read-ahead overtakes.
        reading.note(7, 33 << 17, 1 << 17);
        reading.note(7, 31 << 17, 1 << 17);
        assert_eq!(reading.candidates, [7]);
        for part in 32..80 {
            reading.note(7, part << 17, 1 << 17);
        }
        assert_eq!(reading.candidates, [7], "once");
        assert_eq!((reading.next(), reading.next()), (Some((7, 0)), Some((7, 0))));
    }

    #[test]
    fn only_written_bytes_allow_to_move() {
        let idle = IdleDefragmentation::new(5);
        assert!(!idle.can_move(0) && !idle.can_move(79 << 20));
        assert!(idle.can_move(81 << 20));
        idle.spent_bytes.store(4 << 20, Ordering::Relaxed);
        assert!(!idle.can_move(81 << 20));
        assert!(!IdleDefragmentation::new(0).can_move(u64::MAX));
    }
}
