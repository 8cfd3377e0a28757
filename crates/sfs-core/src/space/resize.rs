//! The checkpoints of a resize.
//!
//! Before the superblock has the new layout, both slots of the old layout and both slots of the new one lead to the
//! same checkpoint, whose usage table has the segments that are in both layouts. Whichever superblock a crash leaves,
//! a mount finds all data.

use super::control::{SpaceControl, StepResult};
use crate::format::{CheckpointRecord, Layout};
use crate::log::LogState;
use crate::mutant::{Mutant, mutated};
use crate::writeback::{CheckpointReason, Shortage, StepError};

impl SpaceControl {
    /// Writes a checkpoint of the present state that is found with the present layout and with `next`.
    pub(crate) fn checkpoint_for_resize(
        &self,
        log: &mut LogState,
        next: &Layout,
        nonce: u64,
    ) -> StepResult<()> {
        let reason = CheckpointReason::Resizing { nonce };
        let (record, released) = match self.checkpointer.checkpoint_record(log, reason) {
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
