//! Cleaning rounds: committing what the cleaner has read, whole or in bounded parts.

use std::sync::atomic::Ordering;

use super::checkpoint_due;
use super::control::{SpaceControl, StepResult};
use crate::clean::watermarks::{WORTHWHILE_SEGMENTS, garbage};
use crate::clean::{CleaningRound, StallDetector};
use crate::format::Group;
use crate::log::{Batch, LogState};
use crate::reserves::{has_cleaning_reserve, reclaimable_segments};
use crate::writeback::{CheckpointReason, CommitRequest, Merging, MovedBlock, Shortage, StepError};

/// Largest number of times that a thread that lacks segments cleans and releases before it writes a checkpoint.
const GAINS_MAX: usize = 8;

impl SpaceControl {
    /// Cleans and releases until more than `before` segments are Clean, or nothing is gained without a checkpoint. Returns whether
    /// any segment was cleaned.
    ///
    /// A victim that is more than half full gains a part of a segment, so one gain is seldom enough. With a checkpoint after each, its
    /// nodes would be most of what is written.
    pub(super) fn gain_without_checkpoint(
        &self,
        log: &mut LogState,
        before: usize,
        is_stalling: bool,
    ) -> StepResult<bool> {
        let enough = before + WORTHWHILE_SEGMENTS;
        let mut has_cleaned = false;
        let mut room = self.writable_blocks(log);
        for _ in 0..GAINS_MAX {
            let cleans = self.clean_until_reclaimable(log, enough, is_stalling)?;
            has_cleaned |= cleans;
            let releases = self.release_drained_segments(log)?;
            let room_before = std::mem::replace(&mut room, self.writable_blocks(log));
            let has_gained = cleans && releases && room > room_before;
            if !has_gained || self.ends_gaining(before) {
                break;
            }
        }
        Ok(has_cleaned)
    }

    /// Returns whether more than `before` segments are Clean, or a checkpoint has to come before more is cleaned: the reserve of
    /// cleaning is not left, or dirty nodes take much of the cache.
    fn ends_gaining(&self, before: usize) -> bool {
        let metadata = self.metadata.read();
        let dirty_nodes = metadata.tree.dirty_count();
        metadata.usage.clean_count() > before
            || !has_cleaning_reserve(&self.superblock.layout(), &metadata)
            || checkpoint_due::before_change(dirty_nodes, self.limits.cache_bytes).is_some()
    }

    /// Returns the number of blocks that can be written before anything is released.
    fn writable_blocks(&self, log: &LogState) -> usize {
        let clean = self.metadata.read().usage.clean_count();
        clean * Batch::segment_data_blocks(&self.superblock.layout()) + self.head_room_blocks(log)
    }

