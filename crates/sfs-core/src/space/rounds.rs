//! Cleaning rounds: committing what the cleaner has read, whole or in bounded parts.

use std::sync::atomic::Ordering;

use super::control::{SpaceControl, StepResult};
use crate::clean::watermarks::garbage;
use crate::clean::{CleaningRound, StallDetector};
use crate::format::Group;
use crate::log::LogState;
use crate::reserves::reclaimable_segments;
use crate::writeback::{CheckpointReason, CommitRequest, Merging, MovedBlock, Shortage, StepError};

/// A part of a cleaning round that was committed.
pub(crate) struct CommittedPart {
    /// Number of bytes that were written to the device for it.
    pub(crate) device_bytes: u64,
    /// Whether another round is worthwhile, after the last part; `None` while parts are left.
    pub(crate) goes_on: Option<bool>,
}

impl SpaceControl {
    /// Cleans the emptiest segments until a delta can release one or `enough` segments are reclaimable, while there is space
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
        let moved_bytes = || self.counters.cleaning_bytes.load(Ordering::Relaxed);
        let before = moved_bytes();
        if let Err(error) = self.commit_moves(log, round.moves(), round.merges_groups) {
            self.cleaner.abandon(round);
            return Err(error);
        }
        // No other thread moves blocks while this one holds the log.
        Ok(self.end_round(log, round, moved_bytes() - before))
    }

    /// Commits the next part of a round, in a bounded batch, so that a sync waits for no more. If the commit fails, the victims
    /// stay as they are.
    pub(crate) fn commit_part_of_round(
        &self,
        round: &mut CleaningRound,
    ) -> StepResult<CommittedPart> {
        let part_blocks = self.batch_blocks();
        if !round.has_begun_committing() {
            self.sort_for_parts(round.moves_mut());
        }
        let moved_bytes = || self.counters.cleaning_bytes.load(Ordering::Relaxed);
        let device_bytes = || self.counters.device_bytes_written.load(Ordering::Relaxed);
        let mut log = self.log.lock();
        let (before, device_before) = (moved_bytes(), device_bytes());
        let count = round.moves().len().min(part_blocks);
        if let Err(error) =
            self.commit_moves(&mut log, &round.moves()[..count], round.merges_groups)
        {
            self.cleaner.abandon(round);
            return Err(error);
        }
        round.note_committed(count, moved_bytes() - before);
        let device_bytes = device_bytes() - device_before;
        let is_over = round.moves().is_empty();
        let goes_on = is_over.then(|| self.end_round(&log, round, round.moved_bytes()));
        Ok(CommittedPart { device_bytes, goes_on })
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

    /// Ends a round whose blocks were committed, `moved_bytes` of them; returns whether another round is worthwhile.
    fn end_round(&self, log: &LogState, round: &mut CleaningRound, moved_bytes: u64) -> bool {
        self.cleaner.report(round, moved_bytes);
        let garbage = garbage(&self.superblock.layout(), &self.metadata.read());
        self.cleaner.finish(round, garbage, self.reclaimable_blocks(log))
    }

    fn commit_moves(
        &self,
        log: &mut LogState,
        moves: &[MovedBlock],
        merges_groups: bool,
    ) -> StepResult<()> {
        let commit = |log: &mut LogState, merging: Merging| match moves {
            [] => Ok(()),
            moves => {
                let merging = if merges_groups { Merging::Always } else { merging };
                let request = CommitRequest { merging, ..CommitRequest::moving(moves) };
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
