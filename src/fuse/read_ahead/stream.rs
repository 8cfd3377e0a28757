//! Reads through one handle: whether they come in order, and which window is due.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sfs_device::BLOCK_SIZE;

use super::window::{Slot, WINDOW_FIRST, WINDOW_MIN};

/// Number of reads in order after which windows begin.
const READS_NEEDED: u32 = 2;

/// Largest number of reads in order after which windows begin, for a file that changes while it is read.
const READS_NEEDED_MAX: u32 = 64;

/// Mean length of a device request, in bytes, below which the content counts as scattered and windows grow.
const SCATTERED_BYTES: u64 = 256 << 10;

/// Length of the parts of a file that defragmentation puts in order, each for itself, in bytes. They begin at multiples of it.
const ORDERED_BYTES: u64 = 4 << 20;

/// Time that a window should take the device at most, as a divisor of a second: a reader waits as long for its first
/// byte.
const WINDOWS_PER_SECOND: u64 = 2;

/// Time without a read after which other handles may have the memory.
const IDLE: Duration = Duration::from_secs(2);

/// Returns the longest window in bytes, where all windows together have `budget` bytes: two of them leave a quarter to the short
/// windows of other handles. Returns 0 if the shortest two do not fit.
pub(super) fn window_max(budget: u64, bytes_per_second: u64) -> u64 {
    if budget < 2 * WINDOW_MIN {
        return 0;
    }
    (bytes_per_second / WINDOWS_PER_SECOND).clamp(WINDOW_MIN, (budget / 8 * 3).max(WINDOW_MIN))
        / WINDOW_MIN
        * WINDOW_MIN
}

/// Reads through one handle.
#[derive(Debug)]
pub(super) struct Stream {
    /// End of the furthest read in order.
    next: u64,
    /// Number of reads in order.
    reads: u32,
    /// Number of reads in order after which windows begin.
    needed: u32,
    /// Number of bytes read in order.
    bytes: u64,
    /// Length of the last read.
    read_len: u64,
    /// Length of the next window; 0 before the first.
    window_len: u64,
    /// Windows that follow each other, up to the one that is being read.
    windows: VecDeque<(Window, Arc<Slot>)>,
    last: Duration,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// Offset of its first byte, where a block begins.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u64,
}

impl Window {
    fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Returns the window, shortened to where a part ends that was put in order: a window that ends within a part would cut the
    /// blocks of each of its groups in two, at the cost of a request for each.
    fn aligned(self) -> Self {
        let unit = if self.len < ORDERED_BYTES { WINDOW_MIN } else { ORDERED_BYTES };
        let end = self.end() / unit * unit;
        if self.len < WINDOW_MIN || end <= self.start {
            return self;
        }
        Self { len: end - self.start, ..self }
    }
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            next: 0,
            reads: 0,
            needed: READS_NEEDED,
            bytes: 0,
            read_len: 0,
            window_len: 0,
            windows: VecDeque::new(),
            last: Duration::ZERO,
        }
    }
}

impl Stream {
    /// Notes a read at time `now`, and returns the windows that are not needed any more. Requests of the kernel's own
    /// read-ahead may overtake each other, so reads are in order also if one comes a little early or late.
    pub(super) fn note(&mut self, offset: u64, len: u64, now: Duration) -> Vec<Arc<Slot>> {
        self.last = now;
        let slack = len.saturating_mul(4).min(WINDOW_MIN);
        self.read_len = len;
        let end = offset.saturating_add(len);
        if offset > self.next.saturating_add(slack) || end.saturating_add(slack) < self.next {
            (self.next, self.reads, self.bytes, self.window_len) = (end, 0, len, 0);
            return self.windows.drain(..).map(|(_, slot)| slot).collect();
        }
        if end > self.next {
            self.bytes = self.bytes.saturating_add(end - self.next);
            self.next = end;
            self.reads = self.reads.saturating_add(1);
        }
        let kept_from = self.next.saturating_sub(slack).min(offset);
        let mut consumed = Vec::new();
        while self.windows.front().is_some_and(|(window, _)| window.end() <= kept_from) {
            self.needed = READS_NEEDED;
            consumed.extend(self.windows.pop_front().map(|(_, slot)| slot));
        }
        consumed
    }

