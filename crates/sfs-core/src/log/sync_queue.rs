//! Queue of syncs: one commit and one flush serve every sync that waits.
//!
//! A sync joins the queue, then waits for the log. The first sync that gets the log takes the whole queue,
//! commits and flushes; the other syncs find that their generation has been served. A sync that is announced
//! joins the same way, and keeps its generation until it is served.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Files that one or more syncs wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SyncTarget {
    /// The whole volume.
    All,
    /// The files with these inode numbers.
    Files(BTreeSet<u64>),
}

/// Announced sync of the whole volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WholeSyncTicket {
    /// Number of the next sync of the whole volume.
    pub(crate) number: u64,
    /// Number of losses at the announcement: later ones are reported to this sync.
    pub(crate) losses: u64,
}

impl From<[u64; 2]> for WholeSyncTicket {
    fn from([number, losses]: [u64; 2]) -> Self {
        Self { number, losses }
    }
}

impl From<WholeSyncTicket> for [u64; 2] {
    fn from(ticket: WholeSyncTicket) -> Self {
        [ticket.number, ticket.losses]
    }
}

/// Queue of the syncs that wait.
#[derive(Debug, Default)]
pub(crate) struct SyncQueue {
    waiting: Mutex<Queue>,
    /// Last generation that is durable. Changed by the thread that holds the log.
    served: AtomicU64,
    /// Number of syncs of the whole volume that have begun.
    whole_begun: AtomicU64,
    /// Largest of these numbers whose sync has succeeded.
    whole_served: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Number of times the queue was taken.
    generation: u64,
    files: BTreeSet<u64>,
    all: bool,
}

impl SyncQueue {
    /// Adds a sync of `file`, or of the whole volume; returns the generation that serves it.
    pub(crate) fn join(&self, file: Option<u64>) -> u64 {
        let mut queue = self.waiting.lock();
        match file {
            Some(ino) => drop(queue.files.insert(ino)),
            None => queue.all = true,
        }
        queue.generation + 1
    }

    /// Returns whether everything that joined `generation` is durable. Needs no lock.
    pub(crate) fn is_served(&self, generation: u64) -> bool {
        self.served.load(Ordering::Acquire) >= generation
    }

    /// Notes that `generation`, which was taken last, is durable. The caller holds the log.
    pub(crate) fn note_served(&self, generation: u64) {
        self.served.store(generation, Ordering::Release);
    }

    /// Returns the number of the next sync of the whole volume: if it succeeds, everything that was changed before is durable.
    pub(crate) fn announce_whole(&self) -> u64 {
        self.whole_begun.load(Ordering::SeqCst) + 1
    }

    /// Begins a sync of the whole volume, and returns its number.
    pub(crate) fn begin_whole(&self) -> u64 {
        self.whole_begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Notes that sync `number` of the whole volume has succeeded.
    pub(crate) fn note_whole_served(&self, number: u64) {
        self.whole_served.fetch_max(number, Ordering::AcqRel);
    }

    /// Returns whether sync `number` of the whole volume, or a later one, has succeeded.
    pub(crate) fn is_whole_served(&self, number: u64) -> bool {
        self.whole_served.load(Ordering::Acquire) >= number
    }

    /// Returns whether a sync of `file` waits.
    pub(crate) fn is_announced(&self, file: u64) -> bool {
        self.waiting.lock().files.contains(&file)
    }

    /// Returns whether a sync waits.
    pub(crate) fn has_waiting(&self) -> bool {
        let queue = self.waiting.lock();
        queue.all || !queue.files.is_empty()
    }

    /// Takes every sync that waits; returns their generation and their common target.
    pub(crate) fn take(&self) -> (u64, SyncTarget) {
        let mut queue = self.waiting.lock();
        queue.generation += 1;
        let files = std::mem::take(&mut queue.files);
        let all = std::mem::take(&mut queue.all);
        (queue.generation, if all { SyncTarget::All } else { SyncTarget::Files(files) })
    }

    /// Puts back syncs whose commit has failed: the next sync serves them.
    pub(crate) fn put_back(&self, target: SyncTarget) {
        let mut queue = self.waiting.lock();
        match target {
            SyncTarget::All => queue.all = true,
            SyncTarget::Files(mut files) => queue.files.append(&mut files),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_that_wait_together_are_served_together() {
        let queue = SyncQueue::default();
        assert_eq!((queue.join(Some(7)), queue.join(Some(9)), queue.join(Some(7))), (1, 1, 1));
        let files = SyncTarget::Files([7, 9].into());
        assert_eq!(queue.take(), (1, files.clone()));
        assert!(!queue.is_served(1), "taken is not durable");
        assert_eq!(queue.join(None), 2, "the next generation");
        queue.put_back(files);
        assert_eq!(queue.take(), (2, SyncTarget::All), "a sync of everything includes the files");
        queue.note_served(2);
        assert!(queue.is_served(1) && queue.is_served(2) && !queue.is_served(3));
        assert_eq!(queue.take(), (3, SyncTarget::Files(BTreeSet::new())));
    }
}
