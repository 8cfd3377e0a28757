//! Deletion of files that have lost their last name and their last reference.

use super::Volume;
use crate::{Error, Result};

impl Volume {
    /// Begins to delete `gone`, a file that lost its last name, unless a caller refers to it.
    pub(super) fn delete_if_unreferenced(&self, gone: Option<u64>) {
        if let Some(ino) = gone
            && !self.inodes.is_referenced(ino)
        {
            self.space.begin_deletion(ino);
        }
    }

    /// Removes `count` references to `ino`. A file without a name is deleted with its last reference.
    pub fn forget(&self, ino: u64, count: u64) {
        if self.is_unneeded_after(ino, count) {
            self.space.begin_deletion(ino);
        }
    }

    /// Removes references as [`Volume::forget`] does, and writes nothing: the deletion waits for [`Volume::work`].
    pub fn forget_at_rest(&self, ino: u64, count: u64) {
        if self.is_unneeded_after(ino, count) {
            self.space.queue_deletion(ino);
        }
    }

    /// Removes `count` references to `ino`; returns whether the file has neither references nor names left.
    fn is_unneeded_after(&self, ino: u64, count: u64) -> bool {
        self.inodes.forget(ino, count, self.metadata.next_sequence())
            && !self.health.is_read_only()
            && self.space.is_orphan(ino)
    }

    /// Deletes every orphan. A damaged orphan remains for the next mount, and its error is returned at the end.
    pub(super) fn delete_all_orphans(&self) -> Result<()> {
        let mut outcome = Ok(());
        loop {
            match self.space.delete_orphan_step() {
                Ok(true) => {}
                Ok(false) => return outcome,
                Err(error @ (Error::Corrupt(_) | Error::Incompatible(_))) => outcome = Err(error),
                Err(error) => return Err(error),
            }
        }
    }
}
