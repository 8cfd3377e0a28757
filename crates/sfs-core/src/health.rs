//! Health of an open volume: the errors met so far, and whether writing has ended.
//!
//! Every component counts the errors of the image and of the device here, without waiting for a
//! device request. Each checkpoint stores the counts. The first failure that ends writing is also
//! recorded in the superblock, by [`SuperblockStore`] and outside all locks, as ext4 does. Writing
//! that has ended never resumes in this mount; reading continues.

mod open_superblock;
mod superblock_store;
mod superblocks;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;
use sfs_device::{Block, DeviceError};

use crate::format::{
    Corruption, ErrorCounts, ErrorKind, Extensions, Failure, Occurrence, Remembered, Timestamp,
    misplaced,
};
use crate::request::{ErrorReaction, VolumeOptions};
use crate::{Error, Result};

pub(crate) use open_superblock::OpenSuperblock;
pub(crate) use superblock_store::SuperblockStore;
pub(crate) use superblocks::SuperblockCopies;

/// Errors of a volume, and the end of writing.
#[derive(Debug)]
pub(crate) struct Health {
    record: Mutex<Record>,
    /// `true` if writing has ended: a write failed, or the volume was shut down.
    is_stopped: AtomicBool,
    /// `true` after [`Health::shut_down`].
    is_shut_down: AtomicBool,
    /// `true` if the volume was opened for reading, until [`Health::begin_writing`].
    is_read_only: AtomicBool,
    reaction: ErrorReaction,
    /// Time of the last background step, in seconds since 1970.
    now_secs: AtomicI64,
}

#[derive(Debug, Default)]
struct Record {
    remembered: Remembered,
    /// `true` if an error of a kind that never occurred before waits for a checkpoint.
    has_new_kind: bool,
    /// `true` if the mount is writable and complete: failures may be recorded in the superblock.
    records_failures: bool,
    /// `true` if the failure in `remembered` still has to be written to the superblock.
    failure_pending: bool,
}

impl Health {
    /// Continues the error counts that the last checkpoint stored in `extensions`, and the `failure` in the
    /// superblock.
    pub(crate) fn new(
        extensions: &Extensions,
        failure: Option<Failure>,
        options: &VolumeOptions,
    ) -> Self {
        let errors = ErrorCounts::of(extensions);
        let is_damaged = errors.is_none();
        let remembered = Remembered { errors: errors.unwrap_or_default(), failure, is_damaged };
        Self {
            record: Mutex::new(Record { remembered, ..Record::default() }),
            is_stopped: AtomicBool::new(false),
            is_shut_down: AtomicBool::new(false),
            is_read_only: AtomicBool::new(options.read_only),
            reaction: options.on_error,
            now_secs: AtomicI64::new(0),
        }
    }

