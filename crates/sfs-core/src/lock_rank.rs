//! Ranks of locks: the order in which one thread may take them, checked in debug builds.
//!
//! This file is the table of all locks of the core. A thread takes locks in ascending rank; taking
//! a lock of the same or a lower rank than one it holds panics in debug builds, so every test
//! checks the order. Two cases are allowed: a commit holds `InodeState::data` of many files, and an
//! attempt that does not wait may be out of order. Locks without a rank guard a few lines each and
//! are not checked. Two of them are held while another is taken: `DirtyData::files` before
//! `DirtyData::ordered`, and `Cleaner::excluded` before `Health::record`.
//!
//! | rank | lock | guards | held across device requests |
//! |---|---|---|---|
//! | 1 | `Admission::lock` | the right of one writer to the last free blocks | yes |
//! | 2 | `InodeState::io` | content of one file: readers share it, writers and truncation own it | yes |
//! | 3 | `Cleaner::round` | the cleaning round of the background | yes |
//! | 4 | `LogWriter::state` | the log: batches are built and written one after the other | yes |
//! | 5 | `MetadataStore::metadata` | tree, usage table, policies, changes for the next delta | no; only the rebuild by `sfs-fsck`, which has one thread, writes under it |
//! | 6 | `InodeTable::shards` | the set of inodes in memory | no |
//! | 7 | `InodeState::data` | dirty blocks and pending attributes of one file | no |
//! | – | `DirtyData::files`, then `DirtyData::ordered` | the set of dirty files | no |
//! | – | `VolumeDevice::in_flight` | blocks on their way to the device | no |
//! | – | `Cleaner::excluded` | segments that the cleaner must not choose | no |
//! | – | `Cleaner::futility` | the state in which cleaning gained nothing | no |
//! | – | `Discards::segments` | Clean segments to discard | no |
//! | – | `Orphans::queue` | inodes to delete | no |
//! | – | `IdleDefragmentation::reading` | files that are read in order | no |
//! | – | `SyncQueue::waiting` | syncs that wait | no |
//! | – | `Schedule::times` | the due times of background work | no |
//! | – | `Health::record` | error counts | no |
//! | – | `WearRecorder::record` | the wear ledger | no |
//! | – | `SuperblockStore::copies` | the superblock; taken with no other lock held, except by a resize, which holds the log | yes |
//! | – | `OpenSuperblock::layout` | the layout, which a resize changes | no |
//! | – | `DirtyData::errors` | losses of the volume that have to be reported to callers | no |
//! | – | `MetadataStore::unread` | nodes that the device failed to read | no |
//! | – | `MetadataStore::failed_together` | places at which the device failed to read nodes together | no |
//! | – | `PoolState::classes` | free memory | no |
//! | – | `Volume::access_policy` | the mount option for times of access | no |
//! | – | `Volume::unwritten` | the recovery of a volume that is read-only; taken with no other lock held | yes |
//! | – | `AccessTimes::waiting` | times of access that wait in memory | no |

mod durations;
mod held;
mod rank;
mod times;

use std::ops::{Deref, DerefMut};

pub use durations::{DurationHistogram, LockTimes};
use held::Held;
pub(crate) use rank::Rank;
pub use times::lock_times;
use times::{Hold, Wait};

/// Guard of a lock that has a rank.
#[derive(Debug)]
pub(crate) struct Ranked<G> {
    // Dropped first: the lock is released before its rank.
    guard: G,
    _hold: Hold,
    _held: Held,
}

impl<G> Ranked<G> {
    /// Takes a lock of `rank`.
    pub(crate) fn take(rank: Rank, lock: impl FnOnce() -> G) -> Self {
        let held = Held::check_and_add(rank);
        let wait = Wait::begin(rank);
        let guard = lock();
        Self { guard, _hold: wait.end(), _held: held }
    }

    /// Tries to take a lock of `rank`. An attempt cannot deadlock, so the order is not checked.
    pub(crate) fn try_take(rank: Rank, lock: impl FnOnce() -> Option<G>) -> Option<Self> {
        let wait = Wait::begin(rank);
        lock().map(|guard| Self { guard, _hold: wait.end(), _held: Held::add(rank) })
    }

    /// Replaces the guard, as a downgrade does; the rank stays.
    pub(crate) fn map<H>(self, change: impl FnOnce(G) -> H) -> Ranked<H> {
        Ranked { guard: change(self.guard), _hold: self._hold, _held: self._held }
    }
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.guard
    }
}

/// Returns whether this thread holds no lock with a rank, as far as the build knows.
#[cfg(test)]
pub(crate) fn is_none_held() -> bool {
    held::is_none_held()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn ascending_ranks_pass() {
        let (a, b) = (Mutex::new(()), Mutex::new(()));
        let first = Ranked::take(Rank::Log, || a.lock());
        let second = Ranked::take(Rank::Metadata, || b.lock());
        drop((first, second));
        drop(Ranked::take(Rank::Admission, || a.lock()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a lock of rank Log is taken while one of Metadata is held")]
    fn a_descending_rank_panics() {
        let (a, b) = (Mutex::new(()), Mutex::new(()));
        let _first = Ranked::take(Rank::Metadata, || a.lock());
        let _second = Ranked::take(Rank::Log, || b.lock());
    }
}
