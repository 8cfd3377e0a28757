//! Answers to requests for work on a mounted volume: cleaning, defragmentation, trimming, a checkpoint. Each does a bounded part.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use sfs_core::request::TrimRange;
use sfs_core::{Error, Trim};

use super::handler::ControlHandler;
use crate::exit_error::ExitError;
use crate::inspect::asked_work::{CheckpointReport, CleanPart, DefragPart, TrimPart};

/// Time after which a part of a trim ends.
const TRIM_PART: Duration = Duration::from_millis(200);

/// Longest pause between two steps, of which each is followed by a pause as long as itself, so that the device serves
/// others at least half of the time.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Longest time that a step of a defragmentation waits for users' requests to pause.
const YIELD_MAX: Duration = Duration::from_millis(50);

/// Time between two looks whether users make requests.
const YIELD: Duration = Duration::from_millis(5);

impl ControlHandler {
    /// Writes a checkpoint.
    pub(super) fn checkpoint(&self) -> Result<CheckpointReport, ExitError> {
        let _is_over = self.keep_changeable()?;
        let checkpoint = || self.volume.now().checkpoint().map_err(|error| self.refusal(&error));
        let written = self.recorded(checkpoint)?;
        self.waker.note();
        Ok(written.into())
    }

    /// Cleans up to `segments_max` segments, in one round. An unmount ends the round between two steps.
    pub(super) fn clean(&self, segments_max: u32) -> Result<CleanPart, ExitError> {
        let _is_over = self.keep_changeable()?;
        let mut step = Instant::now();
        let mut goes_on = || {
            std::thread::sleep(step.elapsed().min(PAUSE_MAX));
            step = Instant::now();
            !self.is_ending.load(Ordering::Acquire)
        };
        let round = self.volume.now().clean_round(segments_max.max(1), &mut goes_on);
        if self.is_ending.load(Ordering::Acquire) {
            return Err(self.is_unmounting());
        }
        let round = round.map_err(|error| self.refusal(&error))?;
        self.waker.note();
        Ok(round.map(CleanPart::from).unwrap_or_default())
    }

    /// Puts the next part of a file in order, from block `from` on. An unmount ends the part between two steps.
    pub(super) fn defragment(&self, inode: u64, from: u32) -> Result<DefragPart, ExitError> {
        let _is_over = self.keep_changeable()?;
        let mut step = Instant::now();
        let volume = self.volume.now();
        let mut requests = volume.request_count();
        let mut goes_on = || {
            std::thread::sleep(step.elapsed().min(PAUSE_MAX));
            let end = Instant::now() + YIELD_MAX;
            while Instant::now() < end {
                let now = volume.request_count();
                if std::mem::replace(&mut requests, now) == now {
                    break;
                }
                std::thread::sleep(YIELD);
            }
            step = Instant::now();
            !self.is_ending.load(Ordering::Acquire)
        };
        let part = volume.defragment(inode, from, &mut goes_on);
        if self.is_ending.load(Ordering::Acquire) {
            return Err(self.is_unmounting());
        }
        let part = part.map_err(|error| self.defrag_refusal(inode, &error))?;
        self.waker.note();
        Ok(part.into())
    }

    fn defrag_refusal(&self, inode: u64, error: &Error) -> ExitError {
        let device = &self.device;
        match error {
            Error::NotFound => {
                ExitError::usage(format_args!("there is no file with inode {inode}"))
            }
            Error::Invalid => ExitError::usage(format_args!(
                "inode {inode} is no regular file, and only those have blocks"
            )),
            Error::NotSupported => ExitError::mount(format_args!(
                "{device}: overwrites data in place, so its files keep the order in which they were first written; \
                 nothing to do"
            )),
            Error::NoSpace => ExitError::mount(format_args!(
                "{device}: is too full to move data; delete something first"
            )),
            Error::Corrupt(_) | Error::Device(_) if !self.volume.now().is_read_only() => {
                ExitError::damage(format_args!("inode {inode}: {error}"))
            }
            error => self.refusal(error),
        }
    }

    /// Discards free segments from byte `start` of the device on.
    pub(super) fn trim(&self, start: u64) -> Result<TrimPart, ExitError> {
        let device = &self.device;
        drop(self.keep_changeable()?);
        let Some(_alone) = self.trimming.try_lock() else {
            return Err(ExitError::mount(format_args!("{device}: is being trimmed already")));
        };
        let range = TrimRange { start, len: u64::MAX, least: 0 };
        let volume = self.volume.now();
        let mut trim: Trim = volume.begin_trim(&range).map_err(|error| match error {
            Error::NotSupported => ExitError::mount(format_args!("{device}: cannot discard")),
            error => self.refusal(&error),
        })?;
        let (end, mut bytes) = (Instant::now() + TRIM_PART, 0);
        loop {
            let begun = Instant::now();
            let step = {
                let _is_over = self.keep_changeable()?;
                volume.trim_step(&mut trim).map_err(|error| self.refusal(&error))?
            };
            let Some(discarded) = step else { return Ok(TrimPart { bytes, next: None }) };
            bytes += discarded;
            std::thread::sleep(begun.elapsed().min(PAUSE_MAX));
            if Instant::now() >= end {
                let next = volume.trim_position(&trim);
                return Ok(TrimPart { bytes, next: Some(next) });
            }
        }
    }

    /// Checks that the volume may be written to. It can be neither frozen nor unmounted while the returned value lives.
    pub(super) fn keep_changeable(&self) -> Result<MutexGuard<'_, bool>, ExitError> {
        let device = &self.device;
        if self.is_ending.load(Ordering::Acquire) {
            return Err(self.is_unmounting());
        }
        self.follow_remount()?;
        let is_over = self.keep_mounted()?;
        if self.volume.now().is_read_only()
            || self.mount()?.is_some_and(|mount| mount.is_read_only())
        {
            return Err(ExitError::mount(format_args!("{device}: is mounted read-only")));
        }
        if self.freezer.is_frozen() {
            return Err(ExitError::mount(format_args!("{device}: is frozen; thaw it first")));
        }
        Ok(is_over)
    }
}
