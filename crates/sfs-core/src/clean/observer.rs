//! Reports of cleaning rounds to a part of the program that has a clock.

use std::sync::{Arc, OnceLock};

/// Receiver of reports of cleaning rounds. Its methods are called with locks held, so they return at once and do not
/// call the volume.
pub trait CleaningObserver: Send + Sync {
    /// Called when a round takes its first victim. The number is passed to [`CleaningObserver::finished`].
    fn begun(&self) -> u64;

    /// Called when the blocks of a round have been committed. A round that fails is not reported.
    fn finished(&self, begun: u64, cleaned: Cleaned);
}

/// Result of a cleaning round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Number of victims that were emptied.
    pub victims: u32,
    /// Number of bytes of file data that were moved, as [`crate::request::Counters::cleaning_bytes`] counts them.
    pub moved_bytes: u64,
    /// Number of bytes of the victims that were neither moved nor are live nodes, which the next checkpoint moves.
    pub freed_bytes: u64,
}

/// The observer of a volume, once it has one.
#[derive(Default)]
pub(super) struct ObserverSlot(OnceLock<Arc<dyn CleaningObserver>>);

impl ObserverSlot {
    /// Sets the observer; the first one stays.
    pub(super) fn set(&self, observer: Arc<dyn CleaningObserver>) {
        let _ = self.0.set(observer);
    }

    pub(super) fn begun(&self) -> u64 {
        self.0.get().map_or(0, |observer| observer.begun())
    }

    pub(super) fn finished(&self, begun: u64, cleaned: Cleaned) {
        if let Some(observer) = self.0.get() {
            observer.finished(begun, cleaned);
        }
    }
}
