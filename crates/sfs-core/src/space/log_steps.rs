//! Work on the log by the caller's thread for the log, in steps, and the room that writes wait for: see `throttle`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::checkpoint_due::{self, DELTA_CHANGES_MAX};
use super::control::{SpaceControl, ignore_shortage};
use crate::Result;
use crate::clean::watermarks::Urgency;
use crate::log::LogState;
use crate::metadata::NODE_READS_MAX;
use crate::reserves::{COMMIT_SEGMENTS, ChangesAhead, cleaning_segments};
use crate::writeback::{Selection, StepError};

/// Clean segments, compared with those that changes of metadata need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReserveState {
    Enough,
    /// Some should be made Clean soon.
    Low,
    /// Some must be made Clean before the next change.
    UsedUp,
}

impl SpaceControl {
    /// Bounds the batches of [`SpaceControl::log_step`], [`SpaceControl::write_back_in_parts`] and
    /// [`SpaceControl::commit_in_parts`].
    pub(crate) fn bound_batches(&self, blocks: usize) {
        self.log_work.batch_blocks.store(blocks.max(1), Ordering::Relaxed);
    }

    /// Leaves work that metadata asks for to the thread for the log. Returns `false` if there is no such thread.
    pub(super) fn leave_to_log_thread(&self) -> bool {
        if self.limits.has_log_thread {
            self.log_work.is_asked.store(true, Ordering::Release);
        }
        self.limits.has_log_thread
    }

    /// Returns whether [`SpaceControl::log_step`] has work.
    pub(crate) fn is_log_work_due(&self) -> bool {
        self.is_write_back_due() || self.log_work.is_asked.load(Ordering::Relaxed)
    }

    /// Returns whether dirty data should be written back. That is so whenever a write has no room.
    pub(crate) fn is_write_back_due(&self) -> bool {
        let memory_bytes = self.dirty.pool().dirty_bytes();
        self.marks.is_high(self.dirty.block_count(), memory_bytes)
            || !self.marks.has_room_for_all(memory_bytes)
    }

    /// Does a part of the work that is due. Returns whether anything was written. An error of the work for changes does not
    /// keep dirty data from being written back, and is returned only if nothing was.
    pub(crate) fn log_step(&self) -> Result<bool> {
        self.health.check_running()?;
        let mut log = self.log.lock();
        if self.log.is_frozen() {
            return Ok(true);
        }
        let before = log.next_sequence;
        let is_asked = self.log_work.is_asked.swap(false, Ordering::Acquire);
        let worked = if is_asked { self.work_for_changes(&mut log) } else { Ok(()) };
        let before_write_back = log.next_sequence;
        // Another thread may have written back while this one waited for the log.
        if self.is_write_back_due() {
            let selection = Selection::Largest(self.blocks_at_once());
            let attempts = if self.is_overrun() { NODE_READS_MAX } else { 1 };
            let outcome = self.commit_with_retries(&mut log, &selection, attempts);
            outcome.map_err(StepError::into_user_error)?;
        }
        if log.next_sequence == before_write_back {
            worked?;
        }
        Ok(log.next_sequence != before || !self.is_log_work_due())
    }

    /// Returns the maximum number of blocks that are written under one hold of the log.
    pub(crate) fn batch_blocks(&self) -> usize {
        self.log_work.batch_blocks.load(Ordering::Relaxed)
    }

    pub(super) fn blocks_at_once(&self) -> usize {
        self.marks.write_back_blocks().min(self.batch_blocks())
    }

    /// Writes what changes of metadata have asked for.
    fn work_for_changes(&self, log: &mut LogState) -> Result<()> {
        let (changes, dirty_nodes) = self.amount_of_changes();
        match checkpoint_due::before_change(dirty_nodes, self.limits.cache_bytes) {
            Some(reason) => ignore_shortage(self.checkpoint(log, reason))?,
            None if changes >= DELTA_CHANGES_MAX => {
                ignore_shortage(self.commit(log, &Selection::Files(Default::default())))?;
            }
            None => {}
        }
        if self.reserve_state() > ReserveState::Enough {
            ignore_shortage(self.reclaim(log).map(drop))?;
        }
        Ok(())
    }

    /// Returns the number of changes that wait for a delta, and that of dirty nodes.
    pub(super) fn amount_of_changes(&self) -> (usize, usize) {
        let metadata = self.metadata.read();
        (metadata.change_count(), metadata.tree.dirty_count())
    }

    /// Compares the Clean segments with those that a checkpoint of the dirty nodes needs.
    pub(super) fn reserve_state(&self) -> ReserveState {
        let metadata = self.metadata.read();
        let clean = metadata.usage.clean_count();
        let reserve = cleaning_segments(&self.superblock.layout(), &metadata, ChangesAhead::NONE);
        if metadata.tree.dirty_count() == 0 || clean >= reserve + COMMIT_SEGMENTS / 2 {
            ReserveState::Enough
        } else if clean >= reserve {
            ReserveState::Low
        } else {
            ReserveState::UsedUp
        }
    }

    /// Writes dirty data back in bounded batches, and lets the log go between them, until about one batch is left for the sync
    /// of everything that follows. Data that becomes dirty meanwhile counts as left. An error is left to the sync. Returns whether
    /// anything was written.
    pub(crate) fn write_back_in_parts(&self) -> bool {
        let part = self.batch_blocks();
        let mut left = self.dirty.block_count();
        let mut has_written = false;
        while left > part && self.dirty.block_count() > part {
            let mut log = self.log.lock();
            if self.log.is_frozen() {
                break;
            }
            let before = log.next_sequence;
            let outcome = self.commit(&mut log, &Selection::Largest(part));
            if outcome.is_err() || log.next_sequence == before {
                break;
            }
            has_written = true;
            left -= part;
        }
        has_written
    }

    /// Returns whether every write has room.
    pub(crate) fn has_room_for_all(&self) -> bool {
        self.health.has_stopped() || self.marks.has_room_for_all(self.dirty.pool().dirty_bytes())
    }

    /// Returns whether a write of `len_bytes` that has waited for `waited` has room in the file with `file_blocks` dirty blocks. A
    /// volume that writes nothing any more lets no write wait.
    pub(crate) fn has_room_for(
        &self,
        len_bytes: usize,
        file_blocks: usize,
        waited: Duration,
    ) -> bool {
        let memory_bytes = self.dirty.pool().dirty_bytes();
        if self.health.has_stopped() || self.marks.has_room_for_all(memory_bytes) {
            return true;
        }
        let files = self.dirty.file_count();
        self.marks.has_room_for_some(memory_bytes)
            && (self.marks.is_patient(waited)
                || self.marks.is_within_share(len_bytes, file_blocks, files))
    }

    /// Returns whether a write of `blocks` would have to clean.
    pub(crate) fn owes_cleaning(&self, blocks: u64) -> bool {
        let is_critical = |(urgency, garbage)| {
            urgency == Urgency::Critical && !self.cleaner.is_futile(garbage, Urgency::Critical)
        };
        self.pace.would_be_in_debt(blocks) && self.shortage().is_some_and(is_critical)
    }
}