    /// Sets the time that errors are recorded with.
    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now_secs.store(now.secs, Ordering::Relaxed);
    }

    /// Checks that the volume may be changed. As in ext4, the error after a failed write differs from the error after
    /// a shutdown.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] after a shutdown; [`Error::ReadOnly`] if the mount is read-only or a write has failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_shut_down.load(Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        if self.is_read_only() || self.has_stopped() {
            return Err(Error::ReadOnly);
        }
        Ok(())
    }

    /// Returns whether the volume was opened for reading and is not written since.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// Refuses changes until [`Health::begin_writing`].
    pub(crate) fn wait_to_write(&self) {
        self.is_read_only.store(true, Ordering::Release);
    }

    /// Allows changes of a volume that was opened for reading.
    pub(crate) fn begin_writing(&self) {
        self.is_read_only.store(false, Ordering::Release);
    }

    /// Checks that dirty data and metadata may be written back.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] even after a failed write: the data is lost, which must not look like a
    /// refused change.
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.has_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Returns whether writing has ended.
    pub(crate) fn has_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Ends writing, as if the power had failed now.
    pub(crate) fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
        {
            let mut record = self.record.lock();
            record.records_failures = false;
            record.failure_pending = false;
        }
        self.stop();
    }

    /// Ends writing, except for the record of the failure in the superblock.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Allows failures to be recorded in the superblock, once a writable mount is complete.
    pub(crate) fn begin_recording(&self) {
        self.record.lock().records_failures = true;
    }

    /// Returns the errors of this mount and of earlier ones, since `sfs-fsck` last found the volume sound.
    pub(crate) fn remembered(&self) -> Remembered {
        self.record.lock().remembered.clone()
    }

    /// Stores the counts in the `extensions` of a checkpoint that is about to be written.
    pub(crate) fn put_into(&self, extensions: &mut Extensions) {
        let mut record = self.record.lock();
        record.has_new_kind = false;
        record.remembered.errors.put_into(extensions);
    }

    /// Returns whether an error of a new kind waits for a checkpoint.
    pub(crate) fn has_new_kind(&self) -> bool {
        self.record.lock().has_new_kind
    }

    /// Forgets that an error of a new kind occurred: one checkpoint is attempted for it, not more.
    pub(crate) fn clear_new_kind(&self) {
        self.record.lock().has_new_kind = false;
    }

    /// Counts an error of `kind` at `at`, whose unit [`Occurrence::at`] explains.
    pub(crate) fn note_error(&self, kind: ErrorKind, at: u64) {
        let secs = self.now_secs.load(Ordering::Relaxed);
        let mut record = self.record.lock();
        let is_first = record.remembered.errors.note(kind, Occurrence { secs, at });
        record.has_new_kind |= is_first;
        let ends_writing = kind.is_corruption() && self.reaction == ErrorReaction::RemountReadOnly;
        if ends_writing && record.records_failures {
            record.fail(Failure { kind, at, secs });
            drop(record);
            self.stop();
        }
    }

    /// Counts a block that was read at `at` and found to be damaged, if it holds what was written to another address.
    pub(crate) fn note_misplaced(&self, block: &Block, volume: u64, at: u64) {
        if misplaced(&block.0, volume, at).is_some() {
            self.note_error(ErrorKind::Misplaced, at);
        }
    }

    /// Counts `error` if the image or the device is at fault, and returns it.
    pub(crate) fn counted(&self, error: Error) -> Error {
        match &error {
            Error::Corrupt(damage) => self.note_corruption(damage),
            Error::Device(error) => self.note_device_error(error),
            _ => {}
        }
        error
    }

    /// Counts `damage`.
    pub(crate) fn note_corruption(&self, damage: &Corruption) {
        self.note_error(ErrorKind::of_corruption(damage), damage.location.number());
    }

    fn note_device_error(&self, error: &DeviceError) {
        if let Some((kind, at)) = ErrorKind::of_device(error) {
            self.note_error(kind, at);
        }
    }

    /// Ends writing after a write or flush has failed with `error` (durability contract, sentence 6), and returns the
    /// error.
    pub(crate) fn fail(&self, error: DeviceError) -> Error {
        self.stop();
        self.note_device_error(&error);
        if let Some((kind, at)) = ErrorKind::of_device(&error) {
            self.note_failure(kind, at);
        }
        error.into()
    }

    /// Records that `error` makes checkpoints impossible, if it is damage.
    pub(crate) fn note_blocked(&self, error: &Error) {
        if let Error::Corrupt(damage) = error {
            self.note_failure(ErrorKind::of_corruption(damage), damage.location.number());
        }
    }

    fn note_failure(&self, kind: ErrorKind, at: u64) {
        let secs = self.now_secs.load(Ordering::Relaxed);
        self.record.lock().fail(Failure { kind, at, secs });
    }

    /// Returns the failure that has to be written to the superblock, once.
    fn take_pending_failure(&self) -> Option<Failure> {
        let mut record = self.record.lock();
        let is_pending = std::mem::take(&mut record.failure_pending);
        record.remembered.failure.filter(|_| is_pending)
    }
}

impl Record {
    /// Keeps the first failure: later ones may be its consequences.
    fn fail(&mut self, failure: Failure) {
        if self.records_failures && self.remembered.failure.is_none() {
            self.remembered.failure = Some(failure);
            self.failure_pending = true;
        }
    }
}
