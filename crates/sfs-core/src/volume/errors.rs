//! The errors that a volume meets: they are counted, remembered, and may end writing.
//!
//! Owns: the counts, which each checkpoint takes along, and the note of the error that ended writing.
//! Promises: counting waits for no device request. The error that ended writing is written to the superblock
//! once, as far as the device does it, and under no lock that a reader waits for.
//! Never: causes a checkpoint for an error of a kind that has occurred before.

use parking_lot::Mutex;
use sfs_device::{Block, DeviceError};

use super::Volume;
use crate::format::{
    Corruption, ErrorCounts, ErrorKind, Extensions, Failure, Occurrence, Remembered,
};
use crate::request::ErrorReaction;
use crate::{Error, Result};

/// The errors that a volume has met.
#[derive(Debug, Default)]
pub(super) struct Errors(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    remembered: Remembered,
    /// A kind has occurred for the first time, and no checkpoint has tried to say so.
    has_news: bool,
    /// The mount is for writing, and has begun.
    has_begun: bool,
    /// The failure in `remembered` is not in the superblock, and nobody has tried to write it.
    failure_waits: bool,
}

impl Errors {
    /// Takes over what earlier mounts have met.
    pub(super) fn new(extensions: &Extensions, failure: Option<Failure>) -> Self {
        let errors = ErrorCounts::of(extensions);
        let is_damaged = errors.is_none();
        let remembered = Remembered { errors: errors.unwrap_or_default(), failure, is_damaged };
        Self(Mutex::new(State { remembered, ..State::default() }))
    }

    /// Puts the counts into the `extensions` of a checkpoint that is to be written.
    pub(super) fn put_into(&self, extensions: &mut Extensions) {
        let mut state = self.0.lock();
        state.has_news = false;
        state.remembered.errors.put_into(extensions);
    }

    /// Returns whether a kind has occurred for the first time since the last checkpoint was tried.
    pub(super) fn has_news(&self) -> bool {
        self.0.lock().has_news
    }

    /// What is new is no reason for another checkpoint: one is tried.
    pub(super) fn forget_news(&self) {
        self.0.lock().has_news = false;
    }

    /// From now on no error is written to the superblock.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        state.has_begun = false;
        state.failure_waits = false;
    }

    /// From now on an error may be written to the superblock.
    pub(super) fn begin(&self) {
        self.0.lock().has_begun = true;
    }
}

impl Volume {
    /// Returns the errors that were met on this volume, in this mount and before, since `sfs-fsck` has last
    /// found it sound.
    pub fn remembered(&self) -> Remembered {
        self.errors.0.lock().remembered.clone()
    }

    /// Counts an error of `kind` at `at`.
    pub(super) fn note_error(&self, kind: ErrorKind, at: u64) {
        let secs = self.clock.seconds();
        let mut state = self.errors.0.lock();
        let is_first = state.remembered.errors.note(kind, Occurrence { secs, at });
        state.has_news |= is_first;
        let ends_writing =
            kind.is_corruption() && self.options.on_error == ErrorReaction::RemountReadOnly;
        if ends_writing && state.has_begun {
            state.fail(Failure { kind, at, secs });
            drop(state);
            self.stop();
        }
    }

    /// Counts `error` if it is the fault of the image or the device, and gives it back.
    pub(super) fn counted(&self, error: Error) -> Error {
        match &error {
            Error::Corrupt(damage) => self.note_corruption(damage),
            Error::Device(error) => self.note_device_error(error),
            _ => {}
        }
        error
    }

    /// Counts `damage`.
    pub(super) fn note_corruption(&self, damage: &Corruption) {
        self.note_error(ErrorKind::of_corruption(damage), damage.location.number());
    }

    pub(super) fn note_device_error(&self, error: &DeviceError) {
        if let Some((kind, at)) = ErrorKind::of_device(error) {
            self.note_error(kind, at);
        }
    }

    /// Reads blocks from the device, and counts it if that fails.
    pub(super) fn read_device(&self, address: u64, blocks: &mut [Block]) -> Result<()> {
        self.device.read(address, blocks).map_err(|error| self.counted(error.into()))
    }

    /// The device did not do what it must: nothing is written any more (durability contract,
    /// sentence 6), but for the note of it. What is in memory can still be read.
    pub(super) fn fail(&self, error: DeviceError) -> Error {
        self.stop();
        self.note_device_error(&error);
        if let Some((kind, at)) = ErrorKind::of_device(&error) {
            self.note_failure(kind, at);
        }
        error.into()
    }

    /// There can be no checkpoint because of `error`: that goes to the superblock if it is damage.
    pub(super) fn note_blocked(&self, error: &Error) {
        if let Error::Corrupt(damage) = error {
            self.note_failure(ErrorKind::of_corruption(damage), damage.location.number());
        }
    }

    fn note_failure(&self, kind: ErrorKind, at: u64) {
        let secs = self.clock.seconds();
        self.errors.0.lock().fail(Failure { kind, at, secs });
    }

    /// Gives `outcome` back, after the failure that waits for it has been written to the superblock, if the
    /// device takes it. To be called without a lock.
    pub(super) fn with_failure_written<T>(&self, outcome: T) -> T {
        self.write_failure();
        outcome
    }

    fn write_failure(&self) {
        let mut state = self.errors.0.lock();
        if !std::mem::take(&mut state.failure_waits) {
            return;
        }
        let failure = state.remembered.failure;
        drop(state);
        let change = |superblock: &mut crate::format::Superblock| superblock.failure = failure;
        let noted = self.superblocks.lock().change(&*self.device, change);
        if let Err(Error::Device(error)) = noted {
            self.fail(error);
        }
    }
}

impl State {
    /// The first failure is kept: later ones may follow from it.
    fn fail(&mut self, failure: Failure) {
        if self.has_begun && self.remembered.failure.is_none() {
            self.remembered.failure = Some(failure);
            self.failure_waits = true;
        }
    }
}
