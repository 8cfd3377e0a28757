//! Work on the log by a thread of the caller, so that a writer that has to wait holds neither the log nor a thread.
//!
//! With [`VolumeOptions::has_log_thread`] the caller calls [`Volume::log_step`] as long as [`Volume::is_log_work_due`], and lets
//! a write wait until [`Volume::has_write_room`]. `space::throttle` has the marks.
//!
//! [`VolumeOptions::has_log_thread`]: crate::request::VolumeOptions::has_log_thread

use std::time::Duration;

use super::Volume;
use crate::Result;
use crate::log::WholeSyncTicket;

/// Ticket of a sync that no sync by another thread serves.
pub(super) const UNSERVED: u64 = u64::MAX;

impl Volume {
    /// Returns whether [`Volume::log_step`] has work. That is so whenever a write has no room, and never once writing has stopped
    /// or while the volume is frozen.
    pub fn is_log_work_due(&self) -> bool {
        let may_write =
            !self.health.is_read_only() && !self.health.has_stopped() && !self.log.is_frozen();
        may_write && self.space.is_log_work_due()
    }

    /// Does a bounded part of the work on the log that is due: writes back up to an eighth of the write buffer, and makes
    /// room for changes of metadata. Nothing is flushed unless segments are short. Returns whether the step has written
    /// anything, or nothing is due any more; otherwise another step at once is useless.
    ///
    /// # Errors
    ///
    /// Those of the device, or [`NoSpace`](crate::Error::NoSpace) if no segment can be made Clean. The data stays dirty.
    pub fn log_step(&self) -> Result<bool> {
        self.superblocks.after(self.space.log_step())
    }

    /// Bounds the dirty blocks (of 4 KiB) that are written back at a time, beside those that a sync of single files writes: a sync
    /// waits for no longer batch. Unbounded at first.
    pub fn bound_batches(&self, blocks: usize) {
        self.space.bound_batches(blocks);
    }

    /// Returns whether a write of `len_bytes` to file `ino` that has waited for `waited` need not wait for
    /// [`Volume::log_step`]. A file that was
    /// truncated and waits for its new data always has room, because that data must be in the batch of the truncation. The answer may be `false` for some milliseconds too long.
    pub fn has_write_room(&self, ino: u64, len_bytes: usize, waited: Duration) -> bool {
        if self.space.has_room_for_all() {
            return true;
        }
        let Some(file) = self.inodes.find(ino) else {
            return self.space.has_room_for(len_bytes, 0, waited);
        };
        // A batch that is being built has the data of its files locked, for some milliseconds.
        let Some(data) = file.try_data() else { return false };
        let (awaits_ordered_data, file_blocks) = (data.awaits_ordered_data(), data.dirty.len());
        drop(data);
        awaits_ordered_data || self.space.has_room_for(len_bytes, file_blocks, waited)
    }

    /// Returns whether a write of `blocks` (of 4 KiB) would have to clean before it returns.
    pub fn owes_cleaning(&self, blocks: u64) -> bool {
        self.space.owes_cleaning(blocks)
    }

    /// Announces a sync of file `ino` that follows, so that the next sync by any thread includes the file. Returns the ticket
    /// for [`Volume::sync_announced_after`].
    pub fn announce_sync(&self, ino: u64) -> u64 {
        let has_time = self.metadata.access_times().get(ino).is_some();
        let ticket = self.log.syncs.join(Some(ino));
        // Another thread may put the time into the tree after the commit that serves the ticket.
        if has_time { UNSERVED } else { ticket }
    }

    /// Returns whether a sync of a file has been announced, which the next sync serves, too.
    pub fn is_sync_announced(&self) -> bool {
        self.log.syncs.has_waiting()
    }

    /// Returns the ticket of a sync of everything that follows, for [`Volume::sync_all_announced`].
    pub fn announce_sync_all(&self) -> WholeSyncTicket {
        let losses = self.dirty.with_errors(|errors| errors.syncs.count());
        WholeSyncTicket { number: self.log.syncs.announce_whole(), losses }
    }

    /// Returns the number of losses of file `ino` so far: [`Volume::sync_announced_after`] reports later losses.
    pub fn losses_of(&self, ino: u64) -> u64 {
        self.inodes.find(ino).map_or(0, |file| file.data().errors.count())
    }

    /// Returns whether a sync of file `ino` would write more than one batch.
    pub fn is_sync_long(&self, ino: u64) -> bool {
        let Some(file) = self.inodes.find(ino) else { return false };
        // A batch that is being built has the data of its files locked.
        file.try_data().is_none_or(|data| data.dirty.len() > self.space.batch_blocks())
    }

    /// Returns whether dirty data should be written back by [`Volume::log_step`]: only then does a write wait for it.
    pub fn is_write_back_due(&self) -> bool {
        !self.health.has_stopped() && self.space.is_write_back_due()
    }

    /// Returns whether a sync would have to wait for a batch or a checkpoint of another thread.
    pub fn is_log_busy(&self) -> bool {
        self.log.try_lock().is_none()
    }
}
