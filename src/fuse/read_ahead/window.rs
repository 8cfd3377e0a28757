//! Windows: their content, the place where a reader waits for it, and the memory of all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sfs_core::{AheadRead, ContentAhead, Volume};
use sfs_device::{BLOCK_SIZE, MmapRegion};

/// Length of a window of content that lies in order on the device, in bytes.
pub(super) const WINDOW_MIN: u64 = 2 << 20;

/// Length of the shortest window, in bytes.
pub(super) const WINDOW_FIRST: u64 = 128 << 10;

/// Time that a window may take the device. The next one is shorter after more.
const WINDOW_TIME: Duration = Duration::from_millis(500);

/// Time for which a reader waits for a thread to begin with its window.
const BEGIN_WAIT: Duration = Duration::from_millis(1);

/// Longest wait for a window that is being read: a device may try a damaged block for half a minute, more than once.
const READ_WAIT: Duration = Duration::from_secs(2);

/// Memory that all windows may have, and that they have.
pub(super) struct WindowBudget {
    volume: Arc<Volume>,
    bytes: usize,
    used: AtomicUsize,
}

impl WindowBudget {
    pub(super) fn new(volume: Arc<Volume>, bytes: usize) -> Self {
        Self { volume, bytes, used: AtomicUsize::new(0) }
    }

    /// Returns memory for a window of `len` bytes; `None` if the budget or the system has none.
    pub(super) fn take(self: &Arc<Self>, len: u64) -> Option<Memory> {
        // Long windows leave a quarter to short ones.
        let most = if len > WINDOW_MIN { self.bytes / 4 * 3 } else { self.bytes };
        let len = usize::try_from(len).ok()?;
        let with = |used: usize| used.checked_add(len).filter(|used| *used <= most);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, with).ok()?;
        self.volume.lend_cache(len);
        let loan = Loan { budget: self.clone(), len };
        let region = MmapRegion::in_huge_pages(len.div_ceil(BLOCK_SIZE)).ok()?;
        Some(Memory { region, loan })
    }

    /// Notes a read of file `ino` that is answered from a window.
    pub(super) fn note_read(&self, ino: u64, offset: u64, len: u32) {
        self.volume.note_read_of_ahead(ino, offset, u64::from(len));
    }

    /// Returns the number of bytes that windows have.
    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Returns whether all windows are gone, after the threads have had time to end theirs.
    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        sfs_testkit::wait_until("the windows are gone", || self.used_bytes() == 0);
        self.used_bytes() == 0
    }
}

/// A part of the budget, given back when it is dropped.
struct Loan {
    budget: Arc<WindowBudget>,
    len: usize,
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.len, Ordering::AcqRel);
        self.budget.volume.give_back_cache(self.len);
    }
}

/// Memory for a window.
pub(super) struct Memory {
    region: MmapRegion,
    loan: Loan,
}

/// Content of a window.
pub(crate) struct Ahead {
    content: ContentAhead,
    loan: Loan,
    /// Time that reading it took.
    time: Duration,
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ahead").field("start", &self.content.start()).finish_non_exhaustive()
    }
}

impl Ahead {
    /// Returns the content.
    pub(crate) fn content(&self) -> &ContentAhead {
        &self.content
    }
}

impl Memory {
    /// Reads a window of file `ino` from byte `start` on, as long as it `is_wanted`.
    fn fill(self, volume: &Volume, at: (u64, u64), is_wanted: &dyn Fn() -> bool) -> SlotState {
        let ((ino, start), begin) = (at, Instant::now());
        match volume.read_ahead(ino, start, self.region, is_wanted) {
            Ok(AheadRead::Content(content)) => {
                let (loan, time) = (self.loan, begin.elapsed());
                SlotState::Read(Arc::new(Ahead { content, loan, time }))
            }
            Ok(AheadRead::Nothing) => SlotState::Nothing,
            Ok(AheadRead::GivenUp) => SlotState::Old,
            // The read that needs the content meets the error again, and reports it.
            Err(_) => SlotState::Failed,
        }
    }
}

