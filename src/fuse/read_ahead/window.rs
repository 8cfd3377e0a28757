//! Windows: their content, the place where a reader waits for it, and the memory of all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use sfs_core::{ContentAhead, Volume};
use sfs_device::{BLOCK_SIZE, MmapRegion};

/// Length of a window of content that lies in order on the device, in bytes.
pub(super) const WINDOW_MIN: u64 = 2 << 20;

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
        self.lend();
        let loan = Loan { budget: self.clone(), len };
        let region = MmapRegion::new(len.div_ceil(BLOCK_SIZE)).ok()?;
        Some(Memory { region, loan })
    }

    /// Takes the memory of the windows from the cache of nodes.
    fn lend(&self) {
        self.volume.lend_cache(self.used.load(Ordering::Acquire));
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
        self.budget.lend();
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
    /// Reads a window of file `ino` from byte `start` on.
    pub(super) fn fill(self, volume: &Volume, ino: u64, start: u64) -> Option<Ahead> {
        // The read that needs the content meets an error again, and reports it.
        let content = volume.read_ahead(ino, start, self.region).ok()??;
        Some(Ahead { content, loan: self.loan })
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
    #[default]
    Reading,
    Read(Arc<Ahead>),
    /// The content cannot be read, or the file ends before it.
    Nothing,
}

/// How a window was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowOutcome {
    /// Number of requests to the device.
    pub(super) requests: usize,
    /// `true` if no window follows.
    pub(super) is_last: bool,
}

impl Slot {
    /// Sets the content once.
    pub(super) fn set(&self, ahead: Option<Ahead>) {
        let state = ahead.map_or(SlotState::Nothing, |ahead| SlotState::Read(Arc::new(ahead)));
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Waits until the window was read. Returns its content, unless it is old.
    pub(super) fn wait(&self) -> Option<Arc<Ahead>> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| matches!(state, SlotState::Reading));
        match &*state {
            SlotState::Read(ahead) if ahead.content.is_current() => Some(ahead.clone()),
            _ => None,
        }
    }

    /// Returns whether the content has changed since it was read, or while it was read.
    pub(super) fn is_old(&self) -> bool {
        match &*self.state.lock() {
            SlotState::Reading => false,
            SlotState::Read(ahead) => !ahead.content.is_current(),
            SlotState::Nothing => true,
        }
    }

    /// Returns how the window was read; `None` if it was not yet.
    pub(super) fn outcome(&self) -> Option<WindowOutcome> {
        match &*self.state.lock() {
            SlotState::Reading => None,
            SlotState::Read(ahead) => Some(WindowOutcome {
                requests: ahead.content.requests(),
                is_last: ahead.content.is_end(),
            }),
            SlotState::Nothing => Some(WindowOutcome { requests: 0, is_last: true }),
        }
    }

    /// Returns the memory of the window, for another of `len` bytes, if nobody else uses the window.
    pub(super) fn into_memory(self: Arc<Self>, len: u64) -> Option<Memory> {
        let slot = Arc::try_unwrap(self).ok()?;
        let SlotState::Read(ahead) = slot.state.into_inner() else { return None };
        let Ahead { content, loan } = Arc::try_unwrap(ahead).ok()?;
        (loan.len as u64 == len).then(|| Memory { region: content.into_memory(), loan })
    }
}
