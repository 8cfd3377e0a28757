//! Space control: runs commits, checkpoints, cleaning and release, and reclaims segments.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::admission::Admission;
use super::cleaning_pace::CleaningPace;
use super::log_work::LogWork;
use super::outlook::Outlook;
use super::reading_in_order::IdleDefragmentation;
use super::throttle::WriteBufferMarks;
use crate::clean::watermarks::is_checkpoint_worthwhile;
use crate::clean::{Cleaner, CleaningObserver, Discards, StallDetector};
use crate::counters::AtomicCounters;
use crate::files::{DirtyData, Orphans};
use crate::format::{Head, Layout, SEGMENTS_MIN};
use crate::health::{Health, OpenSuperblock};
use crate::log::{Batch, LogState, LogWriter};
use crate::metadata::MetadataStore;
use crate::request::{Space, VolumeOptions};
use crate::reserves::free_segments;
use crate::writeback::data_layout::LayoutBehaviour;
use crate::writeback::{
    BatchBuilder, CheckpointReason, Checkpointer, CommitRequest, Committer, Merging, Progress,
    Selection, Shortage, StepError, spare_blocks,
};
use crate::{Error, Result};

/// Result of a step that may lack segments.
pub(super) type StepResult<T> = std::result::Result<T, StepError>;

/// Runs every step that writes to the log.
pub(crate) struct SpaceControl {
    pub(super) superblock: Arc<OpenSuperblock>,
    pub(super) metadata: Arc<MetadataStore>,
    pub(super) dirty: Arc<DirtyData>,
    pub(super) log: Arc<LogWriter>,
    pub(super) health: Arc<Health>,
    pub(super) counters: Arc<AtomicCounters>,
    pub(super) builder: Arc<BatchBuilder>,
    pub(super) orphans: Arc<Orphans>,
    pub(super) cleaner: Cleaner,
    pub(super) discards: Discards,
    pub(super) admission: Admission,
    pub(super) pace: CleaningPace,
    pub(super) marks: WriteBufferMarks,
    pub(super) limits: Limits,
    pub(super) idle_defragmentation: IdleDefragmentation,
    pub(super) log_work: LogWork,
    behaviour: Arc<dyn LayoutBehaviour>,
    committer: Committer,
    pub(super) checkpointer: Arc<Checkpointer>,
}

/// Mount options that space control obeys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) cache_bytes: usize,
    pub(super) checkpoint_interval: Duration,
    pub(super) yield_cleaning: bool,
    pub(super) wear_levelling: Option<u16>,
    pub(super) has_log_thread: bool,
}

/// Components that space control runs or reads.
pub(crate) struct SpaceControlParts {
    pub(crate) superblock: Arc<OpenSuperblock>,
    pub(crate) behaviour: Arc<dyn LayoutBehaviour>,
    pub(crate) metadata: Arc<MetadataStore>,
    pub(crate) dirty: Arc<DirtyData>,
    pub(crate) log: Arc<LogWriter>,
    pub(crate) health: Arc<Health>,
    pub(crate) counters: Arc<AtomicCounters>,
    pub(crate) builder: Arc<BatchBuilder>,
    pub(crate) committer: Committer,
    pub(crate) checkpointer: Arc<Checkpointer>,
    pub(crate) cleaner: Cleaner,
    pub(crate) discards: Discards,
    pub(crate) orphans: Arc<Orphans>,
}

impl SpaceControl {
    /// Returns the space control of the volume that `parts` belong to.
    pub(crate) fn new(parts: SpaceControlParts, options: &VolumeOptions) -> Self {
        let SpaceControlParts { superblock, behaviour, metadata, dirty, log, .. } = parts;
        let admission =
            Admission::new(superblock.clone(), behaviour.clone(), metadata.clone(), dirty.clone());
        Self {
            superblock,
            metadata,
            dirty,
            log,
            health: parts.health,
            counters: parts.counters,
            builder: parts.builder,
            orphans: parts.orphans,
            cleaner: parts.cleaner,
            discards: parts.discards,
            admission,
            pace: CleaningPace::default(),
            marks: WriteBufferMarks::new(options.write_buffer),
            log_work: LogWork::default(),
            limits: Limits {
                cache_bytes: options.cache,
                checkpoint_interval: options.checkpoint_interval,
                yield_cleaning: options.yield_cleaning,
                wear_levelling: options.wear_levelling,
                has_log_thread: options.has_log_thread,
            },
            idle_defragmentation: IdleDefragmentation::new(options.idle_defragmentation),
            behaviour,
            committer: parts.committer,
            checkpointer: parts.checkpointer,
        }
    }

    /// Returns the space of the volume as it will be once the dirty data is committed. Looks at
    /// every dirty file.
    pub(crate) fn space(&self) -> Space {
        self.space_beside(Outlook::of_all(&self.dirty, &self.metadata).blocks())
    }

