//! Syncs that have finished: what they cover is in the log, and a replay leaves it as it is.
//!
//! A replay that wrote it again would write older content first. If it were committed there, and the power failed, the file would be
//! older than its last sync.

use std::collections::HashMap;

use sfs_fuse::{FuseOperation, FuseRequest};

/// Inode that stands for all files.
pub(super) const ALL_FILES: u64 = 0;

/// Sync that has finished. A sync of a file makes every change of a name or an attribute durable that was done when it began, and
/// the content of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedSync {
    /// Inode of the file; [`ALL_FILES`] for all.
    pub(crate) ino: u64,
    /// Number of the last request whose change was done when the sync began; 0 for none.
    pub(crate) last: u64,
    /// `true` for fdatasync(2): only the content of the file is durable.
    pub(crate) data_only: bool,
}

/// Recorded changes that finished syncs cover, as numbers of changes from the first one on.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Numbers of changes up to each that is done, by the numbers of their requests.
    done: HashMap<u64, usize>,
    /// Changes whose names and attributes are in the log.
    changes: usize,
    /// Changes whose content is in the log, by inode.
    content: HashMap<u64, usize>,
}

impl Coverage {
    /// Notes that the change of request `unique` is done, the last of `count`.
    pub(super) fn note_done(&mut self, unique: u64, count: usize) {
        self.done.insert(unique, count);
    }

    /// Adds what `sync` covers. The records of older changes are discarded before those of later ones.
    pub(super) fn add(&mut self, sync: FinishedSync) {
        let Some(count) = self.done.get(&sync.last).copied() else { return };
        if !sync.data_only {
            self.changes = self.changes.max(count);
        }
        let content = self.content.entry(sync.ino).or_default();
        *content = count.max(*content);
    }

    /// Returns the number of changes whose names and attributes are in the log.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    /// Returns whether the log has what change `at` has done to the content of file `ino`.
    pub(super) fn has_content(&self, at: usize, ino: u64) -> bool {
        [ino, ALL_FILES].iter().any(|of| self.content.get(of).is_some_and(|count| at < *count))
    }
}

/// Returns whether a request is a write that is durable before its reply.
pub(crate) fn is_durable_write(request: &FuseRequest<'_>) -> bool {
    let FuseOperation::Write(write) = &request.operation else { return false };
    !write.from_cache && write.open_flags.cast_signed() & libc::O_DSYNC != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_covers_its_file_and_all_names() {
        let mut coverage = Coverage::default();
        for (unique, count) in [(10, 1), (12, 2), (14, 3)] {
            coverage.note_done(unique, count);
        }
        let sync = |ino, last, data_only| FinishedSync { ino, last, data_only };
        let of =
            |coverage: &Coverage, ino| (0..4).filter(|at| coverage.has_content(*at, ino)).count();
        coverage.add(sync(5, 12, true));
        assert_eq!((coverage.changes(), of(&coverage, 5), of(&coverage, 6)), (0, 2, 0));
        coverage.add(sync(5, 10, false));
        assert_eq!((coverage.changes(), of(&coverage, 5), of(&coverage, 6)), (1, 2, 0));
        coverage.add(sync(ALL_FILES, 14, false));
        assert_eq!((coverage.changes(), of(&coverage, 5), of(&coverage, 6)), (3, 3, 3));
        // The change is in an area that was discarded.
        coverage.add(sync(7, 8, false));
        assert_eq!((coverage.changes(), of(&coverage, 7)), (3, 3));
    }
}
