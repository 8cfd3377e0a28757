//! Space control for threads that write: admission, throttling, and room for metadata.

use std::sync::atomic::Ordering;

use super::admission::Admitted;
use super::checkpoint_due::{self, DELTA_CHANGES_MAX};
use super::cleaning_pace::ReadUnderWay;
use super::control::{SpaceControl, StepResult, ignore_shortage};
use super::log_steps::ReserveState;
use super::outlook::Outlook;
use crate::clean::watermarks::{Urgency, garbage, urgency};
use crate::clean::{CleaningRound, GarbageBlocks, ReadStep};
use crate::log::LogState;
use crate::metadata::NODE_READS_MAX;
use crate::writeback::{CheckpointReason, Selection, StepError};
use crate::{Error, Result};

/// Maximum number of commits by which one request tries to make room for itself.
const COMMITS_MAX: usize = 4;

/// Maximum number of steps of cleaning for one request of a writer, each of up to 1 MiB: a bound on its wait.
const WRITER_STEPS_MAX: u64 = 8;

/// Number of these steps that any request may have to do.
const WRITER_STEPS_MIN: u64 = 2;

/// Number of blocks of a request for each further step.
const BLOCKS_PER_STEP: u64 = 32;

impl SpaceControl {
    /// Counts a request by a user: background cleaning yields to it.
    pub(crate) fn note_request(&self) {
        self.pace.note_request();
    }

