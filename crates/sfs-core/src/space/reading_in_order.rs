//! Files that are read in order, and the bytes that putting them in order may write.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sfs_device::BLOCK_SIZE;

/// Largest number of bytes that one step moves.
const WINDOW_BYTES: u64 = 4 << 20;

/// Number of bytes read in order, in one stream, that make a file a candidate: one window.
const READ_IN_ORDER_BYTES: u64 = WINDOW_BYTES;

/// Number of streams that are told apart.
const STREAMS: usize = 16;

/// Largest number of files that wait.
const CANDIDATES_MAX: usize = 64;

/// Largest distance in bytes between the end of a read and the next read of the same stream: reads of a kernel's
/// read-ahead arrive in any order.
const STREAM_GAP_BYTES: u64 = 1 << 20;

/// Pause after the first interruption.
const PAUSE: Duration = Duration::from_millis(5);

/// Number of times that the pause after an interruption doubles: up to 5 seconds.
const PAUSE_DOUBLINGS_MAX: u32 = 10;

/// A file that is being read, from one place on.
#[derive(Clone, Copy, Debug)]
struct Stream {
    ino: u64,
    /// End of the farthest read.
    end: u64,
    /// Number of bytes read in order.
    bytes: u64,
}

/// Streams that are read, and the files that wait.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The stream that was read last comes last.
    streams: VecDeque<Stream>,
    candidates: VecDeque<u64>,
    /// File that is being put in order, and the next block.
    pub(super) current: Option<(u64, u32)>,
}

/// Files that are read in order, and the bytes that putting them in order may write.
#[derive(Debug)]
pub(super) struct IdleDefragmentation {
    /// Percentage of the bytes written by users that may be written; 0 for none.
    percent: u8,
    /// Bytes written for it since the mount.
    pub(super) spent_bytes: AtomicU64,
    /// Number of parts in a row that users have ended, or that were not begun because of them.
    interruptions: AtomicU32,
    pub(super) reading: Mutex<Reading>,
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
    pub(super) fn next(&mut self) -> Option<(u64, u32)> {
        if self.current.is_none() {
            self.current = self.candidates.pop_front().map(|ino| (ino, 0));
        }
        self.current
    }
}

impl IdleDefragmentation {
    /// Returns the state at a mount; `percent` of the bytes that users write may be written.
    pub(super) fn new(percent: u8) -> Self {
        Self {
            percent,
            spent_bytes: AtomicU64::new(0),
            interruptions: AtomicU32::new(0),
            reading: Mutex::default(),
        }
    }

    pub(super) fn note_read(&self, ino: u64, offset: u64, len: u64) {
        // Whoever reads much in order reads more at a time, and others need not wait for this.
        if self.percent > 0
            && len > BLOCK_SIZE as u64
            && let Some(mut reading) = self.reading.try_lock()
        {
            reading.note(ino, offset, len);
        }
    }

    /// Notes that users have interrupted; returns how long to leave them alone.
    pub(super) fn interrupted(&self) -> Duration {
        let interruptions =
            self.interruptions.fetch_add(1, Ordering::Relaxed).min(PAUSE_DOUBLINGS_MAX);
        PAUSE * 2_u32.pow(interruptions)
    }

    /// Notes that a part has come to its end.
    pub(super) fn went_on(&self) {
        self.interruptions.store(0, Ordering::Relaxed);
    }

    /// Returns whether `written_bytes` that users have written allow a window to be moved.
    pub(super) fn can_move(&self, written_bytes: u64) -> bool {
        let earned = written_bytes / 100 * u64::from(self.percent);
        earned >= self.spent_bytes.load(Ordering::Relaxed) + WINDOW_BYTES
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
            reading.note(8, (part * 997 % 31) << 21, 1 << 17);
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
    fn pauses_grow_until_a_part_comes_to_its_end() {
        let idle = IdleDefragmentation::new(5);
        assert_eq!((idle.interrupted(), idle.interrupted()), (PAUSE, PAUSE * 2));
        (0..100).for_each(|_| _ = idle.interrupted());
        assert!((Duration::from_secs(4)..Duration::from_secs(6)).contains(&idle.interrupted()));
        idle.went_on();
        assert_eq!(idle.interrupted(), PAUSE);
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