    /// Returns the windows that hold a part of a read, if they hold its first byte.
    pub(super) fn covering(&self, offset: u64, len: u64) -> Vec<Arc<Slot>> {
        let end = offset.saturating_add(len);
        let holds = |window: &Window| window.start < end && offset < window.end();
        let mut found = self.windows.iter().filter(|(window, _)| holds(window)).peekable();
        match found.peek() {
            Some((window, _)) if window.start <= offset => {
                found.map(|(_, slot)| slot.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the window that should be read now: the reader uses the last one, or none was read.
    pub(super) fn due(&mut self, window_max: u64) -> Option<Window> {
        if self.reads < self.needed {
            return None;
        }
        let from = self.next / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
        if self.window_len == 0 {
            let len = self.bytes.saturating_mul(2).clamp(WINDOW_FIRST, WINDOW_MIN);
            self.window_len = len.next_multiple_of(WINDOW_FIRST);
        }
        let Some((last, slot)) = self.windows.back() else {
            return Some(Window { start: from, len: self.window_len }.aligned());
        };
        let outcome = slot.outcome();
        if outcome.is_some_and(|outcome| outcome.is_last) || self.next <= last.start {
            return None;
        }
        if let Some(outcome) = outcome {
            let is_scattered = |requests| requests as u64 * SCATTERED_BYTES > last.len;
            let len = match outcome.requests {
                _ if outcome.is_slow => last.len / 2,
                None => last.len,
                Some(requests) if is_scattered(requests) => 2 * last.len,
                Some(_) if last.len < WINDOW_MIN => (2 * last.len).min(WINDOW_MIN),
                Some(_) => (last.len / 2).max(WINDOW_MIN),
            };
            // A window that is shorter than a read answers none.
            let least = self.read_len.clamp(WINDOW_FIRST, WINDOW_MIN);
            self.window_len = len.next_multiple_of(WINDOW_FIRST).clamp(least, window_max);
        }
        // A reader that has overtaken its windows needs what is behind them.
        Some(Window { start: last.end().max(from), len: self.window_len }.aligned())
    }

    /// Returns whether the handle has no window.
    pub(super) fn has_none(&self) -> bool {
        self.windows.is_empty()
    }

    /// Adds a window that is going to be read; returns the place for its content.
    pub(super) fn add(&mut self, window: Window) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        self.windows.push_back((window, slot.clone()));
        slot
    }

    /// Returns all windows, which are old; the next ones come after more reads than these.
    pub(super) fn give_up(&mut self) -> Vec<Arc<Slot>> {
        self.reads = 0;
        self.needed = (2 * self.needed).min(READS_NEEDED_MAX);
        self.windows.drain(..).map(|(_, slot)| slot).collect()
    }

    /// Returns all windows, if the handle has not been read for some time before `now`.
    pub(super) fn take_idle(&mut self, now: Duration) -> Option<Vec<Arc<Slot>>> {
        if now.saturating_sub(self.last) < IDLE || self.windows.is_empty() {
            return None;
        }
        self.reads = 0;
        Some(self.windows.drain(..).map(|(_, slot)| slot).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const KIB: u64 = 1 << 10;

    /// Notes a read, and returns the window that became due.
    fn read(stream: &mut Stream, offset: u64, len: u64) -> Option<Window> {
        stream.note(offset, len, Duration::ZERO);
        let due = stream.due(16 * MIB);
        due.inspect(|window| drop(stream.add(*window)))
    }

    #[test]
    fn windows_begin_with_the_second_read_in_order() {
        let mut stream = Stream::default();
        assert_eq!(read(&mut stream, 0, 128 * KIB), None);
        let first = Window { start: 256 * KIB, len: 512 * KIB };
        assert_eq!(read(&mut stream, 128 * KIB, 128 * KIB), Some(first), "twice what was read");
        let second = Window { start: first.end(), len: 512 * KIB };
        assert_eq!(read(&mut stream, 256 * KIB, 128 * KIB), Some(second), "the first is in use");
        assert_eq!(read(&mut stream, 384 * KIB, 128 * KIB), None, "the second is not");
        assert_eq!(stream.covering(256 * KIB, 512 * KIB).len(), 1);
        assert_eq!(stream.covering(first.end() - 4 * KIB, 8 * KIB).len(), 2);
        assert_eq!(stream.covering(0, MIB).len(), 0, "its first byte is in no window");
        let third = Window { start: 3 * MIB, len: 512 * KIB };
        stream.next = 2 * MIB;
        assert_eq!(read(&mut stream, 2 * MIB, MIB).map(|due| due.start), Some(third.start));
    }

    /// Regression: windows began anywhere, so that a file that was put in order took a request more for each group and window.
    #[test]
    fn long_windows_end_where_a_part_in_order_ends() {
        let window = |start, len| Window { start, len }.aligned().end();
        assert_eq!(window(MIB, 12 * MIB), 12 * MIB);
        assert_eq!(window(4 * MIB, 10 * MIB), 12 * MIB);
        assert_eq!(window(5 * MIB, 2 * MIB), 6 * MIB);
        assert_eq!(window(5 * MIB, 4 * MIB), 8 * MIB);
        assert_eq!(window(MIB, MIB), 2 * MIB, "a short window is read as it is");
        assert_eq!(window(128 * KIB, 512 * KIB), 640 * KIB);
    }

    #[test]
    fn short_reads_begin_short_windows() {
        let mut stream = Stream::default();
        assert_eq!(read(&mut stream, 4 * MIB, 4 * KIB), None);
        assert_eq!(read(&mut stream, 4 * MIB + 4 * KIB, 4 * KIB), None);
        let window = Window { start: 4 * MIB + 12 * KIB, len: WINDOW_FIRST };
        assert_eq!(read(&mut stream, 4 * MIB + 8 * KIB, 4 * KIB), Some(window));
        // Five reads further is no order.
        assert_eq!(read(&mut stream, 4 * MIB + 32 * KIB, 4 * KIB), None);
        assert!(stream.has_none());
    }

    #[test]
    fn random_reads_begin_no_window() {
        let mut stream = Stream::default();
        for no in 0..100 {
            assert_eq!(read(&mut stream, (no * 37 % 100) * 10 * MIB + 5 * MIB, 4 * KIB), None);
        }
    }

    #[test]
    fn reads_that_overtake_each_other_are_in_order() {
        let mut stream = Stream::default();
        assert_eq!(read(&mut stream, 0, MIB), None);
        assert!(read(&mut stream, 2 * MIB, MIB).is_some());
        assert_eq!(read(&mut stream, MIB, MIB), None);
        assert!(read(&mut stream, 3 * MIB, MIB).is_some());
        let consumed = stream.note(100 * MIB, MIB, Duration::ZERO);
        assert_eq!((consumed.len(), stream.windows.len()), (2, 0), "another place");
    }

    #[test]
    fn a_file_that_changes_gets_windows_later_each_time() {
        let mut stream = Stream::default();
        let mut at = 0;
        for needed in [2, 4, 8, 16, 32, 64, 64] {
            let mut reads = 0;
            while {
                reads += 1;
                at += MIB;
                read(&mut stream, at - MIB, MIB).is_none()
            } {}
            assert_eq!(reads, needed);
            assert_eq!(stream.give_up().len(), 1);
        }
    }

    #[test]
    fn an_idle_handle_gives_its_windows_away() {
        let mut stream = Stream::default();
        read(&mut stream, 0, MIB);
        read(&mut stream, MIB, MIB);
        assert!(stream.take_idle(IDLE / 2).is_none());
        assert!(stream.take_idle(IDLE).is_some_and(|windows| windows.len() == 1));
        assert!(stream.take_idle(2 * IDLE).is_none());
    }

    #[test]
    fn windows_fit_the_budget_and_the_device() {
        assert_eq!(window_max(32 * MIB, 2000 * MIB), 12 * MIB);
        assert_eq!(window_max(32 * MIB, 20 * MIB), 10 * MIB);
        assert_eq!(window_max(32 * MIB, 1), WINDOW_MIN);
        assert_eq!(window_max(4 * MIB, 2000 * MIB), WINDOW_MIN);
        assert_eq!(window_max(4 * MIB - 1, 2000 * MIB), 0);
    }
}