    /// Returns the space of the volume if every dirty block takes a new block: a lower bound that
    /// needs no look at each dirty file.
    pub(crate) fn certain_space(&self) -> Space {
        self.space_beside(self.dirty.uncovered_count() as u64)
    }

    /// Returns the least number of segments that would hold the present content of the volume, dirty data included.
    pub(crate) fn least_segments(&self) -> u32 {
        let space = self.space();
        let used = space.total_blocks.saturating_sub(space.free_blocks);
        let layout = self.superblock.layout();
        let fits = |segment_count: u32| {
            let layout = Layout { segment_count, ..layout };
            let kept = self.behaviour.withheld_blocks(&layout);
            self.behaviour.capacity_blocks(&layout) >= used + kept
        };
        // The capacity grows with the segments.
        let (mut low, mut high) = (SEGMENTS_MIN, layout.segment_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if fits(middle) { high = middle } else { low = middle + 1 }
        }
        low
    }

    fn space_beside(&self, dirty_blocks: u64) -> Space {
        let metadata = self.metadata.read();
        let layout = &self.superblock.layout();
        let free = self.behaviour.free_blocks(layout, &metadata).saturating_sub(dirty_blocks);
        Space {
            total_blocks: self.behaviour.capacity_blocks(layout),
            free_blocks: free,
            available_blocks: free.saturating_sub(self.behaviour.withheld_blocks(layout)),
            files: metadata.file_count(),
        }
    }

