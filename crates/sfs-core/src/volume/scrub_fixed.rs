//! Scrub of the structures with a fixed place: copies of the superblock, checkpoint slots.
//!
//! The copies of the superblock are read under the lock that their changes take, which no request of a user waits for but those
//! that change the superblock. A slot that does not decode is read again under the lock of the log, as a checkpoint
//! may have been written meanwhile.

use sfs_device::{BLOCK_SIZE, Block};
use zerocopy::IntoBytes;

use super::Volume;
use crate::format::{CHECKPOINT_SLOT_BLOCKS, CheckpointRecord, ErrorKind};
use crate::request::{SCRUB_STEP_BLOCKS, ScrubDamage, ScrubStep};
use crate::{Error, Result};

impl Volume {
    /// Verifies the copies of the superblock and the checkpoint slots.
    pub(super) fn scrub_fixed(&self, memory: &mut [Block], step: &mut ScrubStep) {
        let (count, damaged) = self.superblocks.verify();
        step.counts.fixed_blocks += count;
        for (at, error) in damaged {
            Self::note_scrub_error(step, at, &error);
        }
        let memory = &mut memory[..CHECKPOINT_SLOT_BLOCKS as usize];
        for slot in 0..2 {
            step.counts.fixed_blocks += CHECKPOINT_SLOT_BLOCKS;
            let at = self.layout().slots[slot];
            let before = self.log.lock().checkpoint;
            match self.is_slot_sound(slot, memory) {
                Ok(true) => continue,
                Err(Error::Device(_)) | Ok(false) => {}
                Err(_) => continue,
            }
            let (again, is_same) = {
                let log = self.log.lock();
                (self.is_slot_sound(slot, memory), log.checkpoint == before)
            };
            match again {
                Ok(true) if is_same => self.health.note_error(ErrorKind::Retry, at),
                // A checkpoint was written meanwhile.
                Ok(true) => {}
                // A crash may have left the slot so, until the next mount for writing; the other one was loaded.
                Ok(false) if self.health.is_read_only() => {}
                Ok(false) => {
                    self.health.note_error(ErrorKind::Volume, at);
                    step.damage.push(ScrubDamage { kind: ErrorKind::Volume, at, owner: None });
                }
                Err(error) => Self::note_scrub_error(step, at, &error),
            }
        }
    }

    /// Returns whether checkpoint slot `slot` decodes, or was never written.
    fn is_slot_sound(&self, slot: usize, memory: &mut [Block]) -> Result<bool> {
        let at = self.layout().slots[slot];
        self.io.read_stored(at, memory)?;
        let bytes = memory.as_bytes();
        let record = CheckpointRecord::decode(bytes, self.superblock.volume(), at);
        let is_its = record.is_ok_and(|record| record.number % 2 == slot as u64);
        Ok(is_its || bytes[..BLOCK_SIZE].iter().all(|byte| *byte == 0))
    }
}

const _: () = assert!(SCRUB_STEP_BLOCKS >= 3 + 2 * CHECKPOINT_SLOT_BLOCKS as usize);
