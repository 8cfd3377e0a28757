//! The checkpoints of a resize.
//!
//! Before the superblock has the new layout, both slots of the old layout and both slots of the new one lead to the
//! same checkpoint, whose usage table has the segments that are in both layouts. Whichever superblock a crash leaves,
//! a mount finds all data.

use super::control::{SpaceControl, StepResult};
use crate::Result;
use crate::format::{CheckpointRecord, Layout, USAGE_PER_ITEM, usage_key};
use crate::log::LogState;
use crate::metadata::Metadata;
use crate::mutant::{Mutant, mutated};
use crate::reserves::{COMMIT_SEGMENTS, ChangesAhead, checkpoint_segments, cleaning_segments};
use crate::writeback::{CheckpointReason, Shortage, StepError};

/// Number of rounds in a row that may move nothing, each with a checkpoint, before a segment counts as one that cannot be
/// emptied.
const FRUITLESS_ROUNDS_MAX: u32 = 4;

/// Number of Clean segments beyond those of a checkpoint: the segment of its head is closed, and may have just been opened.
const CHECKPOINT_SPARE: usize = 2;

impl SpaceControl {
    /// Moves everything out of the segments from `first` on. They are Clean afterwards, durably, and none of them is
    /// opened.
    pub(crate) fn empty_from(&self, log: &mut LogState, first: u32) -> StepResult<()> {
        // Between the two calls nothing may be written, so segments are not reclaimed there.
        let mut has_room = self.has_room_before(first);
        for _ in 0..FRUITLESS_ROUNDS_MAX {
            if !has_room {
                self.reclaim(log)?;
                self.checkpoint_with_reclaim(log, CheckpointReason::Emptying)?;
                has_room = self.has_room_before(first);
            }
        }
        if !has_room {
            return Err(Shortage.into());
        }
        self.metadata.write().usage.withhold(first);
        self.checkpoint_or_stop(log, CheckpointReason::Emptying)?;
        let (mut least, mut fruitless) = (u64::MAX, 0);
        loop {
            let (segments, blocks) = {
                let metadata = self.metadata.read();
                let in_use = metadata.usage.withheld_in_use();
                in_use.fold((0, 0), |(count, sum), (_, entry)| {
                    (count + 1, sum + u64::from(entry.live_blocks))
                })
            };
            if segments == 0 {
                return self.reclaim_for_shrunk(log, first);
            }
            let left = segments + blocks;
            fruitless = if left < least { 0 } else { fruitless + 1 };
            least = least.min(left);
            if fruitless > FRUITLESS_ROUNDS_MAX {
                return Err(Shortage.into());
            }
            let mut round = self.cleaner.read_withheld(self.head_room_blocks(log));
            match self.commit_round(log, &mut round) {
                Err(StepError::Shortage(Shortage)) => drop(self.reclaim(log)?),
                other => drop(other?),
            }
            // Nodes are moved, and emptied segments become Clean.
            self.checkpoint_with_reclaim(log, CheckpointReason::Emptying)?;
        }
    }

    /// Makes segments Clean until those before `first` have what commits and cleaning need. A smaller volume without that could
    /// neither be written nor cleaned.
    fn reclaim_for_shrunk(&self, log: &mut LogState, first: u32) -> StepResult<()> {
        let has_reserve = || {
            let metadata = self.metadata.read();
            let reserve =
                cleaning_segments(&self.superblock.layout(), &metadata, ChangesAhead::NONE);
            clean_before(&metadata, first) >= reserve + COMMIT_SEGMENTS
        };
        for _ in 0..FRUITLESS_ROUNDS_MAX {
            if has_reserve() {
                return Ok(());
            }
            self.reclaim(log)?;
            self.checkpoint_with_reclaim(log, CheckpointReason::Emptying)?;
        }
        if has_reserve() { Ok(()) } else { Err(Shortage.into()) }
    }