    /// Commits the dirty data in `selection`: in one batch if it fits, otherwise in several, and reclaims segments
    /// between them. Groups share segments only where releasing segments has not sufficed. The commit flushes only to release
    /// segments.
    pub(crate) fn commit(&self, log: &mut LogState, selection: &Selection) -> StepResult<()> {
        let mut stall = StallDetector::default();
        let mut merging = self.merging();
        loop {
            let request = CommitRequest { merging, ..CommitRequest::of(selection) };
            match self.commit_batch(log, &request) {
                Ok(Progress::More) if !matches!(selection, Selection::Largest(_)) => {
                    stall = StallDetector::default();
                    merging = self.merging();
                }
                Ok(_) => return Ok(()),
                Err(StepError::Shortage(Shortage)) if merging == Merging::Never => {
                    self.counters.stalls.fetch_add(1, Ordering::Relaxed);
                    self.release_for_groups(log)?;
                    merging = Merging::IfShort;
                }
                Err(StepError::Shortage(Shortage)) => {
                    // Cleaning makes nodes dirty, and their checkpoint may take the segments that were
                    // gained. These segments are Clean again once the checkpoint is written.
                    let has_more = self.reclaim(log)?;
                    if !stall.note(self.spare_blocks()) && !has_more {
                        return Err(Shortage.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns when the groups of the next batch may share segments: not while Drained segments only wait for a flush or for
    /// a checkpoint that is worthwhile.
    pub(crate) fn merging(&self) -> Merging {
        let metadata = self.metadata.read();
        let can_release = metadata.usage.releasable_count() > 0
            || is_checkpoint_worthwhile(&self.superblock.layout(), &metadata);
        if can_release { Merging::Never } else { Merging::IfShort }
    }

    /// Makes the Drained segments Clean that a flush or a worthwhile checkpoint can release. If that fails, the groups of
    /// the next batch share segments: a failure is returned only if writing has stopped.
    pub(super) fn release_for_groups(&self, log: &mut LogState) -> StepResult<()> {
        let release = |log: &mut LogState| {
            self.release_drained_segments(log)?;
            if is_checkpoint_worthwhile(&self.superblock.layout(), &self.metadata.read()) {
                self.checkpoint(log, CheckpointReason::Shortage)?;
            }
            Ok(())
        };
        match release(log) {
            Err(StepError::Failed(error)) if self.health.has_stopped() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Commits the dirty data in `selection`, with up to `attempts` attempts if the device fails to read a node.
    pub(crate) fn commit_with_retries(
        &self,
        log: &mut LogState,
        selection: &Selection,
        attempts: usize,
    ) -> StepResult<()> {
        for _ in 1..attempts {
            let outcome = self.commit(log, selection);
            let is_device_error = matches!(outcome, Err(StepError::Failed(Error::Device(_))));
            if !is_device_error || self.health.has_stopped() {
                return outcome;
            }
        }
        self.commit(log, selection)
    }

    /// Commits one batch.
    pub(crate) fn commit_batch(
        &self,
        log: &mut LogState,
        request: &CommitRequest<'_>,
    ) -> StepResult<Progress> {
        let committed = self.committer.commit_once(log, request)?;
        self.discards.add(&committed.released);
        Ok(committed.progress)
    }

    /// Writes a checkpoint.
    pub(crate) fn checkpoint(
        &self,
        log: &mut LogState,
        reason: CheckpointReason,
    ) -> StepResult<()> {
        let released = self.checkpointer.checkpoint(log, reason)?;
        self.cleaner.reconsider_excluded(reason.is_shortage());
        self.discards.add(&released);
        Ok(())
    }

    /// Writes a checkpoint, and reclaims segments for it if they are short.
    pub(crate) fn checkpoint_with_reclaim(
        &self,
        log: &mut LogState,
        reason: CheckpointReason,
    ) -> StepResult<()> {
        match self.checkpoint(log, reason) {
            Err(StepError::Shortage(Shortage)) if self.reclaim(log)? => {
                self.checkpoint(log, reason)
            }
            other => other,
        }
    }

    /// Makes Drained segments Clean by a delta (decision 12), which needs no checkpoint. Returns whether more
    /// segments are Clean than before.
    pub(super) fn release_drained_segments(&self, log: &mut LogState) -> StepResult<bool> {
        let counts = || {
            let metadata = self.metadata.read();
            (metadata.usage.clean_count(), metadata.usage.releasable_count())
        };
        let (before, drained) = counts();
        // The first batch may have to encode the changes that drained the segments.
        for _ in 0..2 {
            if counts().0 > before || drained == 0 {
                break;
            }
            self.log.order(log)?;
            ignore_shortage(self.commit_batch(log, &CommitRequest::releasing()).map(drop))?;
        }
        Ok(counts().0 > before)
    }

    /// Makes the freeing of blocks in place durable, so that they can be used again. Returns whether any were
    /// waiting and all of them are free now.
    pub(super) fn settle_freed_blocks(&self, log: &mut LogState) -> StepResult<bool> {
        if !self.metadata.read().usage.has_pending_frees() {
            return Ok(false);
        }
        ignore_shortage(self.commit_batch(log, &CommitRequest::releasing()).map(drop))?;
        self.log.order(log)?;
        let mut metadata = self.metadata.write();
        metadata.usage.apply_durable_frees(log.flushed);
        Ok(!metadata.usage.has_pending_frees())
    }

    /// Makes segments Clean for a thread that cannot continue without them: by release, by
    /// cleaning, and by a checkpoint where nothing less helps. Returns whether more segments are
    /// Clean than before.
    pub(crate) fn reclaim(&self, log: &mut LogState) -> StepResult<bool> {
        self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        let clean = || self.metadata.read().usage.clean_count();
        let before = clean();
        if self.settle_freed_blocks(log)? || self.release_drained_segments(log)? {
            return Ok(true);
        }
        let mut stall = StallDetector::default();
        let mut has_retried = false;
        loop {
            let has_cleaned = self.gain_without_checkpoint(log, before, stall.is_stalling())?;
            let can_clean = has_cleaned || self.cleaner.waits_for_checkpoint();
            if clean() > before {
                return Ok(true);
            }
            // Without room for it, another round may gain some.
            ignore_shortage(self.checkpoint(log, CheckpointReason::Shortage))?;
            if clean() > before {
                return Ok(true);
            }
            if !can_clean || !stall.note(self.reclaimable_blocks(log)) {
                // Before a user is refused, a device that failed gets another chance.
                if has_retried || !self.cleaner.retry_failed_reads() {
                    return Ok(false);
                }
                has_retried = true;
            }
        }
    }

    /// Has cleaning rounds reported to `observer`.
    pub(crate) fn observe_cleaning(&self, observer: Arc<dyn CleaningObserver>) {
        self.cleaner.observe(observer);
    }

    /// Queues segments that were added to the volume for a discard.
    pub(crate) fn note_new_segments(&self, segments: &[u32]) {
        self.discards.add(segments);
    }

    /// Returns the batch builder.
    #[cfg(test)]
    pub(crate) fn builder(&self) -> &BatchBuilder {
        &self.builder
    }

    /// Returns the number of blocks that a user's commit certainly has room for.
    fn spare_blocks(&self) -> usize {
        spare_blocks(&*self.behaviour, &self.superblock.layout(), &self.metadata.read())
    }

    /// Returns the number of blocks that can be written after a checkpoint, including those in open segments.
    pub(super) fn reclaimable_blocks(&self, log: &LogState) -> usize {
        let layout = &self.superblock.layout();
        let heads =
            self.head_room_blocks(log) + Batch::head_room_blocks(log, layout, Head::METADATA);
        let metadata = self.metadata.read();
        let all = free_segments(&metadata) * Batch::segment_data_blocks(layout) + heads;
        all.saturating_sub(metadata.tree.dirty_count())
    }

    /// Returns the room in the open segments of data, in blocks.
    pub(super) fn head_room_blocks(&self, log: &LogState) -> usize {
        let heads = log.heads.iter().filter(|(head, _)| *head != Head::METADATA);
        heads.map(|(head, _)| Batch::head_room_blocks(log, &self.superblock.layout(), head)).sum()
    }
}

/// Turns a shortage into success, for a step that can be done later as well.
pub(super) fn ignore_shortage(outcome: StepResult<()>) -> Result<()> {
    match outcome {
        Err(StepError::Shortage(Shortage)) | Ok(()) => Ok(()),
        Err(StepError::Failed(error)) => Err(error),
    }
}