/// Place for the content of a window.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum SlotState {
    /// No thread has begun to read.
    #[default]
    Queued,
    Reading,
    Read(Arc<Ahead>),
    /// The file ends before the window.
    Nothing,
    /// The content has changed, or is being changed.
    Old,
    /// The content cannot be read.
    Failed,
    /// A reader did not wait, and reads the content itself.
    Taken,
}

/// How a window was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowOutcome {
    /// Number of requests to the device; `None` if it was not read.
    pub(super) requests: Option<usize>,
    /// `true` if it took the device too long, or failed.
    pub(super) is_slow: bool,
    /// `true` if no window follows.
    pub(super) is_last: bool,
}

impl Slot {
    /// Reads the window of `memory` at an offset of a file, unless a reader reads it itself by now.
    pub(super) fn fill(
        &self,
        memory: Memory,
        volume: &Volume,
        at: (u64, u64),
        is_wanted: &dyn Fn() -> bool,
    ) {
        if self.begin() {
            self.read(memory, volume, at, is_wanted);
        }
    }

    /// Notes that a thread reads the window; returns `false` if it must not.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        let is_queued = matches!(*state, SlotState::Queued);
        if is_queued {
            *state = SlotState::Reading;
            drop(state);
            self.changed.notify_all();
        }
        is_queued
    }

    /// Reads the window after [`Slot::begin`].
    pub(super) fn read(
        &self,
        memory: Memory,
        volume: &Volume,
        at: (u64, u64),
        is_wanted: &dyn Fn() -> bool,
    ) {
        let state = memory.fill(volume, at, is_wanted);
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Leaves the window to its readers, if it was not read yet: no thread will read it.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        if matches!(*state, SlotState::Queued) {
            *state = SlotState::Taken;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits until the window was read. Returns its content, unless it is old. If no thread has begun to read the window, or
    /// reading it takes as long as a device takes for a damaged block, the caller has to read its own blocks.
    pub(super) fn wait(&self) -> Option<Arc<Ahead>> {
        let mut state = self.state.lock();
        let is_queued = |state: &mut SlotState| matches!(state, SlotState::Queued);
        if self.changed.wait_while_for(&mut state, is_queued, BEGIN_WAIT).timed_out()
            && is_queued(&mut state)
        {
            *state = SlotState::Taken;
            drop(state);
            self.changed.notify_all();
            return None;
        }
        let is_being_read = |state: &mut SlotState| matches!(state, SlotState::Reading);
        self.changed.wait_while_for(&mut state, is_being_read, READ_WAIT);
        match &*state {
            SlotState::Read(ahead) if ahead.content.is_current() => Some(ahead.clone()),
            _ => None,
        }
    }

    /// Returns whether the content has changed since it was read, or while it was read.
    pub(super) fn is_old(&self) -> bool {
        match &*self.state.lock() {
            SlotState::Read(ahead) => !ahead.content.is_current(),
            SlotState::Nothing | SlotState::Old => true,
            SlotState::Queued | SlotState::Reading | SlotState::Failed | SlotState::Taken => false,
        }
    }

    /// Returns how the window was read; `None` if it was not yet.
    pub(super) fn outcome(&self) -> Option<WindowOutcome> {
        let unread = |is_slow, is_last| WindowOutcome { requests: None, is_slow, is_last };
        match &*self.state.lock() {
            SlotState::Queued | SlotState::Reading => None,
            SlotState::Read(ahead) => Some(WindowOutcome {
                requests: Some(ahead.content.requests()),
                is_slow: ahead.time > WINDOW_TIME,
                is_last: ahead.content.is_end(),
            }),
            SlotState::Nothing | SlotState::Old => Some(unread(false, true)),
            SlotState::Failed => Some(unread(true, false)),
            SlotState::Taken => Some(unread(false, false)),
        }
    }

    /// Returns the memory of the window, for another of `len` bytes, if nobody else uses the window.
    pub(super) fn into_memory(self: Arc<Self>, len: u64) -> Option<Memory> {
        let slot = Arc::try_unwrap(self).ok()?;
        let SlotState::Read(ahead) = slot.state.into_inner() else { return None };
        let Ahead { content, loan, .. } = Arc::try_unwrap(ahead).ok()?;
        (loan.len as u64 == len).then(|| Memory { region: content.into_memory(), loan })
    }
}