    /// Notes that users wait for a read of the device: background cleaning yields to it until the returned value is dropped.
    pub(crate) fn begin_read(&self) -> ReadUnderWay<'_> {
        self.pace.begin_read()
    }

    /// Returns the number of requests by users so far.
    pub(crate) fn request_count(&self) -> u64 {
        self.pace.request_count()
    }

    /// Admits an operation that adds metadata and `blocks` of data. As long as the returned value lives, no other
    /// operation is admitted to the same space. The caller must not hold an admission, or a lock that a writer may wait
    /// for.
    ///
    /// # Errors
    ///
    /// [`Error::NoSpace`] if there is no space even after [`SpaceControl::make_room`].
    pub(crate) fn admit(&self, blocks: u64) -> Result<Admitted<'_>> {
        self.health.check_writable()?;
        let mut commits_left = COMMITS_MAX;
        loop {
            if let Some(admitted) = self.admission.try_admit(blocks) {
                return Ok(admitted);
            }
            match self.make_room(blocks, &mut commits_left) {
                Err(error) if self.health.has_stopped() => return Err(error),
                // The error concerns another file.
                Ok(true) | Err(_) => {}
                Ok(false) => return Err(Error::NoSpace),
            }
        }
    }

    /// Does one step towards space for `blocks`, cheapest first: deletes a part of an orphan, makes
    /// frees in place durable, or commits dirty data that takes less space afterwards. Returns
    /// `false` if nothing helps. Removed nodes need no step here: admission counts them as free,
    /// and [`SpaceControl::reclaim`] writes the checkpoint for them.
    fn make_room(&self, blocks: u64, commits_left: &mut usize) -> Result<bool> {
        // Step by step: a writer that needs one block does not wait until all orphans are deleted.
        if self.delete_orphan_step()? {
            return Ok(true);
        }
        if *commits_left == 0 {
            return Ok(false);
        }
        *commits_left -= 1;
        if self.metadata.read().usage.has_pending_frees() {
            let mut log = self.log.lock();
            return self.settle_freed_blocks(&mut log).map_err(StepError::into_user_error);
        }
        let enough = blocks.max(self.marks.write_back_blocks() as u64);
        let (files, outlook) = Outlook::worthwhile_files(&self.dirty, &self.metadata, enough);
        // A program that repeats a refused write must not cause a commit each time.
        if files.is_empty() || !self.admission.would_have_space(blocks, outlook.gain_blocks()) {
            return Ok(false);
        }
        let mut log = self.log.lock();
        ignore_shortage(self.commit(&mut log, &Selection::Files(files)))?;
        Ok(true)
    }

    /// Admits a writer to `blocks` if there is space for certain and without waiting.
    pub(crate) fn admit_at_once(&self, blocks: u64) -> Option<Admitted<'_>> {
        self.admission.try_admit_shared(blocks).ok()
    }

    /// Calls `work`, and admits it to the space that is withheld from users.
    pub(crate) fn with_withheld_space<T>(&self, work: impl FnOnce() -> T) -> T {
        self.admission.spend_withheld(true);
        let done = work();
        self.admission.spend_withheld(false);
        done
    }

    /// Admits a writer that needs no new block.
    pub(crate) fn admit_without_blocks(&self) -> Admitted<'_> {
        self.admission.admit_without_blocks()
    }

    /// Begins to delete a file without name and references. The background continues, also after a
    /// failure.
    pub(crate) fn begin_deletion(&self, ino: u64) {
        if self.log.is_frozen() {
            return self.orphans.queue(ino);
        }
        match self.before_change() {
            Ok(()) => self.orphans.begin(ino),
            Err(_) => self.orphans.queue(ino),
        }
    }

    /// Queues a file without name and references for deletion.
    pub(crate) fn queue_deletion(&self, ino: u64) {
        self.orphans.queue(ino);
    }

    /// Returns whether `ino` has lost its last name.
    pub(crate) fn is_orphan(&self, ino: u64) -> bool {
        self.orphans.is_orphan(ino)
    }

    /// Deletes a part of one orphan; returns whether there was one. After an error the orphan is
    /// left to the next mount, so callers that continue after errors terminate.
    pub(crate) fn delete_orphan_step(&self) -> Result<bool> {
        let Some(ino) = self.orphans.take() else { return Ok(false) };
        self.before_change()?;
        self.orphans.step(ino)?;
        Ok(true)
    }

    /// Commits the dirty data of `ino`, which is ordered before a change of metadata. Ordered data has to fit into one
    /// batch with the delta; where segments are short it is written before the change.
    pub(crate) fn flush_before(&self, ino: u64) -> Result<()> {
        let mut log = self.log.lock();
        ignore_shortage(self.commit(&mut log, &Selection::Files([ino].into())))
    }

    /// Returns whether all dirty data certainly fits into one batch.
    pub(crate) fn fits_one_batch(&self) -> bool {
        self.builder.fits_one_batch()
    }

    /// Refuses a write while twice the write buffer is in use and nothing can be written back.
    pub(crate) fn check_write_buffer(&self) -> Result<()> {
        if self.is_overrun() { self.throttle_writer() } else { Ok(()) }
    }

    pub(super) fn is_overrun(&self) -> bool {
        self.marks.is_overrun(self.dirty.pool().dirty_bytes())
    }

    /// Writes dirty data back when the write buffer passes a mark: see `throttle`.
    pub(crate) fn throttle_writer(&self) -> Result<()> {
        if self.limits.has_log_thread {
            return self.shrink_overrun();
        }
        let pool = self.dirty.pool();
        if !self.marks.is_high(self.dirty.block_count(), pool.dirty_bytes()) {
            return Ok(());
        }
        let must_wait = self.marks.is_full(pool.dirty_bytes());
        let log = if must_wait { Some(self.log.lock()) } else { self.log.try_lock() };
        let Some(mut log) = log else { return Ok(()) };
        let selection = Selection::Largest(self.marks.write_back_blocks());
        loop {
            let before = self.dirty.block_count();
            let attempts = if self.is_overrun() { NODE_READS_MAX } else { 1 };
            let outcome = self.commit_with_retries(&mut log, &selection, attempts);
            // The data of this writer is in the buffer, and an error may concern other files: an error
            // matters only when the buffer is overrun or writing has stopped.
            if self.is_overrun() || self.health.has_stopped() {
                outcome.map_err(StepError::into_user_error)?;
            }
            // One write may be longer than the part that is written back at once.
            if !self.marks.is_full(pool.dirty_bytes()) || self.dirty.block_count() >= before {
                return Ok(());
            }
        }
    }

    /// Writes dirty data back while twice the write buffer is in use, one batch under each hold of the log.
    fn shrink_overrun(&self) -> Result<()> {
        while self.is_overrun() {
            let mut log = self.log.lock();
            // Another thread may have written back while this one waited.
            if !self.is_overrun() {
                break;
            }
            let before = self.dirty.block_count();
            let selection = Selection::Largest(self.blocks_at_once());
            let outcome = self.commit_with_retries(&mut log, &selection, NODE_READS_MAX);
            if self.is_overrun() || self.health.has_stopped() {
                outcome.map_err(StepError::into_user_error)?;
            }
            if self.dirty.block_count() >= before {
                break;
            }
        }
        Ok(())
    }

    /// Cleans for the `blocks` that a writer has put into the write buffer, if segments are short: until as much garbage
    /// is found as was written, in a few steps by its length, at most [`WRITER_STEPS_MAX`]. The next writers pay the rest.
    pub(crate) fn clean_for_writer(&self, blocks: u64) -> Result<()> {
        self.pace.note_write();
        let Some((urgency, garbage)) = self.shortage() else { return Ok(()) };
        if urgency < Urgency::Critical || self.cleaner.is_futile(garbage, Urgency::Critical) {
            self.pace.clear_debt();
            return Ok(());
        }
        if !self.pace.add_debt(blocks) {
            return Ok(());
        }
        let steps_max = (WRITER_STEPS_MIN + blocks / BLOCKS_PER_STEP).min(WRITER_STEPS_MAX);
        let mut round = self.cleaner.lock_round();
        let mut steps = 0;
        while self.pace.is_in_debt() && steps < steps_max && !self.health.has_stopped() {
            steps += 1;
            if let ReadStep::Read { garbage_blocks, blocks } = self.cleaner.read_step(&mut round) {
                self.pace.pay_debt(garbage_blocks, blocks);
                continue;
            }
            match self.finish_step_of_writer(&mut round) {
                Ok(true) if self.shortage().is_none_or(|(u, _)| u == Urgency::Critical) => {}
                Err(StepError::Failed(error)) if self.health.has_stopped() => return Err(error),
                // Segments are not short any more, or cleaning gains nothing. An error in blocks of other files does not
                // prevent this write.
                _ => self.pace.clear_debt(),
            }
        }
        if steps > 0 {
            self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns how urgent cleaning is, and the garbage; `None` if another thread changes metadata.
    pub(super) fn shortage(&self) -> Option<(Urgency, GarbageBlocks)> {
        let layout = &self.superblock.layout();
        let metadata = self.metadata.try_read()?;
        Some((urgency(layout, &metadata), garbage(layout, &metadata)))
    }

    /// Commits a part of the round of a writer; without one, releases the segments that were cleaned, which makes room for other
    /// victims. Returns whether to go on.
    fn finish_step_of_writer(&self, round: &mut CleaningRound) -> StepResult<bool> {
        if !round.is_empty() {
            self.commit_next_part(round)
        } else if self.metadata.read().usage.releasable_count() > 0 {
            self.release_drained_segments(&mut self.log.lock())
        } else {
            Ok(false)
        }
    }

    /// Makes room before metadata is changed: writes back when too much has changed for memory or
    /// for one delta, and reclaims when segments are short. Every change of metadata by a user
    /// calls this function first.
    pub(crate) fn before_change(&self) -> Result<()> {
        self.pace.note_change();
        self.health.check_writable()?;
        let (changes, dirty_nodes) = self.amount_of_changes();
        let checkpoint = checkpoint_due::before_change(dirty_nodes, self.limits.cache_bytes);
        if checkpoint_due::must_precede_change(dirty_nodes, self.limits.cache_bytes) {
            return self.wait_for_checkpoint();
        }
        if changes >= DELTA_CHANGES_MAX || checkpoint.is_some() {
            if changes < 2 * DELTA_CHANGES_MAX && self.leave_to_log_thread() {
                return self.keep_reserve();
            }
            let Some(mut log) = self.log.try_lock() else { return Ok(()) };
            return ignore_shortage(match checkpoint {
                Some(reason) => self.checkpoint(&mut log, reason),
                None => self.commit(&mut log, &Selection::Files(Default::default())),
            });
        }
        self.keep_reserve()
    }

    /// Waits for the log, and writes a checkpoint unless another thread has done so meanwhile.
    fn wait_for_checkpoint(&self) -> Result<()> {
        let mut log = self.log.lock();
        let dirty_nodes = self.metadata.read().tree.dirty_count();
        match checkpoint_due::before_change(dirty_nodes, self.limits.cache_bytes) {
            Some(reason) => ignore_shortage(self.checkpoint(&mut log, reason)),
            None => Ok(()),
        }
    }

    /// Reclaims before more nodes are dirty than a checkpoint could write. Does not wait for a
    /// thread that holds the log, unless the reserve is used up.
    fn keep_reserve(&self) -> Result<()> {
        let log = match self.reserve_state() {
            ReserveState::Enough => return Ok(()),
            ReserveState::Low if self.leave_to_log_thread() => return Ok(()),
            ReserveState::Low => self.log.try_lock(),
            ReserveState::UsedUp => Some(self.log.lock()),
        };
        let Some(mut log) = log else { return Ok(()) };
        ignore_shortage(self.reclaim(&mut log).map(drop))
    }

    /// Commits everything and writes a checkpoint after which a copy of the device is like an unmounted volume.
    pub(crate) fn commit_for_freeze(&self, log: &mut LogState) -> Result<()> {
        self.commit(log, &Selection::All).map_err(StepError::into_user_error)?;
        self.log.flush(log)?;
        let checkpoint = self.checkpoint_with_reclaim(log, CheckpointReason::Freeze);
        checkpoint.map_err(StepError::into_user_error)
    }

    /// Writes a checkpoint that tells that the volume is in use again.
    pub(crate) fn checkpoint_for_thaw(&self, log: &mut LogState) -> Result<()> {
        let checkpoint = self.checkpoint_with_reclaim(log, CheckpointReason::Thaw);
        checkpoint.map_err(StepError::into_user_error)
    }

    /// Commits everything and writes the last checkpoint before an unmount. Damage in some files
    /// keeps no other file from being written; nodes that the device fails to read are read again
    /// often enough.
    pub(crate) fn commit_for_unmount(&self, log: &mut LogState) -> Result<()> {
        // Each dirty file may need two nodes: a leaf and its parent.
        let nodes = 1 + 2 * self.dirty.file_count();
        let committed = self.commit_with_retries(log, &Selection::All, NODE_READS_MAX * nodes);
        let committed = committed.map_err(StepError::into_user_error);
        committed.inspect_err(|error| self.health.note_blocked(error))?;
        self.log.order(log)?;
        let checkpoint = self.checkpoint_with_reclaim(log, CheckpointReason::Unmount);
        checkpoint.map_err(StepError::into_user_error)
    }
}
