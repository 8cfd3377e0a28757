//! Space control in the background: checkpoints that are due, release before segments are short, and cleaning.

use std::time::Duration;

use super::checkpoint_due::{self, SinceCheckpoint};
use super::control::{SpaceControl, ignore_shortage};
use crate::Result;
use crate::clean::watermarks::{self, Urgency, garbage, is_checkpoint_worthwhile, urgency};
use crate::clean::{CleaningRound, ReadStep, Trim};
use crate::log::LogState;
use crate::request::Work;
use crate::reserves::{clean_target_max_segments, clean_target_segments};
use crate::writeback::{CheckpointReason, StepError};

/// Time after which a cleaner that has yielded to users tries again.
pub(super) const YIELD: Duration = Duration::from_millis(5);

impl SpaceControl {
    /// Writes a checkpoint if one is due, `age_ms` after the last due one or the mount; otherwise releases segments
    /// before a thread has to wait for them. Returns whether a due checkpoint was written.
    pub(crate) fn checkpoint_if_due(&self, age_ms: i64) -> Result<bool> {
        let mut log = self.log.lock();
        let Some(reason) = self.due_checkpoint(&log, age_ms) else {
            self.release_if_due(&mut log)?;
            return Ok(false);
        };
        self.health.clear_new_kind();
        let checkpoint = self.checkpoint_with_reclaim(&mut log, reason);
        checkpoint.map_err(StepError::into_user_error)?;
        Ok(true)
    }

    /// Returns whether [`SpaceControl::checkpoint_if_due`] would write a checkpoint now.
    pub(crate) fn is_checkpoint_due(&self, age_ms: i64) -> bool {
        self.due_checkpoint(&self.log.lock(), age_ms).is_some()
    }

    fn due_checkpoint(&self, log: &LogState, age_ms: i64) -> Option<CheckpointReason> {
        let (dirty_nodes, pinned) = {
            let metadata = self.metadata.read();
            (metadata.tree.dirty_count(), metadata.usage.pinned_count())
        };
        let since = SinceCheckpoint {
            log_blocks: log.blocks_since_checkpoint,
            dirty_nodes,
            is_awaited: pinned > 0 || self.cleaner.waits_for_checkpoint(),
            has_new_error_kind: self.health.has_new_kind(),
            age_ms,
        };
        let interval = self.limits.checkpoint_interval;
        checkpoint_due::in_background(since, self.limits.cache_bytes, interval)
    }

    /// Makes Drained segments Clean before a thread has to wait for them. A release by a delta costs little, so it begins
    /// earlier than a checkpoint.
    fn release_if_due(&self, log: &mut LogState) -> Result<()> {
        let layout = &self.superblock.layout();
        let may_release = {
            let metadata = self.metadata.read();
            metadata.usage.clean_count() < clean_target_max_segments(layout, &metadata)
        };
        if may_release {
            self.release_drained_segments(log).map_err(StepError::into_user_error)?;
        }
        let is_due = {
            let metadata = self.metadata.read();
            metadata.usage.clean_count() < clean_target_segments(layout, &metadata)
                && is_checkpoint_worthwhile(layout, &metadata)
        };
        if is_due {
            ignore_shortage(self.checkpoint(log, CheckpointReason::PinnedSegments))
        } else {
            Ok(())
        }
    }

    /// Discards the next run of Clean segments; returns whether there was one.
    pub(crate) fn discard_step(&self) -> bool {
        self.discards.discard_run(&mut self.log.lock())
    }

    /// Queues segments that have become Clean for a discard.
    pub(crate) fn add_discards(&self, segments: &[u32]) {
        self.discards.add(segments);
    }

    /// Discards the next run of Clean segments of `trim`; returns the number of its bytes, `None` at the end.
    pub(crate) fn trim_step(&self, trim: &mut Trim) -> Option<u64> {
        self.discards.trim_run(&mut self.log.lock(), trim)
    }

    /// Does one step of background cleaning at time `now` in seconds since 1970, if segments are short and the cleaner does not have to
    /// yield to users. Returns the time to continue; `None` if there is nothing to clean.
    pub(crate) fn clean_step(&self, now: i64) -> Result<Option<Work>> {
        let layout = &self.superblock.layout();
        let (urgency, garbage_before) = {
            let metadata = self.metadata.read();
            (urgency(layout, &metadata), garbage(layout, &metadata))
        };
        let Some(mut round) = self.cleaner.try_lock_round() else { return Ok(None) };
        if urgency == Urgency::None && round.is_empty() {
            drop(round);
            return self.level_wear();
        }
        if self.may_yield(urgency, now) && self.pace.is_busy() {
            return Ok(Some(Work::Idle(YIELD)));
        }
        if urgency == Urgency::None {
            self.commit_part(&mut round)?;
            return Ok(Some(Work::More));
        }
        // A round that has begun is ended: its victims are kept from others.
        if round.is_empty() && self.cleaner.is_futile(garbage_before, urgency) {
            return Ok(None);
        }
        let (goes_on, may_wait) = match self.cleaner.read_step(&mut round) {
            ReadStep::Read { .. } => (true, true),
            ReadStep::RoundComplete => (self.commit_part(&mut round)?, false),
            ReadStep::NoVictim => (false, true),
        };
        if goes_on {
            return Ok(Some(Work::More));
        }
        // Rounds that gain nothing are futile even while other victims wait.
        if !(may_wait && self.cleaner.waits_for_checkpoint()) {
            let metadata = self.metadata.read();
            // Other threads may have released segments before the victim was chosen.
            let urgency = urgency.min(watermarks::urgency(layout, &metadata));
            self.cleaner.note_futile(garbage(layout, &metadata), urgency);
        }
        Ok(None)
    }

    /// Returns whether cleaning may wait for users. Below the steady watermark it waits only for readers, while nobody writes: a
    /// program that writes would have to clean itself.
    fn may_yield(&self, urgency: Urgency, now: i64) -> bool {
        let is_written = self.pace.is_written(now);
        let may_wait = match urgency {
            Urgency::None | Urgency::Background => true,
            Urgency::Steady | Urgency::Critical => !is_written,
        };
        self.limits.yield_cleaning && may_wait
    }

    /// Moves the data of the least used segment, if the mount options ask for static wear levelling and its wear is far behind.
    /// Others get the log between two batches.
    fn level_wear(&self) -> Result<Option<Work>> {
        let Some(bound) = self.limits.wear_levelling else { return Ok(None) };
        if self.limits.yield_cleaning && self.pace.is_busy() {
            return Ok(None);
        }
        let mut round = self.cleaner.read_least_used(bound);
        if round.is_empty() {
            return Ok(None);
        }
        match self.commit_in_parts(&mut round, &mut 0) {
            Ok(_) => Ok(Some(Work::More)),
            // Another attempt would lack segments, too.
            Err(StepError::Shortage(_)) => Ok(None),
            Err(StepError::Failed(error)) => Err(error),
        }
    }

    /// Commits a part of the round of the background; returns whether another part or round is worthwhile.
    fn commit_part(&self, round: &mut CleaningRound) -> Result<bool> {
        match self.commit_next_part(round) {
            Ok(goes_on) => Ok(goes_on),
            Err(StepError::Shortage(_)) => Ok(false),
            Err(StepError::Failed(error)) => Err(error),
        }
    }
}