    /// Returns whether a checkpoint certainly fits into the Clean segments before `first`.
    fn has_room_before(&self, first: u32) -> bool {
        let metadata = self.metadata.read();
        let clean = clean_before(&metadata, first);
        let layout = &self.superblock.layout();
        // Entries of all the segments behind may change.
        let leaves = (layout.segment_count - first).div_ceil(USAGE_PER_ITEM) as usize;
        clean
            > checkpoint_segments(layout, &metadata, ChangesAhead::of_leaves(leaves))
                + CHECKPOINT_SPARE
    }

    /// Writes a checkpoint that must come next. Without room for it writing ends, and the last checkpoint stays valid.
    fn checkpoint_or_stop(&self, log: &mut LogState, reason: CheckpointReason) -> StepResult<()> {
        let written = self.checkpoint(log, reason);
        if matches!(written, Err(StepError::Shortage(Shortage))) {
            self.health.shut_down();
        }
        written
    }

    /// Removes the usage items of the segments that `from` had and the present layout has not.
    pub(crate) fn drop_usage_items(&self, from: &Layout) -> Result<()> {
        let items = |segments: u32| segments.div_ceil(USAGE_PER_ITEM);
        let present = self.superblock.layout().segment_count;
        for item in items(present)..items(from.segment_count) {
            let key = usage_key(item * USAGE_PER_ITEM);
            self.metadata.update(|metadata| {
                metadata.tree.remove(&key)?;
                metadata.tree.prune();
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Gives withheld segments back to a volume that is not shrunk.
    pub(crate) fn give_back(&self, log: &mut LogState) -> StepResult<()> {
        // The checkpoint takes the metadata.
        let segments = self.metadata.write().usage.give_back(log.next_sequence);
        if segments.is_empty() {
            return Ok(());
        }
        self.checkpoint_or_stop(log, CheckpointReason::Emptying)
    }

    /// Makes the number of the next checkpoint even. Its record then goes to slot 0, which has the same place in every layout, and the
    /// checkpoint before it stays in slot 1 of the old layout (decision 43).
    pub(crate) fn make_next_even(&self, log: &mut LogState) -> StepResult<()> {
        // Without room, another checkpoint comes first.
        for _ in 0..FRUITLESS_ROUNDS_MAX {
            if !log.checkpoint.is_multiple_of(2) {
                return Ok(());
            }
            self.checkpoint_with_reclaim(log, CheckpointReason::Emptying)?;
        }
        if log.checkpoint.is_multiple_of(2) { Err(Shortage.into()) } else { Ok(()) }
    }

    /// Writes a checkpoint of the present state that is found with the present layout and with `next`.
    pub(crate) fn checkpoint_for_resize(
        &self,
        log: &mut LogState,
        next: &Layout,
        nonce: u64,
    ) -> StepResult<()> {
        let reason = CheckpointReason::Resizing { nonce };
        let (record, released) = match self.checkpointer.checkpoint_record(log, reason) {
            // A volume that shrinks has its new usage table already: no other checkpoint may come first.
            Err(StepError::Shortage(Shortage)) if *next == self.superblock.layout() => {
                self.health.shut_down();
                return Err(Shortage.into());
            }
            Err(StepError::Shortage(Shortage)) if self.reclaim(log)? => {
                self.checkpointer.checkpoint_record(log, reason)?
            }
            other => other?,
        };
        self.discards.add(&released);
        let second = CheckpointRecord { number: record.number + 1, ..record.clone() };
        log.checkpoint = second.number;
        let (even, odd) =
            if record.number.is_multiple_of(2) { (record, second) } else { (second, record) };
        // Slot 0 has the same place in both layouts. The other slot of the old layout stays as it is.
        if even.number == log.checkpoint {
            self.checkpointer.write_record_to(&even, next)?;
        }
        if !mutated(Mutant::ResizeSlotForgotten) {
            self.checkpointer.write_record_to(&odd, next)?;
        }
        Ok(())
    }
}

/// Returns the number of Clean segments before `first`.
fn clean_before(metadata: &Metadata, first: u32) -> usize {
    metadata.usage.clean().filter(|segment| *segment < first).count()
}
