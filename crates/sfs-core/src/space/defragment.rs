//! Putting a file in order on the device, one window at a time: the blocks of the window are read and verified like those
//! of a victim, and bounded batches move them, within their groups (decision 38).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use sfs_device::BLOCK_SIZE;

use super::control::{SpaceControl, StepResult, ignore_shortage};
use crate::clean::FileWindow;
use crate::clean::watermarks::{Urgency, urgency};
use crate::log::LogState;
use crate::request::DefragmentedPart;
use crate::writeback::{
    CheckpointReason, CommitRequest, MovedBlock, Selection, Shortage, StepError,
};
use crate::{Error, Result};

/// Number of windows that one part looks at.
const WINDOWS_MAX: usize = 16;

/// Number of victims of a round of cleaning that makes room for a window.
const VICTIMS_MAX: u32 = 8;

/// Number of rounds of cleaning that make room for a window.
const ROUNDS_MAX: usize = 4;

/// Number of attempts to move a window that lacks segments.
const ATTEMPTS: usize = 4;

impl SpaceControl {
    /// Puts the blocks of `ino` from block `from` on in order: looks at some windows, and moves at most one. `goes_on` is
    /// asked before each step of reading, and may pause; if it returns `false`, the part ends before the window that was begun. Adds to
    /// `device_bytes` what the device was written for it, also if the part fails.
    ///
    /// # Errors
    ///
    /// `NoSpace` if the volume has no room to move a window; otherwise the errors of reading and of a commit.
    pub(crate) fn defragment(
        &self,
        ino: u64,
        from: u32,
        goes_on: &mut dyn FnMut() -> bool,
        device_bytes: &mut u64,
    ) -> Result<DefragmentedPart> {
        let mut part = DefragmentedPart { next: Some(from), ..DefragmentedPart::default() };
        if from == 0 {
            self.commit_dirty_data_of(ino)?;
        }
        for _ in 0..WINDOWS_MAX {
            let Some(from) = part.next else { break };
            let window = self.cleaner.file_window(ino, from)?;
            let moved = match self.cleaner.is_in_order(&window) {
                true => None,
                false => match self.move_window(&window, goes_on, device_bytes)? {
                    Some(moved_blocks) => Some(moved_blocks),
                    None => break,
                },
            };
            let requests = window.reading().requests;
            part.next = window.next;
            part.blocks += window.block_count();
            part.requests_before += requests;
            let Some(moved_blocks) = moved else {
                part.requests_after += requests;
                continue;
            };
            part.requests_after += self.cleaner.file_window(ino, from)?.reading().requests;
            part.moved_blocks = moved_blocks;
            break;
        }
        part.device_bytes = *device_bytes;
        Ok(part)
    }

    /// Gives the dirty blocks of `ino` their places, so that they are put in order, too.
    fn commit_dirty_data_of(&self, ino: u64) -> Result<()> {
        let selection = Selection::Files(BTreeSet::from([ino]));
        self.commit(&mut self.log.lock(), &selection).map_err(StepError::into_user_error)
    }

    /// Moves the blocks of `window` in bounded batches, and returns their number; others get the log between two batches. `None`
    /// if `goes_on` has ended it. Adds to `device_bytes`.
    fn move_window(
        &self,
        window: &FileWindow,
        goes_on: &mut dyn FnMut() -> bool,
        device_bytes: &mut u64,
    ) -> Result<Option<u64>> {
        self.before_change()?;
        let moved_bytes = || self.counters.defragmentation_bytes.load(Ordering::Relaxed);
        let mut moved_blocks = 0;
        for attempt in 1..=ATTEMPTS {
            // Releasing segments is cheaper than cleaning: that is tried first.
            if !self.clean_for_window(attempt > 2, goes_on, device_bytes)? {
                return Ok(None);
            }
            let Some(mut moves) = self.cleaner.read_window(window, goes_on)? else {
                return Ok(None);
            };
            if moves.is_empty() {
                return Ok(Some(moved_blocks));
            }
            // Others get the log between two windows.
            if !goes_on() {
                return Ok(None);
            }
            self.sort_for_parts(&mut moves);
            let mut parts = moves.chunks(self.batch_blocks());
            let moved_all = parts.try_for_each(|part| {
                let mut log = self.log.lock();
                let before = moved_bytes();
                let outcome = self
                    .counting(device_bytes, || self.commit_part_of_window(&mut log, part, attempt));
                moved_blocks += (moved_bytes() - before) / BLOCK_SIZE as u64;
                outcome
            });
            match moved_all {
                Ok(()) => return Ok(Some(moved_blocks)),
                Err(StepError::Shortage(Shortage)) => {}
                Err(StepError::Failed(error)) => return Err(error),
            }
        }
        Err(Error::NoSpace)
    }

    /// Commits a part of a window in one batch. After a shortage, makes Drained segments Clean for the next attempt.
    fn commit_part_of_window(
        &self,
        log: &mut LogState,
        part: &[MovedBlock],
        attempt: usize,
    ) -> StepResult<()> {
        let outcome = self.commit_batch(log, &CommitRequest::defragmenting(part)).map(drop);
        if let Err(StepError::Shortage(Shortage)) = &outcome {
            self.free_segments_to_defragment(log, attempt)?;
        }
        outcome
    }

    /// Makes Drained segments Clean after a shortage: those that a flush or a worthwhile checkpoint releases, and after the
    /// first attempt those that any checkpoint releases.
    fn free_segments_to_defragment(&self, log: &mut LogState, attempt: usize) -> Result<()> {
        let freed = match attempt {
            1 => self.release_for_groups(log),
            _ => self.checkpoint_with_reclaim(log, CheckpointReason::Shortage),
        };
        ignore_shortage(freed)
    }

    /// Cleans while fewer segments are available than the low watermark, or one round with `at_least_once`. Adds the bytes
    /// written to `device_bytes`. Returns `false` if `goes_on` has ended the cleaning.
    fn clean_for_window(
        &self,
        at_least_once: bool,
        goes_on: &mut dyn FnMut() -> bool,
        device_bytes: &mut u64,
    ) -> Result<bool> {
        let mut has_ended = false;
        for round in 0..ROUNDS_MAX {
            let urgency = urgency(&self.superblock.layout(), &self.metadata.read());
            let is_forced = at_least_once && round == 0;
            if urgency == Urgency::None && !is_forced || self.health.has_stopped() {
                break;
            }
            let mut goes_on = || {
                has_ended = !goes_on();
                !has_ended
            };
            match self.clean_round(VICTIMS_MAX, &mut goes_on, device_bytes)? {
                Some(_) => {}
                None if has_ended => return Ok(false),
                None => break,
            }
        }
        Ok(true)
    }
}