    /// Cleans until a delta can release one or `enough` segments are reclaimable, while there is space
    /// to clean into. Returns whether any segment was cleaned. Once a round gains no room, or from
    /// the first round on with `is_stalling`, rounds merge groups to use the room in open segments.
    pub(super) fn clean_until_reclaimable(
        &self,
        log: &mut LogState,
        enough: usize,
        is_stalling: bool,
    ) -> StepResult<bool> {
        let mut has_cleaned = false;
        let mut stall = StallDetector::default();
        let reclaimable = || reclaimable_segments(&self.superblock.layout(), &self.metadata.read());
        let can_release = || self.metadata.read().usage.releasable_count() > 0;
        while reclaimable() < enough
            && !(has_cleaned && can_release())
            && stall.note(self.reclaimable_blocks(log))
        {
            let mut round = self.cleaner.read_round(self.head_room_blocks(log));
            if round.is_empty() {
                break;
            }
            round.merges_groups = is_stalling || stall.is_stalling();
            let has_read_victim = round.has_read_victim();
            match self.commit_round(log, &mut round) {
                Ok(_) => has_cleaned |= has_read_victim,
                Err(StepError::Shortage(Shortage)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(has_cleaned)
    }

    /// Commits the blocks of a cleaning round under the hold of the log that a caller needs for more than the round; returns
    /// whether another round is worthwhile. If the commit fails, the victims stay as they are, and other rounds may take them.
    pub(super) fn commit_round(
        &self,
        log: &mut LogState,
        round: &mut CleaningRound,
    ) -> StepResult<bool> {
        self.commit_first(log, round, usize::MAX)?;
        Ok(self.end_round(log, round))
    }

    /// Commits a round in parts, and lets others have the log between two of them; returns whether another round is worthwhile.
    /// Adds to `device_bytes` what the device was written for it, also if a part fails. Then the victims stay as they are.
    pub(crate) fn commit_in_parts(
        &self,
        round: &mut CleaningRound,
        device_bytes: &mut u64,
    ) -> StepResult<bool> {
        loop {
            if let Some(goes_on) = self.commit_part_of_round(round, device_bytes)? {
                return Ok(goes_on);
            }
        }
    }

    /// Commits the next part of a round; returns whether another part or round is worthwhile. If the commit fails, the victims
    /// stay as they are.
    pub(super) fn commit_next_part(&self, round: &mut CleaningRound) -> StepResult<bool> {
        Ok(self.commit_part_of_round(round, &mut 0)?.unwrap_or(true))
    }

    /// Commits the next part of a round in a bounded batch, so that a sync waits for no more. Returns whether another round is
    /// worthwhile, after the last part; `None` while parts are left.
    fn commit_part_of_round(
        &self,
        round: &mut CleaningRound,
        device_bytes: &mut u64,
    ) -> StepResult<Option<bool>> {
        if !round.has_begun_committing() {
            self.sort_for_parts(round.moves_mut());
        }
        let mut log = self.log.lock();
        self.counting(device_bytes, || self.commit_first(&mut log, round, self.batch_blocks()))?;
        let is_over = round.moves().is_empty();
        Ok(is_over.then(|| self.end_round(&log, round)))
    }

    /// Commits the first `count` of the blocks that are left of a round, or all. If that fails, other rounds may take the victims.
    fn commit_first(
        &self,
        log: &mut LogState,
        round: &mut CleaningRound,
        count: usize,
    ) -> StepResult<()> {
        // No other thread moves blocks while this one holds the log.
        let moved_bytes = || self.counters.cleaning_bytes.load(Ordering::Relaxed);
        let before = moved_bytes();
        let count = round.moves().len().min(count);
        if let Err(error) = self.commit_moves(log, round, count) {
            self.cleaner.abandon(round);
            return Err(error);
        }
        round.note_committed(count, moved_bytes() - before);
        Ok(())
    }

    /// Runs `write` under the caller's hold of the log, and adds to `device_bytes` what the device was written by it, whether it
    /// has succeeded or not.
    pub(super) fn counting<T>(&self, device_bytes: &mut u64, write: impl FnOnce() -> T) -> T {
        let written = || self.counters.device_bytes_written.load(Ordering::Relaxed);
        let before = written();
        let outcome = write();
        *device_bytes += written() - before;
        outcome
    }

    /// Puts blocks that do not fit into one batch in order by group and owner: each batch would put only its own blocks in
    /// order.
    pub(super) fn sort_for_parts(&self, moves: &mut [MovedBlock]) {
        if moves.len() <= self.batch_blocks() {
            return;
        }
        let metadata = self.metadata.read();
        let group_of = |moved: &MovedBlock| {
            let segment = metadata.usage.segment_of(moved.address)?;
            metadata.usage.entry(segment).data_group()
        };
        moves.sort_by_cached_key(|moved| (group_of(moved).map(Group::index), moved.named));
    }

    /// Ends a round whose blocks were committed; returns whether another round is worthwhile.
    fn end_round(&self, log: &LogState, round: &mut CleaningRound) -> bool {
        self.cleaner.report(round, round.moved_bytes());
        let garbage = garbage(&self.superblock.layout(), &self.metadata.read());
        self.cleaner.finish(round, garbage, self.reclaimable_blocks(log))
    }

    fn commit_moves(
        &self,
        log: &mut LogState,
        round: &CleaningRound,
        count: usize,
    ) -> StepResult<()> {
        let commit = |log: &mut LogState, merging: Merging| match &round.moves()[..count] {
            [] => Ok(()),
            moves => {
                let merging = if round.merges_groups { Merging::Always } else { merging };
                let moving = CommitRequest::moving(moves, round.reserve());
                let request = CommitRequest { merging, ..moving };
                self.commit_batch(log, &request).map(drop)
            }
        };
        if self.merging() == Merging::Never {
            match commit(log, Merging::Never) {
                Err(StepError::Shortage(Shortage)) => self.release_for_groups(log)?,
                other => return other,
            }
        }
        match commit(log, Merging::IfShort) {
            Err(StepError::Shortage(Shortage)) => {
                // Other threads have taken segments since the victims were chosen; Drained segments
                // may replace them.
                if !self.release_drained_segments(log)? {
                    self.checkpoint(log, CheckpointReason::Shortage)?;
                }
                commit(log, Merging::IfShort)
            }
            other => other,
        }
    }
}
