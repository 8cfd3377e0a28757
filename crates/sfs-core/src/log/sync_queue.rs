//! Queue of syncs: one commit and one flush serve every sync that waits.
//!
//! A sync joins the queue, then waits for the log. The first sync that gets the log takes the whole queue,
//! commits and flushes; the other syncs find that their generation has been served.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Files that one or more syncs wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SyncTarget {
    /// The whole volume.
    All,
    /// The files with these inode numbers.
    Files(BTreeSet<u64>),
}

/// Queue of the syncs that wait.
#[derive(Debug, Default)]
pub(crate) struct SyncQueue(Mutex<Queue>);

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
        let mut queue = self.0.lock();
        match file {
            Some(ino) => drop(queue.files.insert(ino)),
            None => queue.all = true,
        }
        queue.generation + 1
    }

    /// Returns whether a sync of `file` waits.
    pub(crate) fn is_announced(&self, file: u64) -> bool {
        self.0.lock().files.contains(&file)
    }

    /// Takes every sync that waits; returns their generation and their common target.
    pub(crate) fn take(&self) -> (u64, SyncTarget) {
        let mut queue = self.0.lock();
        queue.generation += 1;
        let files = std::mem::take(&mut queue.files);
        let all = std::mem::take(&mut queue.all);
        (queue.generation, if all { SyncTarget::All } else { SyncTarget::Files(files) })
    }

    /// Puts back syncs whose commit has failed: the next sync serves them.
    pub(crate) fn put_back(&self, target: SyncTarget) {
        let mut queue = self.0.lock();
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
        assert_eq!(queue.join(None), 2, "the next generation");
        queue.put_back(files);
        assert_eq!(queue.take(), (2, SyncTarget::All), "a sync of everything includes the files");
        assert_eq!(queue.take(), (3, SyncTarget::Files(BTreeSet::new())));
    }
}
