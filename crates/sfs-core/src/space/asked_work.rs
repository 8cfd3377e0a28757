//! Work that an administrator asks for: a checkpoint, and cleaning beyond what the watermarks ask for.

use sfs_device::BLOCK_SIZE;

use super::control::SpaceControl;
use crate::Result;
use crate::clean::{CleaningRound, ReadStep};
use crate::log::{Batch, LogState};
use crate::request::{CleanedRound, Counters, WrittenCheckpoint};
use crate::writeback::{CheckpointReason, Selection, StepError};

/// Largest number of blocks that a round may write for each block that it gains: beyond, it would wear the device for little.
const WRITTEN_PER_GAINED_MAX: u64 = 8;

impl SpaceControl {
    /// Commits everything, and writes a checkpoint. What is reported was written under one hold of the log, by this thread.
    pub(crate) fn checkpoint_now(&self, log: &mut LogState) -> Result<WrittenCheckpoint> {
        let (before, clean) = (self.counters.snapshot(), self.clean_segments());
        self.commit(log, &Selection::All).map_err(StepError::into_user_error)?;
        self.log.flush(log)?;
        let checkpoint = self.checkpoint_with_reclaim(log, CheckpointReason::Asked);
        checkpoint.map_err(StepError::into_user_error)?;
        let after = self.counters.snapshot();
        let written = |field: fn(&Counters) -> u64| field(&after) - field(&before);
        Ok(WrittenCheckpoint {
            number: log.checkpoint,
            data_bytes: written(|c| c.data_bytes),
            metadata_bytes: written(|c| c.metadata_bytes),
            summary_bytes: written(|c| c.summary_bytes),
            device_bytes: written(|c| c.device_bytes_written),
            released_segments: self.clean_segments().saturating_sub(clean),
        })
    }

    fn clean_segments(&self) -> u32 {
        self.metadata.read().usage.clean_count() as u32
    }

    /// Cleans a round of victims of the policy, at most `victims_max`, although segments need not be short. `goes_on` is asked
    /// before each step of reading, and may pause; if it returns `false`, nothing is moved. Then the round is committed in
    /// bounded batches, and others get the log between them. `None` if the victims are not worthwhile, `goes_on` has ended the
    /// round, or other threads have taken the segments that it needs. Adds to `device_bytes` what the device was written for it
    /// in any case.
    pub(crate) fn clean_round(
        &self,
        victims_max: u32,
        goes_on: &mut dyn FnMut() -> bool,
        device_bytes: &mut u64,
    ) -> Result<Option<CleanedRound>> {
        let mut round = CleaningRound::default();
        loop {
            if !goes_on() {
                self.cleaner.abandon(&mut round);
                return Ok(None);
            }
            match self.cleaner.read_step_of(&mut round, victims_max as usize) {
                ReadStep::Read { .. } => {}
                ReadStep::RoundComplete => break,
                ReadStep::NoVictim => return Ok(None),
            }
        }
        let segments = round.read_victims() as u32;
        let (moved_blocks, moved_nodes) = (round.moves().len() as u64, round.moved_nodes());
        if !self.is_worthwhile(segments, moved_blocks + moved_nodes) {
            self.cleaner.abandon(&mut round);
            return Ok(None);
        }
        let mut written_bytes = 0;
        let committed = self.commit_in_parts(&mut round, &mut written_bytes);
        *device_bytes += written_bytes;
        match committed {
            Ok(_) => {}
            Err(StepError::Shortage(_)) => return Ok(None),
            Err(StepError::Failed(error)) => return Err(error),
        }
        let emptied = u64::from(segments) * u64::from(self.superblock.layout().segment_blocks);
        let written = written_bytes / BLOCK_SIZE as u64 + moved_nodes;
        Ok(Some(CleanedRound {
            segments,
            moved_blocks,
            moved_nodes,
            device_bytes: written_bytes,
            gained_blocks: emptied.saturating_sub(written),
        }))
    }

    /// Returns whether moving `live` blocks out of `segments` segments gains enough for what it writes, summaries included.
    fn is_worthwhile(&self, segments: u32, live: u64) -> bool {
        let layout = &self.superblock.layout();
        let segment_blocks = u64::from(layout.segment_blocks);
        let written = live * segment_blocks / Batch::segment_data_blocks(layout) as u64;
        let gained = (u64::from(segments) * segment_blocks).saturating_sub(written);
        gained > 0 && gained * WRITTEN_PER_GAINED_MAX >= written
    }
}
